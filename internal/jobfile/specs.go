package jobfile

import (
	"bytes"
	"fmt"
	"strings"
	"unicode/utf8"
)

const commandKey = "command"

// maxArgvBytes bounds the words of one command together, below what the
// kernel takes.
const maxArgvBytes = 1 << 20

// Item is one job of a spec file: the command as one shell line (Shell) or as
// words (Argv), and its other keys under the names AskKeys has for them.
type Item struct {
	Line  int
	Shell string
	Argv  []string
	Pairs []Pair
}

// ParseSpecs reads YAML or JSON: one mapping, a list of mappings, several
// YAML documents, or JSON values one after another, such as one per line. The
// keys are looked at here, so that a mistake is told with its line; what
// depends on the time and on limits is left to Ask. The error is an *Errors.
func ParseSpecs(name string, content []byte) ([]Item, error) {
	s := specs{name: name}
	content = bytes.TrimPrefix(content, []byte("\xef\xbb\xbf"))
	roots, line, err := readSpecs(name, content)
	if err != nil {
		s.errs.add(name, line, err.Error())
		return nil, &s.errs
	}
	for i := range roots {
		s.root(&roots[i])
		roots[i] = value{} // what was read is not kept twice
	}
	if len(s.items) == 0 && len(s.errs.Problems) == 0 {
		s.errs.add(name, 1, "found no job, allowed a mapping with a command, or a list of them")
	}
	if len(s.errs.Problems) > 0 {
		return nil, &s.errs
	}
	return s.items, nil
}

// readSpecs chooses the grammar. What starts as JSON and is JSON is read as
// such, because that is many times faster; the rest is YAML, of which JSON is
// nearly a part.
func readSpecs(name string, content []byte) (roots []value, line int, err error) {
	if len(content) > maxSpecBytes {
		return nil, 1, fmt.Errorf("found %d bytes, allowed %d", len(content), maxSpecBytes)
	}
	if at := invalidUTF8(content); at >= 0 {
		return nil, lineAt(content, at), fmt.Errorf("found bytes that are no UTF-8, allowed text")
	}
	lower := strings.ToLower(name)
	isJSON := strings.HasSuffix(lower, ".json") || strings.HasSuffix(lower, ".jsonl") || strings.HasSuffix(lower, ".ndjson")
	start := bytes.TrimLeft(content, " \t\r\n")
	if !isJSON && (len(start) == 0 || (start[0] != '{' && start[0] != '[')) {
		return readYAML(content)
	}
	roots, line, err = readJSON(content)
	if err == nil || isJSON || !isSyntax(err) {
		return roots, line, err
	}
	if yamlRoots, _, yamlErr := readYAML(content); yamlErr == nil {
		return yamlRoots, 0, nil
	}
	return nil, line, err
}

// specs collects the jobs of a file and what is wrong with them.
type specs struct {
	name  string
	items []Item
	errs  Errors
	full  bool // the bound on jobs was passed, and said
	seen  []string
}

func (s *specs) root(v *value) {
	switch v.kind {
	case mapping:
		s.spec(v)
	case list:
		for i := range v.items {
			s.spec(&v.items[i])
		}
	default:
		s.errs.add(s.name, v.line, fmt.Sprintf("found %s, allowed a mapping with a command, or a list of them", v.what()))
	}
}

func (s *specs) spec(v *value) {
	if v.kind != mapping {
		s.errs.add(s.name, v.line, fmt.Sprintf("found %s, allowed a mapping with a command", v.what()))
		return
	}
	if len(s.items) == maxSpecs {
		if !s.full {
			s.errs.add(s.name, v.line, fmt.Sprintf("found more than %d jobs, allowed %d in one file", maxSpecs, maxSpecs))
		}
		s.full = true
		return
	}
	before := len(s.errs.Problems) + s.errs.More
	r := itemReader{specs: s, item: Item{Line: v.line, Pairs: make([]Pair, 0, len(v.entries))}, seen: s.seen[:0]}
	r.read(v)
	s.seen = r.seen // the next one need not make room again
	if len(s.errs.Problems)+s.errs.More == before {
		s.items = append(s.items, r.item)
	}
}

// invalidUTF8 is where the first byte that is no UTF-8 stands, or -1. The
// libraries would replace it in silence, and run another command.
func invalidUTF8(content []byte) int {
	if utf8.Valid(content) {
		return -1
	}
	for at := 0; at < len(content); {
		r, size := utf8.DecodeRune(content[at:])
		if r == utf8.RuneError && size == 1 {
			return at
		}
		at += size
	}
	return -1
}

func lineAt(content []byte, at int) int {
	return 1 + bytes.Count(content[:min(at, len(content))], []byte{'\n'})
}
