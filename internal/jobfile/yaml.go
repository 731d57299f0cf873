package jobfile

import (
	"errors"
	"fmt"

	"github.com/goccy/go-yaml/ast"
	yamlparser "github.com/goccy/go-yaml/parser"
	"github.com/goccy/go-yaml/scanner"
	"github.com/goccy/go-yaml/token"
)

// maxChunkBytes bounds one entry of a list, or one document that is no list.
const maxChunkBytes = 1 << 20

// readYAML reads the documents of a YAML file.
func readYAML(content []byte) (roots []value, line int, err error) {
	r := yamlReader{document: -1}
	err = chunks(content, func(c chunk) error {
		line = c.line
		if len(c.text) > maxChunkBytes {
			return fmt.Errorf("found one entry of %d KiB, allowed %d: larger ones only as JSON", len(c.text)>>10, maxChunkBytes>>10)
		}
		if c.document != r.document {
			r.document, r.anchors = c.document, map[string]anchored{}
		}
		r.before, r.line = c.line-1, c.line
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

// yamlError is where and why the library could not read a text.
type yamlError struct {
	syntaxError
	token *token.Token
}

func (e *yamlError) Unwrap() error { return &e.syntaxError }

// parseYAML calls the library. It panics on a few texts that no one writes;
// these are as unreadable as others.
func parseYAML(text []byte) (docs []*ast.DocumentNode, err error) {
	defer func() {
		if recover() != nil {
			docs, err = nil, notYAML("it cannot be read", nil)
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
		return nil, notYAML(fmt.Sprintf("it is nested more than %d deep", maxDepth), deep)
	}
	file, err := yamlparser.Parse(tokens, 0)
	if err == nil {
		return file.Docs, nil
	}
	var told interface {
		GetMessage() string
		GetToken() *token.Token
	}
	if errors.As(err, &told) {
		return nil, notYAML(told.GetMessage(), told.GetToken())
	}
	return nil, notYAML(err.Error(), nil)
}

func notYAML(why string, at *token.Token) error {
	return &yamlError{syntaxError{"found what is no YAML, allowed YAML or JSON: " + why}, at}
}

// tooDeep finds where a text nests deeper than allowed, before the library
// follows it by recursion until its stack ends. Only what takes a byte or two
// per level can do that: brackets, and marks that follow one another on a
// line.
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
