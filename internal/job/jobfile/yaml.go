package jobfile

import (
	"errors"
	"fmt"
	"strings"

	"github.com/goccy/go-yaml/ast"
	yamlparser "github.com/goccy/go-yaml/parser"
	"github.com/goccy/go-yaml/scanner"
	"github.com/goccy/go-yaml/token"
)

// Bounds on one entry of a list, or on one document that is not a list. The
// library's time grows with the square of the text, and of its blank lines.
const (
	maxChunkBytes = 256 << 10
	maxBlankLines = 1000
)

// readYAML reads the documents of a YAML file.
func readYAML(content []byte) (roots []value, line int, err error) {
	r := yamlReader{document: -1}
	err = chunks(content, func(c chunk) error {
		line = c.line
		if len(c.text) > maxChunkBytes {
			return fmt.Errorf("expected at most %d bytes in one entry in YAML, found %d: write it as JSON", maxChunkBytes, len(c.text))
		}
		if blank := blankRun(c.text); blank >= 0 {
			line += lineAt(c.text, blank) - 1
			return fmt.Errorf("expected at most %d blank lines in a row, found more", maxBlankLines)
		}
		if c.document != r.document {
			r.document, r.anchors = c.document, map[string]anchored{}
		}
		r.before, r.lines, r.line = c.line-1, lineAt(c.text, len(c.text)), c.line
		docs, err := parseYAML(c.text)
		if err != nil {
			line = r.place(err)
			return err
		}
		for _, doc := range docs {
			v, err := r.value(doc.Body, 0)
			if err != nil {
				line = r.line
				return err
			}
			roots = append(roots, v)
		}
		return nil
	})
	return roots, line, err
}

// yamlError is why the library could not read a text, and where.
type yamlError struct {
	syntaxError
	token *token.Token
}

func (e *yamlError) Unwrap() error { return &e.syntaxError }

// parseYAML calls the library, which panics on a few strange texts; that is a
// syntax error like any other.
func parseYAML(text []byte) (docs []*ast.DocumentNode, err error) {
	defer func() {
		if recover() != nil {
			docs, err = nil, notYAML("text that the YAML parser cannot read", nil)
		}
	}()
	var s scanner.Scanner
	s.Init(string(text))
	tokens, err := s.Scan()
	if invalid := tokens.InvalidToken(); invalid != nil {
		return nil, notYAML(invalid.Error, invalid)
	}
	if err != nil {
		return nil, notYAML(err.Error(), nil)
	}
	if deep := tooDeep(tokens); deep != nil {
		return nil, notYAML(fmt.Sprintf("values nested more than %d deep", maxDepth), deep)
	}
	// Repeated keys are reported by itemReader, with the line of the file.
	file, err := yamlparser.Parse(tokens, 0, yamlparser.AllowDuplicateMapKey())
	if err == nil {
		return file.Docs, nil
	}
	var detailed interface {
		GetMessage() string
		GetToken() *token.Token
	}
	if errors.As(err, &detailed) {
		return nil, notYAML(detailed.GetMessage(), detailed.GetToken())
	}
	return nil, notYAML(err.Error(), nil)
}

func notYAML(why string, at *token.Token) error {
	if strings.HasSuffix(why, "is a reserved character") {
		why += ": put a value that starts with it in quotes"
	}
	return &yamlError{syntaxError{"expected YAML or JSON, found a syntax error: " + why}, at}
}

// tooDeep finds where a text nests too deep, before the library's recursion
// overflows the stack. Only brackets, and marks that follow one another on a
// line, take so few bytes per level that this is possible.
func tooDeep(tokens token.Tokens) *token.Token {
	brackets, marks, line := 0, 0, 0
	for _, tk := range tokens {
		if tk.Position.Line != line || tk.Type == token.CollectEntryType {
			marks, line = 0, tk.Position.Line
		}
		switch tk.Type {
		case token.MappingStartType, token.SequenceStartType:
			brackets++
		case token.MappingEndType, token.SequenceEndType:
			brackets--
		case token.SequenceEntryType, token.MappingKeyType, token.MappingValueType, token.AnchorType, token.TagType:
			marks++
		}
		if brackets > maxDepth || marks > 2*maxDepth {
			return tk
		}
	}
	return nil
}

// blankRun is the index where too many blank lines begin, or -1.
func blankRun(text []byte) int {
	start, lines := 0, 0
	for at, c := range text {
		switch c {
		case '\n':
			lines++
		case ' ', '\t', '\r':
		default:
			start, lines = at, 0
		}
		if lines > maxBlankLines {
			return start
		}
	}
	return -1
}
