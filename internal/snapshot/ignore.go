package snapshot

import (
	"os"
	"path"
	"path/filepath"
	"strings"
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

// rules are ignore patterns; the last one that matches decides.
type rules []rule

type rule struct {
	pattern  string
	negated  bool // it includes what an earlier rule ignored
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
		if r.pattern = strings.TrimPrefix(line, "/"); r.pattern != "" {
			all = append(all, r)
		}
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
	text, err := os.ReadFile(filepath.Join(root, ignoreFile))
	if os.IsNotExist(err) {
		return nil, nil
	}
	return parseRules(string(text)), err
}

// judge says whether the rules ignore an entry, if any of them matches it.
func (all rules) judge(name string, isDir bool) (ignored, decided bool) {
	for i := len(all) - 1; i >= 0; i-- {
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
		return wildMatch(r.pattern, path.Base(name))
	}
	plain := strings.IndexAny(r.pattern, `*?[\`)
	if plain < 0 {
		return name == r.pattern
	}
	rest, begins := strings.CutPrefix(name, r.pattern[:plain])
	return begins && wildMatch(r.pattern[plain:], rest)
}

// ignores reports whether the rules ignore a file or a directory above it.
func (all rules) ignores(name string) bool {
	for i := range len(name) {
		if name[i] == '/' {
			if ignored, _ := all.judge(name[:i], true); ignored {
				return true
			}
		}
	}
	ignored, _ := all.judge(name, false)
	return ignored
}
