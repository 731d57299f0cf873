package text

import (
	"bytes"
	"io"
	"unicode"
	"unicode/utf8"
)

// LogWriter shows a log without letting it control the terminal. Line ends, tabs,
// carriage returns and colours pass; every other control character becomes its
// symbol (␛ for escape).
type LogWriter struct {
	Out      io.Writer
	Plain    bool   // leave colours out
	partial  []byte // an incomplete character or colour
	coloured bool
}

const (
	escape = 0x1b
	// longestColour bounds how much of a possible colour is held back.
	longestColour = 64
)

func (w *LogWriter) Write(p []byte) (int, error) {
	data := append(w.partial, p...)
	w.partial = nil
	shown := make([]byte, 0, len(data)+16)
	for len(data) > 0 {
		if data[0] == escape {
			length, whole := colourAt(data)
			if !whole && length > 0 {
				w.partial = bytes.Clone(data)
				break
			}
			if whole && w.Plain {
				data = data[length:]
				continue
			}
			if whole {
				w.coloured = true
				shown, data = append(shown, data[:length]...), data[length:]
				continue
			}
		}
		if !utf8.FullRune(data) {
			w.partial = bytes.Clone(data)
			break
		}
		r, size := utf8.DecodeRune(data)
		shown = utf8.AppendRune(shown, logged(r))
		data = data[size:]
	}
	if _, err := w.Out.Write(shown); err != nil {
		return 0, err
	}
	return len(p), nil
}

// Close writes what was held back, and resets a colour that the log left on.
func (w *LogWriter) Close() error {
	var rest []byte
	for _, r := range string(w.partial) {
		rest = utf8.AppendRune(rest, logged(r))
	}
	if w.coloured {
		rest = append(rest, "\x1b[0m"...)
	}
	w.partial = nil
	_, err := w.Out.Write(rest)
	return err
}

// colourAt measures a colour at the start of data: ESC [ numbers m. A length
// without whole means that more data is needed.
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

// logged is the character to show for a character of a log.
func logged(r rune) rune {
	switch {
	case r == '\n' || r == '\r' || r == '\t':
		return r
	case r < ' ':
		return 0x2400 + r
	case r == 0x7f:
		return 0x2421
	case unicode.In(r, unicode.Cc, unicode.Zl, unicode.Zp, unicode.Bidi_Control):
		return unicode.ReplacementChar
	}
	return r
}
