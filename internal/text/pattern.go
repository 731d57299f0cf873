package text

import (
	"regexp"
	"sync"
)

// Pattern is a regular expression that is compiled when it is first used: most
// commands use none, and compiling all of them takes a millisecond.
func Pattern(expr string) func() *regexp.Regexp {
	return sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(expr) })
}
