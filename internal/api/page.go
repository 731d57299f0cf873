package api

import (
	"bytes"
	"encoding/json"
)

// rawPage is a page of jobs that are not decoded.
type rawPage struct {
	inside []byte // the jobs, with commas between
	count  int
	next   string
}

// splitPage separates a page from its jobs, which are passed on undecoded. A
// page as the server writes it, with the jobs first, is scanned once; any other
// goes through a real decoder.
func splitPage(data []byte) (rawPage, error) {
	var frame struct {
		Jobs []json.RawMessage `json:"jobs"`
		Next string            `json:"next"`
	}
	if rest, found := bytes.CutPrefix(data, []byte(`{"jobs":[`)); found {
		end, count := arrayEnd(rest)
		if end >= 0 && bytes.HasPrefix(rest[end:], []byte("],")) {
			tail := append([]byte("{"), rest[end+2:]...)
			if err := json.Unmarshal(tail, &frame); err != nil {
				return rawPage{}, err
			}
			return rawPage{inside: rest[:end], count: count, next: frame.Next}, nil
		}
	}
	if err := json.Unmarshal(data, &frame); err != nil {
		return rawPage{}, err
	}
	page := rawPage{count: len(frame.Jobs), next: frame.Next}
	for i, raw := range frame.Jobs {
		if i > 0 {
			page.inside = append(page.inside, ',')
		}
		page.inside = append(page.inside, raw...)
	}
	return page, nil
}

// arrayEnd finds the bracket that closes an array after its opening one, and
// counts the values before it; -1 without one.
func arrayEnd(data []byte) (end, count int) {
	depth, empty := 0, true
	for i := 0; i < len(data); i++ {
		switch data[i] {
		case '"':
			empty = false
			for i++; i < len(data) && data[i] != '"'; i++ {
				if data[i] == '\\' {
					i++
				}
			}
		case '{', '[':
			depth++
			empty = false
		case '}', ']':
			if depth == 0 {
				if !empty {
					count++
				}
				return i, count
			}
			depth--
		case ',':
			if depth == 0 {
				count++
			}
		}
	}
	return -1, 0
}
