package text

import "strings"

// Unquote takes a quoted string off the front. In double quotes only \" and
// \\ are escapes; every other backslash stays, because the value may be meant
// for a shell.
func Unquote(text string) (value, rest string, closed bool) {
	quote := text[0]
	if quote == '\'' {
		end := strings.IndexByte(text[1:], quote)
		if end < 0 {
			return "", "", false
		}
		return text[1 : 1+end], text[2+end:], true
	}
	var b strings.Builder
	start := 1
	for i := 1; i < len(text); i++ {
		switch {
		case text[i] == '"' && start == 1:
			return text[1:i], text[i+1:], true
		case text[i] == '"':
			b.WriteString(text[start:i])
			return b.String(), text[i+1:], true
		case text[i] == '\\' && i+1 < len(text) && (text[i+1] == '"' || text[i+1] == '\\'):
			b.WriteString(text[start:i])
			i++
			start = i
		}
	}
	return "", "", false
}
