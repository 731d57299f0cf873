package jobfile

import "strings"

// FlagValue is what the words of a command say for a flag, as `--flag value`
// or `--flag=value`; the last one counts.
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
