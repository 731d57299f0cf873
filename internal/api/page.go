package api

import (
	"bytes"
	"encoding/json"
)

// splitPage separates a page from its jobs, which are passed on undecoded, with commas
// between. A page as the server writes it has the jobs first, then perhaps next, and
// total: text has no bare quotes, so what ends the jobs is found from the other end.
// Any other page goes through a real decoder.
func splitPage(data []byte) (inside []byte, next string, err error) {
	var frame struct {
		Jobs []json.RawMessage `json:"jobs"`
		Next string            `json:"next"`
	}
	if rest, found := bytes.CutPrefix(data, []byte(`{"jobs":[`)); found {
		end := bytes.LastIndex(rest, []byte(`,"total":`)) - 1
		if end >= 0 && rest[end] != ']' {
			end = bytes.LastIndex(rest[:end], []byte(`],"next":`))
		}
		if end >= 0 {
			err = json.Unmarshal(append([]byte("{"), rest[end+2:]...), &frame)
			return rest[:end], frame.Next, err
		}
	}
	if err = json.Unmarshal(data, &frame); err != nil {
		return nil, "", err
	}
	for i, raw := range frame.Jobs {
		if i > 0 {
			inside = append(inside, ',')
		}
		inside = append(inside, raw...)
	}
	return inside, frame.Next, nil
}
