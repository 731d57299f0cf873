package text

import (
	"bytes"
	"fmt"
	"io"
	"unicode/utf16"
	"unicode/utf8"
)

// JSON is an encoded value without the characters that JSON allows in a string
// although a terminal must not see them: they are written as escapes, which
// read back as the same text.
func JSON(encoded []byte) []byte {
	if bytes.IndexFunc(encoded, hides) < 0 && utf8.Valid(encoded) {
		return encoded
	}
	escaped := make([]byte, 0, len(encoded)+64)
	for _, r := range string(encoded) {
		escaped = appendEscaped(escaped, r)
	}
	return escaped
}

// hides reports a character that an encoder may have left in a string, or that was
// sent by one who is no encoder: of those below the blank JSON has only white space.
func hides(r rune) bool {
	return r >= 0x7f && !shown(r) || r < ' ' && r != '\n' && r != '\r' && r != '\t'
}

func appendEscaped(to []byte, r rune) []byte {
	if !hides(r) {
		return utf8.AppendRune(to, r)
	}
	for _, unit := range utf16.AppendRune(nil, r) {
		to = fmt.Appendf(to, `\u%04x`, unit)
	}
	return to
}

// JSONWriter is JSON for what comes in pieces, also within a character.
type JSONWriter struct {
	Out     io.Writer
	partial []byte
}

func (w *JSONWriter) Write(p []byte) (int, error) {
	data := p
	if len(w.partial) > 0 {
		data = append(w.partial, p...)
	}
	whole := wholeCharacters(data)
	w.partial = bytes.Clone(data[whole:])
	_, err := w.Out.Write(JSON(data[:whole]))
	return len(p), err
}

// Flush writes the rest of a character that never became whole.
func (w *JSONWriter) Flush() error {
	_, err := w.Out.Write(JSON(w.partial))
	w.partial = nil
	return err
}

// wholeCharacters is how much of the data does not end within a character.
func wholeCharacters(data []byte) int {
	for cut := 1; cut < utf8.UTFMax && cut <= len(data); cut++ {
		if at := len(data) - cut; utf8.RuneStart(data[at]) {
			if utf8.FullRune(data[at:]) {
				break
			}
			return at
		}
	}
	return len(data)
}
