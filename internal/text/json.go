package text

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"unicode/utf16"
	"unicode/utf8"
)

// JSON escapes the characters that JSON allows in a string but that a terminal
// must not see. They read back as the same text.
func JSON(encoded []byte) []byte {
	if rest := encoded[plainASCII(encoded):]; bytes.IndexFunc(rest, hides) < 0 && utf8.Valid(rest) {
		return encoded
	}
	escaped := make([]byte, 0, len(encoded)+64)
	for _, r := range string(encoded) {
		escaped = appendEscaped(escaped, r)
	}
	return escaped
}

// plainASCII is how much of the data is plain for certain, eight bytes at a time.
// Nearly all JSON is, and long lists are megabytes of it.
func plainASCII(data []byte) (length int) {
	const each, high = 0x0101010101010101, 0x8080808080808080
	for ; len(data)-length >= 8; length += 8 {
		eight := binary.LittleEndian.Uint64(data[length:])
		del := eight ^ each*0x7f
		if ((eight-each*' ')|eight|(del-each)&^del)&high != 0 {
			break
		}
	}
	return length
}

// hides reports a character that must be escaped. Below the space character,
// valid JSON contains only white space.
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

// MustJSON encodes a value of berth's own: one that cannot be encoded is a bug.
func MustJSON(value any) []byte {
	encoded, err := json.Marshal(value)
	if err != nil {
		panic("bug: " + err.Error())
	}
	return encoded
}

// JSONWriter is JSON for a stream whose writes may split a character.
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

// Flush writes the bytes of an incomplete character.
func (w *JSONWriter) Flush() error {
	_, err := w.Out.Write(JSON(w.partial))
	w.partial = nil
	return err
}

// wholeCharacters is the length of the data without an incomplete character at
// its end.
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
