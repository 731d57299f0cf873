package main

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// pythonHead is a line that begins a block of Python with a name.
var pythonHead = regexp.MustCompile(`^\s*(?:async\s+)?(def|class)\s+(\w+)`)

// pythonTags are the comments in, or directly above, a test method, by
// indentation.
func pythonTags(name, text string) (tags []tag, problems []string) {
	lines := strings.Split(text, "\n")
	for i, line := range lines {
		if pythonSkip.MatchString(line) {
			problems = append(problems, fmt.Sprintf("%s:%d: this disables tests", name, i+1))
		}
		ids, ok := idsIn(line)
		if !ok {
			continue
		}
		method := methodAround(lines, i)
		if method == "" {
			method = methodBelow(lines, i)
		}
		switch {
		case method == "":
			problems = append(problems, outside(name, i+1))
		case !isTestedPython(name):
			problems = append(problems, never(name, i+1))
		case len(ids) == 0:
			problems = append(problems, empty(name, i+1))
		default:
			tags = append(tags, tag{test{File: name, Name: method, Line: i + 1}, ids})
		}
	}
	return tags, problems
}

// methodAround is the test method that contains the line, with its classes, or
// "".
func methodAround(lines []string, at int) string {
	path := blocksAround(lines, at)
	last := slices.IndexFunc(path, func(name string) bool { return strings.HasPrefix(name, "test") })
	if last < 0 {
		return ""
	}
	return strings.Join(path[:last+1], ".")
}

// methodBelow is the test method directly below the line.
func methodBelow(lines []string, at int) string {
	indent := indentOf(lines[at])
	for i := at + 1; i < len(lines) && indentOf(lines[i]) == indent; i++ {
		text := strings.TrimSpace(lines[i])
		head := pythonHead.FindStringSubmatch(lines[i])
		switch {
		case head != nil && head[1] == "def" && strings.HasPrefix(head[2], "test"):
			return strings.Join(append(blocksAround(lines, i), head[2]), ".")
		case strings.HasPrefix(text, "#") || strings.HasPrefix(text, "@"):
			// another comment, or a decorator of the method
		default:
			return ""
		}
	}
	return ""
}

// blocksAround are the names of the blocks that contain a line, outermost
// first.
func blocksAround(lines []string, at int) []string {
	var path []string
	indent := indentOf(lines[at])
	for i := at - 1; i >= 0 && indent > 0; i-- {
		text := strings.TrimSpace(lines[i])
		if text == "" || strings.HasPrefix(text, "#") || indentOf(lines[i]) >= indent {
			continue
		}
		indent = indentOf(lines[i])
		if head := pythonHead.FindStringSubmatch(lines[i]); head != nil {
			path = append(path, head[2])
		}
	}
	slices.Reverse(path)
	return path
}

// indentOf is the indentation of a line.
func indentOf(line string) int {
	return len(line) - len(strings.TrimLeft(line, " \t"))
}
