package job

import "strings"

// QuoteArgv joins words into one shell line that a shell splits into the same
// words.
func QuoteArgv(argv []string) string {
	var b strings.Builder
	for i, word := range argv {
		if i > 0 {
			b.WriteByte(' ')
		}
		b.WriteString(Quote(word))
	}
	return b.String()
}

// Quote quotes one word so that a shell reads it back unchanged.
func Quote(word string) string {
	if word != "" && strings.IndexFunc(word, needsQuote) < 0 {
		return word
	}
	return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
}

func needsQuote(r rune) bool {
	switch {
	case r >= 'a' && r <= 'z', r >= 'A' && r <= 'Z', r >= '0' && r <= '9':
		return false
	}
	return !strings.ContainsRune("-_./:=,@%+", r)
}
