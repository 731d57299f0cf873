package jobfile

import (
	"fmt"
	"strings"

	"berth/internal/text"
)

// Bounds on a spec file. A larger one is a mistake, and is refused before it
// fills memory.
const (
	maxSpecBytes = 64 << 20
	maxNodes     = 1_000_000
	maxSpecs     = 100_000
	maxDepth     = 64
)

// kind is what a value of a spec file is, in YAML as in JSON.
type kind uint8

const (
	scalar kind = iota // text, a number or a boolean, as written
	null
	list
	mapping
)

// value is one value of a spec file with everything below it. Numbers and
// booleans stay text: only their key knows how to read them.
type value struct {
	kind    kind
	quoted  bool // it was in quotes; set for JSON only
	line    int
	text    string
	items   []value
	entries []entry
}

type entry struct {
	key   string
	line  int
	value value
}

// what names a value in an error.
func (v value) what() string {
	switch v.kind {
	case null:
		return "null"
	case list:
		return "a list"
	case mapping:
		return "a mapping"
	}
	return text.Found(v.text)
}

// textOf is a scalar's text. Anything else is an error.
func (v value) textOf(key string) (string, error) {
	switch {
	case v.kind == scalar && strings.IndexByte(v.text, 0) >= 0:
		return "", fmt.Errorf("%s: expected text, found a NUL byte", key)
	case v.kind == scalar:
		return v.text, nil
	case v.kind == null:
		return "", fmt.Errorf("%s: expected a value, found null: leave the key out instead", key)
	}
	return "", fmt.Errorf("%s: expected one value, found %s", key, v.what())
}

// wordsOf is the text of each part of a list, or of one scalar.
func (v value) wordsOf(key string) ([]string, error) {
	if v.kind != list {
		word, err := v.textOf(key)
		return []string{word}, err
	}
	if len(v.items) == 0 {
		return nil, fmt.Errorf("%s: expected at least one value, found an empty list", key)
	}
	words := make([]string, len(v.items))
	for i, item := range v.items {
		var err error
		if words[i], err = item.textOf(key); err != nil {
			return nil, err
		}
	}
	return words, nil
}

// plain is the value as package json has it, with numbers and booleans as text, and
// null as what cannot be text.
func (v value) plain() any {
	switch v.kind {
	case null:
		return false
	case list:
		items := make([]any, len(v.items))
		for i, item := range v.items {
			items[i] = item.plain()
		}
		return items
	case mapping:
		entries := make(map[string]any, len(v.entries))
		for _, e := range v.entries {
			entries[e.key] = e.value.plain()
		}
		return entries
	}
	return v.text
}

// budget counts values while a file is read.
type budget struct{ nodes int }

func (b *budget) spend(depth int) error {
	if depth > maxDepth {
		return fmt.Errorf("expected values nested at most %d deep, found more", maxDepth)
	}
	if b.nodes++; b.nodes > maxNodes {
		return fmt.Errorf("expected at most %d values, counting an alias at each use; found more", maxNodes)
	}
	return nil
}
