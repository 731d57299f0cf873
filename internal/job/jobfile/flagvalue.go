package jobfile

import "strings"

// FlagValue is the value that a command's words give a flag, as `--flag value`
// or `--flag=value`; the last one wins.
func FlagValue(words []string, flag string) (value string, found bool) {
	for i, word := range words {
		if after, joined := strings.CutPrefix(word, flag+"="); joined {
			value, found = after, true
		} else if word == flag && i+1 < len(words) {
			value, found = words[i+1], true
		}
	}
	return value, found
}
