package text

import (
	"errors"
	"strings"
)

// Why a line is not words of a shell.
var (
	ErrQuote     = errors.New("expected a closing quote, found the end of the line")
	ErrBackslash = errors.New("expected a character after the backslash, found the end of the line")
)

// ShellWords cuts a line into words as a shell would, without expanding anything:
// quotes group, and a backslash takes the next character. With comments, a # that
// starts a word ends the line.
func ShellWords(line string, comments bool) (words []string, err error) {
	for {
		line = strings.TrimLeft(line, " \t\r")
		if line == "" || comments && line[0] == '#' {
			return words, nil
		}
		word, rest, err := cutWord(line)
		if err != nil {
			return nil, err
		}
		words, line = append(words, word), rest
	}
}

func cutWord(line string) (word, rest string, err error) {
	var b strings.Builder
	for i := 0; i < len(line); i++ {
		switch c := line[i]; c {
		case ' ', '\t', '\r':
			return b.String(), line[i:], nil
		case '\'':
			end := strings.IndexByte(line[i+1:], '\'')
			if end < 0 {
				return "", "", ErrQuote
			}
			b.WriteString(line[i+1 : i+1+end])
			i += 1 + end
		case '"':
			length, ok := doubleQuoted(&b, line[i+1:])
			if !ok {
				return "", "", ErrQuote
			}
			i += length
		case '\\':
			if i++; i == len(line) {
				return "", "", ErrBackslash
			}
			b.WriteByte(line[i])
		default:
			b.WriteByte(c)
		}
	}
	return b.String(), "", nil
}

// doubleQuoted takes a string in double quotes, where a backslash escapes only
// the characters special there. It returns the length, closing quote included.
func doubleQuoted(b *strings.Builder, text string) (length int, ok bool) {
	for i := 0; i < len(text); i++ {
		switch c := text[i]; {
		case c == '"':
			return i + 1, true
		case c == '\\' && i+1 < len(text) && strings.IndexByte("\"\\$`", text[i+1]) >= 0:
			i++
			b.WriteByte(text[i])
		default:
			b.WriteByte(c)
		}
	}
	return 0, false
}
