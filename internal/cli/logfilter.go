package cli

import (
	"bytes"
	"io"
	"unicode"
	"unicode/utf8"
)

// logFilter shows a log on a terminal without letting it drive the terminal.
// Lines, tabs, carriage returns and colours pass; every other control
// character becomes its picture (␛ for escape), which leaves what follows as
// plain text.
type logFilter struct {
	out      io.Writer
	partial  []byte // the beginning of a character or of a colour
	coloured bool
}

const (
	escape = 0x1b
	// longestColour bounds how much of a possible colour is held back.
	longestColour = 64
)

func (f *logFilter) Write(p []byte) (int, error) {
	data := p
	if len(f.partial) > 0 {
		data = append(f.partial, p...)
		f.partial = nil
	}
	shown := make([]byte, 0, len(data)+16)
	for len(data) > 0 {
		if data[0] == escape {
			length, whole := colourAt(data)
			if !whole && length > 0 {
				f.partial = bytes.Clone(data)
				break
			}
			if whole {
				f.coloured = true
				shown, data = append(shown, data[:length]...), data[length:]
				continue
			}
		}
		if !utf8.FullRune(data) {
			f.partial = bytes.Clone(data)
			break
		}
		r, size := utf8.DecodeRune(data)
		shown = utf8.AppendRune(shown, shownAs(r))
		data = data[size:]
	}
	if _, err := f.out.Write(shown); err != nil {
		return 0, err
	}
	return len(p), nil
}

// close shows what was held back, and ends a colour that the log left on.
func (f *logFilter) close() {
	var rest []byte
	for _, r := range string(f.partial) {
		rest = utf8.AppendRune(rest, shownAs(r))
	}
	if f.coloured {
		rest = append(rest, "\x1b[0m"...)
	}
	f.partial = nil
	_, _ = f.out.Write(rest) // the end of the output: nobody is left to tell
}

// colourAt measures a colour at the beginning of data: ESC [ numbers m. A
// length without whole means that more is needed to know.
func colourAt(data []byte) (length int, whole bool) {
	for i := 1; i < len(data) && i < longestColour; i++ {
		switch c := data[i]; {
		case i == 1 && c == '[':
		case i == 1:
			return 0, false
		case c == 'm':
			return i + 1, true
		case c != ';' && c != ':' && (c < '0' || c > '9'):
			return 0, false
		}
	}
	if len(data) >= longestColour {
		return 0, false
	}
	return len(data), false
}

// shownAs is a character, or a picture of one that would drive a terminal or
// turn the direction of the text around.
func shownAs(r rune) rune {
	switch {
	case r == '\n' || r == '\r' || r == '\t':
		return r
	case r < 0x20:
		return 0x2400 + r
	case r == 0x7f:
		return 0x2421
	case unicode.IsControl(r), unicode.Is(unicode.Bidi_Control, r):
		return unicode.ReplacementChar
	}
	return r
}
