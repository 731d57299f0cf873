package jobfile

import (
	"fmt"
	"strings"

	"berth/internal/text"
)

// Bounds on a file of specs. What passes them is a mistake, and is refused
// before it fills memory.
const (
	maxSpecBytes = 64 << 20
	maxNodes     = 1_000_000
	maxSpecs     = 100_000
	maxDepth     = 64
)

// kind is what a value of a spec file is, in YAML as in JSON.
type kind uint8

const (
	scalar kind = iota // text, a number or a boolean, as it was written
	null
	list
	mapping
)

// value is one value of a spec file with all below it. Numbers and booleans
// keep the text they were written in: only the key knows what it wants.
type value struct {
	kind    kind
	quoted  bool // text that stood in quotes; told of JSON alone
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

// what names a value in a message.
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

// textOf is a scalar's text. Anything else is refused by its name.
func (v value) textOf(key string) (string, error) {
	switch {
	case v.kind == scalar && strings.IndexByte(v.text, 0) >= 0:
		return "", fmt.Errorf("%s: found a NUL byte, allowed text", key)
	case v.kind == scalar:
		return v.text, nil
	case v.kind == null:
		return "", fmt.Errorf("%s: found null, allowed a value: leave the key out where there is none", key)
	}
	return "", fmt.Errorf("%s: found %s, allowed one value", key, v.what())
}

// wordsOf is the text of each part of a list, or of one scalar.
func (v value) wordsOf(key string) ([]string, error) {
	if v.kind != list {
		word, err := v.textOf(key)
		return []string{word}, err
	}
	if len(v.items) == 0 {
		return nil, fmt.Errorf("%s: found an empty list, allowed at least one value", key)
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

// budget counts values while a file is read.
type budget struct{ nodes int }

func (b *budget) take(depth int) error {
	if depth > maxDepth {
		return fmt.Errorf("found values nested more than %d deep, allowed %d", maxDepth, maxDepth)
	}
	if b.nodes++; b.nodes > maxNodes {
		return fmt.Errorf("found more than %d values, aliases counted as often as they are used, allowed %d", maxNodes, maxNodes)
	}
	return nil
}
