package main

import (
	"go/ast"
	"go/build/constraint"
	"path"
	"regexp"
	"strings"
)

// A test that never runs proves nothing: these find tests that were disabled and
// forgotten. A test that is skipped because a tool is missing is fine: it runs
// elsewhere.

// storiesDir is the directory of the stories.
const storiesDir = "testdata/script"

// isGoTest reports whether go test would call the function.
func isGoTest(function *ast.FuncDecl) bool {
	name := function.Name.Name
	rest, isTest := strings.CutPrefix(name, "Test")
	kind := "T"
	if !isTest {
		rest, isTest = strings.CutPrefix(name, "Fuzz")
		kind = "F"
	}
	parameters := function.Type.Params.List
	if !isTest || startsLower(rest) || len(parameters) != 1 || len(parameters[0].Names) > 1 {
		return false
	}
	pointer, isPointer := parameters[0].Type.(*ast.StarExpr)
	if !isPointer {
		return false
	}
	selector, isSelector := pointer.X.(*ast.SelectorExpr)
	return isSelector && selector.Sel.Name == kind
}

func startsLower(name string) bool { return name != "" && name[0] >= 'a' && name[0] <= 'z' }

// isSkippedGo reports whether the function always skips itself.
func isSkippedGo(function *ast.FuncDecl) bool {
	for _, statement := range function.Body.List {
		expression, ok := statement.(*ast.ExprStmt)
		if !ok {
			continue
		}
		call, ok := expression.X.(*ast.CallExpr)
		if !ok {
			continue
		}
		if selector, ok := call.Fun.(*ast.SelectorExpr); ok && strings.HasPrefix(selector.Sel.Name, "Skip") {
			return true
		}
	}
	return false
}

// isLeftOut reports whether no build has the file: nothing sets the tag
// ignore.
func isLeftOut(file *ast.File) bool {
	for _, group := range file.Comments {
		for _, comment := range group.List {
			if comment.Pos() > file.Package || !constraint.IsGoBuild(comment.Text) {
				continue
			}
			expression, err := constraint.Parse(comment.Text)
			if err == nil && !expression.Eval(func(tag string) bool { return tag != "ignore" }) {
				return true
			}
		}
	}
	return false
}

// isSkippedStory reports whether a story always skips itself.
func isSkippedStory(name, text string) bool {
	if path.Dir(name) != storiesDir {
		return true
	}
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		switch {
		case storyFile.MatchString(line):
			return false
		case line == "skip", strings.HasPrefix(line, "skip "):
			return true
		}
	}
	return false
}

// pythonSkip is a decorator that disables a test or a class.
var pythonSkip = regexp.MustCompile(`^\s*@(unittest\.)?(skip\(|expectedFailure)`)

// isTestedPython reports whether unittest looks for tests in the file.
func isTestedPython(name string) bool { return strings.HasPrefix(path.Base(name), "test") }
