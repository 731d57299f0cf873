package jobfile

import (
	"bytes"
	"fmt"
	"strings"
	"unicode/utf8"

	"berth/internal/job/sweep"
)

const commandKey = "command"

// maxArgvBytes bounds the total size of a command's words, below the kernel's
// own limit.
const maxArgvBytes = 1 << 20

// Item is one job of a spec file: the command as one shell line (Shell) or as
// words (Argv), and its other keys under their canonical names.
type Item struct {
	Line    int
	Shell   string
	Argv    []string
	Pairs   []Pair
	Axes    []sweep.Axis // nil: not a sweep
	Metrics []string
}

// ParseSpecs reads YAML or JSON: one mapping, a list of mappings, several
// YAML documents, or JSON values one after another, such as one per line. It
// checks the keys, so that errors have their line; Ask checks what depends on
// the time and on limits. The error is an *Errors.
func ParseSpecs(name string, content []byte) ([]Item, error) {
	s := specs{name: name}
	content = bytes.TrimPrefix(content, []byte("\xef\xbb\xbf"))
	roots, line, err := readSpecs(name, content)
	if err != nil {
		s.errs.Add(name, line, err.Error())
		return nil, &s.errs
	}
	for i := range roots {
		s.root(&roots[i])
		roots[i] = value{} // free it: the items have a copy
	}
	if len(s.items) == 0 && len(s.errs.Problems) == 0 {
		s.errs.Add(name, 1, "expected a mapping with a command, or a list of them; found no job")
	}
	if len(s.errs.Problems) > 0 {
		return nil, &s.errs
	}
	return s.items, nil
}

// readSpecs chooses the grammar. It tries JSON first if the text looks like it,
// because that is many times faster, and reads the rest as YAML.
func readSpecs(name string, content []byte) (roots []value, line int, err error) {
	if len(content) > maxSpecBytes {
		return nil, 1, fmt.Errorf("expected at most %d bytes, found %d", maxSpecBytes, len(content))
	}
	if at := invalidUTF8(content); at >= 0 {
		return nil, lineAt(content, at), fmt.Errorf("expected UTF-8 text, found other bytes")
	}
	lower := strings.ToLower(name)
	isJSON := strings.HasSuffix(lower, ".json") || strings.HasSuffix(lower, ".jsonl") || strings.HasSuffix(lower, ".ndjson")
	start := bytes.TrimLeft(content, " \t\r\n")
	if !isJSON && (len(start) == 0 || (start[0] != '{' && start[0] != '[')) {
		return readYAML(content)
	}
	roots, line, err = readJSON(content, "JSON or YAML")
	if err == nil || isJSON || !isSyntax(err) {
		return roots, line, err
	}
	if yamlRoots, _, yamlErr := readYAML(content); yamlErr == nil {
		return yamlRoots, 0, nil
	}
	return nil, line, err
}

// specs collects the jobs of a file and their errors.
type specs struct {
	name  string
	items []Item
	errs  Errors
	full  bool // there were too many jobs, which has been reported

	reader itemReader // of one job after another
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
		s.errs.Add(s.name, v.line, fmt.Sprintf("expected a mapping with a command, or a list of them; found %s", v.what()))
	}
}

func (s *specs) spec(v *value) {
	if v.kind != mapping {
		s.errs.Add(s.name, v.line, fmt.Sprintf("expected a mapping with a command, found %s", v.what()))
		return
	}
	if len(s.items) == maxSpecs {
		if !s.full {
			s.errs.Add(s.name, v.line, fmt.Sprintf("expected at most %d jobs in one file, found more", maxSpecs))
		}
		s.full = true
		return
	}
	before := len(s.errs.Problems) + s.errs.More
	r := &s.reader
	*r = itemReader{specs: s, item: Item{Line: v.line, Pairs: make([]Pair, 0, len(v.entries))}, seen: r.seen[:0]}
	r.read(v)
	if len(s.errs.Problems)+s.errs.More == before {
		s.items = append(s.items, r.item)
	}
}

// invalidUTF8 is the index of the first byte that is not UTF-8, or -1. The
// libraries would replace it silently, and berth would run another command.
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
