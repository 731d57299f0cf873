package main

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
)

// test is where a row is tested.
type test struct {
	File string
	Name string // within the file; a story is a test by itself
	Line int    // of the comment
}

func (t test) String() string {
	if t.Name == "" {
		return t.File
	}
	return t.File + ": " + t.Name
}

// tag is one comment: the rows that a test claims.
type tag struct {
	test
	ids []string
}

// tagForm is the form of such a comment, in any of the languages.
var tagForm = regexp.MustCompile(`^(?://|#)\s*seeds:\s*(.*)$`)

// idsIn are the rows that a line names, if it is such a comment.
func idsIn(line string) ([]string, bool) {
	form := tagForm.FindStringSubmatch(strings.TrimSpace(line))
	if form == nil {
		return nil, false
	}
	return strings.Fields(form[1]), true
}

// reader finds the tags of one file, and problems with them.
type reader func(name, text string) (tags []tag, problems []string)

// collect reads all tests below root.
func collect(root string) (tags []tag, problems []string, err error) {
	err = filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if entry.IsDir() && path != root && passedOver(entry.Name()) {
			return filepath.SkipDir
		}
		read := readerOf(path)
		if entry.IsDir() || read == nil {
			return nil
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		name, err := filepath.Rel(root, path)
		if err != nil {
			return err
		}
		found, wrong := read(filepath.ToSlash(name), string(text))
		tags, problems = append(tags, found...), append(problems, wrong...)
		return nil
	})
	return tags, problems, err
}

// passedOver reports whether a directory has no tests.
func passedOver(name string) bool {
	return strings.HasPrefix(name, ".") || name == "bin" || name == "dist" || name == "__pycache__"
}

func readerOf(path string) reader {
	switch filepath.Ext(path) {
	case ".go":
		return goTags
	case ".txtar":
		return storyTags
	case ".py":
		return pythonTags
	}
	return nil
}

func outside(name string, line int) string {
	return fmt.Sprintf("%s:%d: this comment is not in a test", name, line)
}

func never(name string, line int) string {
	return fmt.Sprintf("%s:%d: this comment is in a test that never runs", name, line)
}

func empty(name string, line int) string {
	return fmt.Sprintf("%s:%d: this comment names no row", name, line)
}

// goTags are the comments in, or directly above, a Test or Fuzz function. Only
// comments count, not strings that look like one.
func goTags(name, text string) (tags []tag, problems []string) {
	set := token.NewFileSet()
	file, err := parser.ParseFile(set, name, text, parser.ParseComments)
	if err != nil {
		return nil, []string{err.Error()}
	}
	for _, group := range file.Comments {
		for _, comment := range group.List {
			ids, ok := idsIn(comment.Text)
			if !ok {
				continue
			}
			line := set.Position(comment.Pos()).Line
			function := enclosing(file, comment.Pos())
			switch {
			case function == nil || !strings.HasSuffix(name, "_test.go"):
				problems = append(problems, outside(name, line))
			case isLeftOut(file) || isSkippedGo(function):
				problems = append(problems, never(name, line))
			case len(ids) == 0:
				problems = append(problems, empty(name, line))
			default:
				tags = append(tags, tag{test{File: name, Name: function.Name.Name, Line: line}, ids})
			}
		}
	}
	return tags, problems
}

// enclosing is the test function at a position, including its comment.
func enclosing(file *ast.File, at token.Pos) *ast.FuncDecl {
	for _, declaration := range file.Decls {
		function, ok := declaration.(*ast.FuncDecl)
		if !ok || function.Recv != nil {
			continue
		}
		begin := function.Pos()
		if function.Doc != nil {
			begin = function.Doc.Pos()
		}
		if begin <= at && at <= function.End() && isGoTest(function) {
			return function
		}
	}
	return nil
}

// storyFile begins a file of a story; the script comes before the first.
var storyFile = regexp.MustCompile(`^-- .+ --\s*$`)

// storyTags are the comments of a story itself, not of its files.
func storyTags(name, text string) (tags []tag, problems []string) {
	files, skipped := false, isSkippedStory(name, text)
	number := 0
	for line := range strings.Lines(text) {
		number++
		files = files || storyFile.MatchString(line)
		ids, ok := idsIn(line)
		if !ok {
			continue
		}
		switch {
		case files:
			problems = append(problems, outside(name, number))
		case skipped:
			problems = append(problems, never(name, number))
		case len(ids) == 0:
			problems = append(problems, empty(name, number))
		default:
			tags = append(tags, tag{test{File: name, Line: number}, ids})
		}
	}
	return tags, problems
}
