package text

import (
	"regexp"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// TestGlobIsARegularExpression: * is .*, ? is one character.
func TestGlobIsARegularExpression(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		words := rapid.StringOfN(rapid.RuneFrom([]rune("ab*?é[")), 0, 8, -1)
		pattern, word := words.Draw(t, "pattern"), words.Draw(t, "word")
		same := strings.NewReplacer(`\*`, ".*", `\?`, ".").Replace(regexp.QuoteMeta(pattern))
		if want := regexp.MustCompile("^(?s:" + same + ")$").MatchString(word); Glob(pattern, word) != want {
			t.Errorf("%q matches %q: %v", pattern, word, !want)
		}
	})
}
