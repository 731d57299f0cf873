package snapshot

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"strings"
	"syscall"
)

// ignoreFile has a tree's own ignore rules, in the syntax of .gitignore.
const ignoreFile = ".berthignore"

// defaultRules ignore what no project counts as its code: version control, caches,
// packages that a tool installed, and berth's own logs.
const defaultRules = `.git
.hg/
.svn/
__pycache__/
*.py[co]
node_modules/
.mypy_cache/
.pytest_cache/
.ruff_cache/
.tox/
.ipynb_checkpoints/
berth_logs/
`

// Bounds of a tree's own rules.
const (
	maxRulesBytes   = 1 << 20
	maxRules        = 10_000
	maxPatternBytes = 1024
)

// rules are ignore patterns; the last one that matches decides.
type rules []rule

type rule struct {
	plain    string  // the text that the pattern begins with
	rest     pattern // what follows
	negated  bool    // it includes what an earlier rule ignored
	dirOnly  bool
	anchored bool // it matches the whole path, not the last element
}

// parseRules reads .gitignore syntax.
func parseRules(text string) rules {
	var all rules
	for line := range strings.SplitSeq(strings.TrimPrefix(text, "\xef\xbb\xbf"), "\n") {
		line = trimSpaces(strings.TrimSuffix(line, "\r"))
		if line == "" || line[0] == '#' {
			continue
		}
		var r rule
		line, r.negated = strings.CutPrefix(line, "!")
		line, r.dirOnly = strings.CutSuffix(line, "/")
		r.anchored = strings.Contains(line, "/")
		if line = strings.TrimPrefix(line, "/"); line == "" {
			continue
		}
		plain := strings.IndexAny(line, `*?[\`)
		if plain < 0 {
			plain = len(line)
		}
		r.plain, r.rest = line[:plain], parsePattern(line[plain:])
		all = append(all, r)
	}
	return all
}

// trimSpaces removes trailing blanks that no backslash quotes.
func trimSpaces(line string) string {
	end := 0
	for i := 0; i < len(line); i++ {
		switch {
		case line[i] == '\\':
			i++
			end = min(i+1, len(line))
		case line[i] != ' ':
			end = i + 1
		}
	}
	return line[:end]
}

// readRules are the rules of a tree; none without its file.
func readRules(root string) (rules, error) {
	path := filepath.Join(root, ignoreFile)
	file, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if os.IsNotExist(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer file.Close()
	if info, err := file.Stat(); err != nil || !info.Mode().IsRegular() {
		return nil, cmp.Or(err, fmt.Errorf("%s: expected a file", path))
	}
	text, err := io.ReadAll(io.LimitReader(file, maxRulesBytes+1))
	if err != nil {
		return nil, err
	}
	if len(text) > maxRulesBytes {
		return nil, fmt.Errorf("%s: expected at most %d bytes, found more", path, maxRulesBytes)
	}
	number := 0
	for line := range strings.Lines(string(text)) {
		if number++; len(line) > maxPatternBytes {
			return nil, fmt.Errorf("%s:%d: expected a pattern of at most %d bytes, found %d", path, number, maxPatternBytes, len(line))
		}
	}
	all := parseRules(string(text))
	if len(all) > maxRules {
		return nil, fmt.Errorf("%s: expected at most %d patterns, found %d", path, maxRules, len(all))
	}
	return all, nil
}

// judge says whether the rules ignore an entry, if any of them matches it. Many
// rules take some time: once ctx has ended, the answer means nothing.
func (all rules) judge(ctx context.Context, name string, isDir bool) (ignored, decided bool) {
	for i := len(all) - 1; i >= 0 && ctx.Err() == nil; i-- {
		r := &all[i]
		if r.dirOnly && !isDir {
			continue
		}
		if r.matches(name) {
			return !r.negated, true
		}
	}
	return false, false
}

// matches compares as git does: a whole path without the plain text that the
// pattern begins with, so that two stars behind that are special.
func (r *rule) matches(name string) bool {
	if !r.anchored {
		name = path.Base(name)
	}
	rest, begins := strings.CutPrefix(name, r.plain)
	return begins && r.rest.match(rest)
}

// ignores reports whether the rules ignore a file or a directory above it.
func (all rules) ignores(ctx context.Context, name string) bool {
	for i := range len(name) {
		if name[i] == '/' {
			if ignored, _ := all.judge(ctx, name[:i], true); ignored {
				return true
			}
		}
	}
	ignored, _ := all.judge(ctx, name, false)
	return ignored
}
