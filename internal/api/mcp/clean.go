package mcp

import (
	"bytes"
	"encoding/json"
	"strings"

	"berth/internal/text"
	"berth/internal/text/problem"
)

// Bounds on an answer, in bytes.
const (
	maxAnswer = 64 << 10
	maxString = 4 << 10
	maxCell   = 300 // of a string in a list
)

// several is text of several lines without what could control a terminal.
func several(s string) string {
	lines := strings.Split(text.Clip(s, maxString), "\n")
	for i, line := range lines {
		lines[i] = text.Line(line)
	}
	return strings.Join(lines, "\n")
}

// cleaned is a value as JSON has it, without nulls, with every string safe to show
// and at most that long.
func cleaned(value any, longest int) (any, error) {
	data, err := json.Marshal(value)
	if err != nil {
		return nil, err
	}
	var plain any
	decoder := json.NewDecoder(bytes.NewReader(data))
	decoder.UseNumber()
	if err := decoder.Decode(&plain); err != nil {
		return nil, err
	}
	return walk(plain, longest), nil
}

func walk(value any, longest int) any {
	switch v := value.(type) {
	case string:
		return short(v, longest)
	case []any:
		for i := range v {
			v[i] = walk(v[i], longest)
		}
	case map[string]any:
		clean := make(map[string]any, len(v))
		for key, item := range v {
			if item != nil {
				clean[short(key, longest)] = walk(item, longest)
			}
		}
		return clean
	}
	return value
}

func short(s string, longest int) string {
	if clip := text.Clip(s, longest); clip != s {
		return several(clip) + "…"
	}
	return several(s)
}

// answer is a value as JSON.
func answer(value any) (*result, error) {
	clean, err := cleaned(value, maxString)
	if err != nil {
		return nil, err
	}
	return structured(clean)
}

// structured is a clean value as JSON. A reader of text and one of values get the
// same.
func structured(clean any) (*result, error) {
	var body bytes.Buffer
	encoder := json.NewEncoder(&body)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(clean); err != nil {
		return nil, err
	}
	if body.Len() > maxAnswer {
		return nil, problem.Newf(problem.TooMuch, "ask for less", "the answer has %d bytes; at most %d are sent", body.Len(), maxAnswer)
	}
	return &result{texts: []string{strings.TrimSuffix(body.String(), "\n")}, value: clean}, nil
}

// rows are as many values as fit into an answer, and how many did not.
func rows[T any](values []T) (fit []any, left int, err error) {
	size := 0
	for i, value := range values {
		clean, err := cleaned(value, maxCell)
		if err != nil {
			return nil, 0, err
		}
		data, err := json.Marshal(clean)
		if err != nil {
			return nil, 0, err
		}
		if size += len(data); size > maxAnswer*3/4 {
			return fit, len(values) - i, nil
		}
		fit = append(fit, clean)
	}
	return fit, 0, nil
}
