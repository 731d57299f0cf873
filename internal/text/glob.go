package text

import "strings"

// Glob reports whether a pattern matches a whole word: * is any characters, ? is
// one.
func Glob(pattern, word string) bool {
	p, w := []rune(pattern), []rune(word)
	star, from := -1, 0 // the last *, and where what follows it is tried
	at := 0
	for i := 0; i < len(w); {
		switch {
		case at < len(p) && p[at] == '*':
			star, from = at, i
			at++
		case at < len(p) && (p[at] == '?' || p[at] == w[i]):
			at++
			i++
		case star >= 0:
			from++
			at, i = star+1, from
		default:
			return false
		}
	}
	return strings.Trim(string(p[at:]), "*") == ""
}
