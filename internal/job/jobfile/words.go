package jobfile

import (
	"errors"
	"strings"
)

var (
	errQuote     = errors.New("expected a closing quote, found the end of the line")
	errBackslash = errors.New("expected one directive per line, found a backslash at the end of the line")
)

// splitWords cuts a directive into words as a shell would, without expanding
// anything: quotes group, a backslash takes the next character, and a # that
// starts a word starts a comment.
func splitWords(line string) ([]string, error) {
	var words []string
	for {
		line = strings.TrimLeft(line, " \t\r")
		if line == "" || line[0] == '#' {
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
				return "", "", errQuote
			}
			b.WriteString(line[i+1 : i+1+end])
			i += 1 + end
		case '"':
			length, ok := doubleQuoted(&b, line[i+1:])
			if !ok {
				return "", "", errQuote
			}
			i += length
		case '\\':
			if i++; i == len(line) {
				return "", "", errBackslash
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
