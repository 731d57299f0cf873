package main

import (
	"go/ast"
	"go/build/constraint"
	"path"
	"regexp"
	"strings"
)

// A test that never runs proves nothing, however it is called: these find the
// ways in which one is put out of action and forgotten. One that is skipped
// where a tool is missing is not meant: it runs elsewhere.

// storiesDir is where the stories that are run lie.
const storiesDir = "testdata/script"

// isGoTest tells whether go test would call the function.
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

// isSkippedGo tells whether the function skips itself whatever is the case.
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

// isLeftOut tells whether no build has the file: nothing sets the tag ignore.
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

// isSkippedStory tells whether a story ends before it has begun.
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

// pythonSkip is a decorator that puts a test or a class of them out of action.
var pythonSkip = regexp.MustCompile(`^\s*@(unittest\.)?(skip\(|expectedFailure)`)

// isTestedPython tells whether unittest looks for tests in the file.
func isTestedPython(name string) bool { return strings.HasPrefix(path.Base(name), "test") }
