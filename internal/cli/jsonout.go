package cli

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"
)

// printJSON writes one value as one line.
func printJSON(out io.Writer, value any) error {
	w := &jsonWriter{out: out}
	encoder := json.NewEncoder(w)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(value); err != nil {
		return err
	}
	return w.flush()
}

// jsonWriter passes JSON on. JSON allows characters in a string that drive a
// terminal all the same; they are written as escapes, which read back as the
// same text. A character may come in two pieces.
type jsonWriter struct {
	out     io.Writer
	partial []byte
}

func (w *jsonWriter) Write(p []byte) (int, error) {
	data := p
	if len(w.partial) > 0 {
		data = append(w.partial, p...)
		w.partial = nil
	}
	if bytes.IndexFunc(data, drivesTerminal) < 0 && utf8.Valid(data) {
		_, err := w.out.Write(data)
		return len(p), err
	}
	escaped := make([]byte, 0, len(data)+64)
	for len(data) > 0 {
		r, size := utf8.DecodeRune(data)
		if r == utf8.RuneError && size <= 1 && !utf8.FullRune(data) {
			w.partial = bytes.Clone(data)
			break
		}
		escaped = appendEscaped(escaped, r)
		data = data[size:]
	}
	_, err := w.out.Write(escaped)
	return len(p), err
}

// flush writes what is left of a character that never became whole.
func (w *jsonWriter) flush() error {
	if len(w.partial) == 0 {
		return nil
	}
	w.partial = nil
	_, err := w.out.Write([]byte(string(utf8.RuneError)))
	return err
}

func appendEscaped(to []byte, r rune) []byte {
	if !drivesTerminal(r) {
		return utf8.AppendRune(to, r)
	}
	for _, unit := range utf16.AppendRune(nil, r) {
		to = fmt.Appendf(to, `\u%04x`, unit)
	}
	return to
}

func drivesTerminal(r rune) bool {
	return r >= utf8.RuneSelf && !unicode.IsPrint(r) || r == 0x7f
}
