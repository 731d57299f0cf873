package jobfile

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
)

// syntaxError is a file that cannot be parsed, as opposed to one with a wrong
// value.
type syntaxError struct{ text string }

func (e *syntaxError) Error() string { return e.text }

func isSyntax(err error) bool {
	var syntax *syntaxError
	return errors.As(err, &syntax)
}

// readJSON reads JSON values that follow one another. The standard library
// checks the syntax; the walk here keeps the order of keys, the text of numbers
// and the lines, at a tenth of the cost of asking the library for every token. expected names
// the grammar in errors.
func readJSON(content []byte, expected string) (roots []value, line int, err error) {
	decoder := json.NewDecoder(bytes.NewReader(content))
	w := jsonWalker{line: 1}
	for {
		var raw json.RawMessage
		if err := decoder.Decode(&raw); err != nil {
			if errors.Is(err, io.EOF) {
				return roots, 0, nil
			}
			return nil, lineAt(content, jsonErrorAt(content, err)), notJSON(expected, err)
		}
		w.seek(content, int(decoder.InputOffset()), len(raw))
		v, err := w.value(0)
		if err != nil {
			return nil, w.line, err
		}
		roots = append(roots, v)
	}
}

func notJSON(expected string, err error) error {
	if errors.Is(err, io.ErrUnexpectedEOF) {
		return &syntaxError{fmt.Sprintf("expected %s, found the end of the file inside a value", expected)}
	}
	return &syntaxError{fmt.Sprintf("expected %s, found %v", expected, err)}
}

func jsonErrorAt(content []byte, err error) int {
	var syntax *json.SyntaxError
	if errors.As(err, &syntax) {
		return max(int(syntax.Offset)-1, 0)
	}
	return len(bytes.TrimRight(content, " \t\r\n"))
}

// jsonWalker walks text that is known to be valid JSON. Walking past the end
// would be a bug, and panics.
type jsonWalker struct {
	text   []byte
	at     int
	line   int
	budget budget

	entries []entry // of the mappings that are being read, one in the other
}

// seek moves to the value of the given length that ends at end.
func (w *jsonWalker) seek(content []byte, end, length int) {
	w.line += bytes.Count(content[w.at:end-length], []byte{'\n'})
	w.text, w.at = content[:end], end-length
}

// skip passes white space, commas and colons. It counts the lines too: a JSON
// string has no line end in it.
func (w *jsonWalker) skip() byte {
	for {
		switch c := w.text[w.at]; c {
		case '\n':
			w.line++
			w.at++
		case ' ', '\t', '\r', ',', ':':
			w.at++
		default:
			return c
		}
	}
}

func (w *jsonWalker) value(depth int) (value, error) {
	first := w.skip()
	v := value{line: w.line}
	if err := w.budget.spend(depth); err != nil {
		return v, err
	}
	switch first {
	case '"':
		v.text, v.quoted = w.string(), true
	case '[':
		v.kind = list
		for w.at++; w.skip() != ']'; {
			item, err := w.value(depth + 1)
			if err != nil {
				return v, err
			}
			v.items = append(v.items, item)
		}
		w.at++
	case '{':
		return w.mapping(v, depth)
	default:
		if v.text = w.word(); v.text == "null" {
			v.kind, v.text = null, ""
		}
	}
	return v, nil
}

func (w *jsonWalker) mapping(v value, depth int) (value, error) {
	v.kind = mapping
	outer := len(w.entries)
	for w.at++; w.skip() != '}'; {
		e := entry{line: w.line, key: w.string()}
		var err error
		if e.value, err = w.value(depth + 1); err != nil {
			return v, err
		}
		w.entries = append(w.entries, e)
	}
	v.entries = slices.Clone(w.entries[outer:])
	w.entries = w.entries[:outer]
	w.at++
	return v, nil
}

// string takes a quoted string. Only one with a backslash needs the library.
func (w *jsonWalker) string() string {
	start := w.at
	plain := true
	for w.at++; w.text[w.at] != '"'; w.at++ {
		if w.text[w.at] == '\\' {
			plain = false
			w.at++
		}
	}
	w.at++
	if plain {
		return string(w.text[start+1 : w.at-1])
	}
	var s string
	if err := json.Unmarshal(w.text[start:w.at], &s); err != nil {
		panic("bug: a valid JSON string was not read: " + err.Error())
	}
	return s
}

// word takes a number, true, false or null, as it was written.
func (w *jsonWalker) word() string {
	start := w.at
	for w.at < len(w.text) && bytes.IndexByte([]byte(" \t\r\n,:]}[{\""), w.text[w.at]) < 0 {
		w.at++
	}
	return string(w.text[start:w.at])
}
