package snapshot

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"berth/internal/job"
)

// slowMatch is the obvious matcher, which tries one way after another.
func slowMatch(pattern, text string) bool {
	for at := 0; at < len(pattern); {
		c := pattern[at]
		if c == '*' {
			return slowStar(pattern, at, text)
		}
		if text == "" {
			return false
		}
		switch c {
		case '?':
			if text[0] == '/' {
				return false
			}
			at++
		case '[':
			next, ok := matchClass(pattern[at:], text[0])
			if !ok {
				return false
			}
			at += next
		case '\\':
			if at++; at == len(pattern) || pattern[at] != text[0] {
				return false
			}
			at++
		default:
			if c != text[0] {
				return false
			}
			at++
		}
		text = text[1:]
	}
	return text == ""
}

// slowStar matches the rest of a pattern from a star on.
func slowStar(pattern string, at int, text string) bool {
	rest := strings.TrimLeft(pattern[at:], "*")
	double := len(pattern)-at-len(rest) > 1
	// Two stars are special only as a whole element of the path.
	double = double && (at == 0 || pattern[at-1] == '/') && (rest == "" || rest[0] == '/' || strings.HasPrefix(rest, `\/`))
	if rest == "" {
		return double || strings.IndexByte(text, '/') < 0
	}
	if double && rest[0] == '/' && slowMatch(rest[1:], text) {
		return true // no directory at all
	}
	for {
		if slowMatch(rest, text) {
			return true
		}
		if text == "" || text[0] == '/' && !double {
			return false
		}
		text = text[1:]
	}
}

// TestPatternsMatchAsTheObviousWay: following all ways at once finds what trying
// them one after another does.
func TestPatternsMatchAsTheObviousWay(t *testing.T) {
	piece := rapid.SampledFrom([]string{"a", "b", "*", "**", "***", "?", "/", "**/", "/**", "[ab]", "[!a]", "[a-", "[]a]", "[[:alpha:]]", "[[:nope:]]", "\\", "\\*", "\\/", "\\a"})
	pieces := rapid.SliceOfN(piece, 0, 8)
	text := rapid.StringOfN(rapid.SampledFrom([]rune("aab//*")), 0, 10, -1)
	rapid.Check(t, func(r *rapid.T) {
		p, s := strings.Join(pieces.Draw(r, "pattern"), ""), text.Draw(r, "text")
		if got, want := parsePattern(p).match(s), slowMatch(p, s); got != want {
			r.Fatalf("%q matches %q: %v, not %v", p, s, got, want)
		}
	})
}

// TestPatternsThatTakeLong: a file of thousands of patterns with many stars ends,
// which it would not if every way through them were tried.
func TestPatternsThatTakeLong(t *testing.T) {
	_, root := here(t)
	name := strings.Repeat("a", 200)
	must(t, os.WriteFile(filepath.Join(root, name), nil, 0o644))
	must(t, os.WriteFile(filepath.Join(root, ignoreFile), []byte(strings.Repeat("**/*a*a*a*a*a*a*a*a*a*b/**\n*a*a*a*a*a*a*a*a*a*b\n", 1000)), 0o644))
	l, err := list(t.Context(), Ask{Dir: root, Tree: root})
	if err != nil || !l.has(name) {
		t.Errorf("%v", err)
	}
}

// TestRulesAreBounded: their number and length, and what they are read from.
func TestRulesAreBounded(t *testing.T) {
	for text, want := range map[string]string{
		strings.Repeat("a\n", maxRules+1):              fmt.Sprintf("expected at most %d patterns", maxRules),
		"a\n" + strings.Repeat("b", maxPatternBytes+1): ignoreFile + ":2: expected a pattern of at most",
		strings.Repeat("#\n", maxRulesBytes):           "expected at most 1048576 bytes",
	} {
		_, root := here(t)
		must(t, os.WriteFile(filepath.Join(root, ignoreFile), []byte(text), 0o644))
		if _, err := list(t.Context(), Ask{Dir: root, Tree: root}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v; expected %s", err, want)
		}
	}
}

// TestASnapshotEndsWithItsContext: also in the middle of a file that is longer than
// anybody waits for, and between any two rules.
func TestASnapshotEndsWithItsContext(t *testing.T) {
	place, root := here(t)
	must(t, os.WriteFile(filepath.Join(root, "sparse"), nil, 0o644))
	must(t, os.Truncate(filepath.Join(root, "sparse"), 1<<40))
	place.Limit = 1 << 50
	ctx, cancel := context.WithCancel(t.Context())
	time.AfterFunc(100*time.Millisecond, cancel)
	if _, err := place.Make(ctx, Ask{Queue: Queue{Name: "q"}, Dir: root, Tree: job.SnapshotAuto}); !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
	if _, decided := parseRules("*").judge(ctx, "a", false); decided {
		t.Error("rules are still compared")
	}
	if _, err := list(ctx, Ask{Dir: root, Tree: root}); !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
}
