package jobfile

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/token"

	"berth/internal/text"
)

// plainTags are tags that can be ignored: the key knows its type.
var plainTags = []string{"!!str", "!!int", "!!float", "!!bool", "!!map", "!!seq"}

// anchored is a value with a name, and how many values it contains.
type anchored struct {
	value value
	nodes int
}

// yamlReader turns the library's tree into values.
type yamlReader struct {
	budget   budget
	document int
	anchors  map[string]anchored
	before   int // lines of the file before this chunk
	lines    int // of this chunk
	line     int // last seen, for errors
}

// place is the line of the file an error is about.
func (r *yamlReader) place(err error) int {
	var parse *yamlError
	if errors.As(err, &parse) {
		r.at(parse.token)
	}
	return r.line
}

// at is a token's line in the file. The library also counts lone carriage
// returns as lines, which no editor does.
func (r *yamlReader) at(tk *token.Token) int {
	if tk != nil && tk.Position != nil && tk.Position.Line > 0 {
		r.line = r.before + min(tk.Position.Line, r.lines)
	}
	return r.line
}

func (r *yamlReader) value(node ast.Node, depth int) (value, error) {
	if node == nil {
		return value{kind: null, line: r.line}, r.budget.spend(depth)
	}
	line := r.at(node.GetToken())
	if err := r.budget.spend(depth); err != nil {
		return value{}, err
	}
	v := value{line: line}
	switch node := node.(type) {
	case *ast.NullNode:
		v.kind = null
	case *ast.StringNode:
		v.text = node.Value
	case *ast.LiteralNode:
		v.text = node.Value.Value
	case *ast.IntegerNode, *ast.FloatNode, *ast.BoolNode, *ast.InfinityNode, *ast.NanNode:
		v.text = node.GetToken().Value
	case *ast.SequenceNode:
		return r.sequence(node, depth)
	case *ast.MappingNode:
		return r.mapping(node.Values, line, depth)
	case *ast.MappingValueNode:
		return r.mapping([]*ast.MappingValueNode{node}, line, depth)
	case *ast.AnchorNode:
		return r.anchor(node, depth)
	case *ast.AliasNode:
		return r.alias(node)
	case *ast.TagNode:
		if !slices.Contains(plainTags, node.Start.Value) {
			return v, fmt.Errorf("expected no tags but %s, found %s", strings.Join(plainTags, " "), text.Found(node.Start.Value))
		}
		return r.value(node.Value, depth+1)
	default:
		return v, fmt.Errorf("expected values, lists and mappings, found a %s", node.Type())
	}
	return v, nil
}

func (r *yamlReader) sequence(node *ast.SequenceNode, depth int) (value, error) {
	v := value{kind: list, line: r.line, items: make([]value, len(node.Values))}
	for i, item := range node.Values {
		var err error
		if v.items[i], err = r.value(item, depth+1); err != nil {
			return v, err
		}
	}
	return v, nil
}

// anchor names a value. The name is known only after the value was read, so
// that a value cannot contain itself.
func (r *yamlReader) anchor(node *ast.AnchorNode, depth int) (value, error) {
	before := r.budget.nodes
	v, err := r.value(node.Value, depth+1)
	if err != nil {
		return v, err
	}
	r.anchors[nameOf(node.Name)] = anchored{v, r.budget.nodes - before}
	return v, nil
}

// alias shares the value it names, but counts as a copy.
func (r *yamlReader) alias(node *ast.AliasNode) (value, error) {
	name := nameOf(node.Value)
	known, ok := r.anchors[name]
	if !ok {
		return value{}, fmt.Errorf("expected an alias of an earlier anchor, found %s", text.Found(name))
	}
	r.budget.nodes += known.nodes - 1
	return known.value, r.budget.spend(0)
}

func nameOf(node ast.Node) string {
	if node == nil || node.GetToken() == nil {
		return ""
	}
	return node.GetToken().Value
}

// mapping reads keys and values. The mapping's own keys win over those merged
// by "<<", and the first of several merges wins.
func (r *yamlReader) mapping(values []*ast.MappingValueNode, line, depth int) (value, error) {
	v := value{kind: mapping, line: line, entries: make([]entry, 0, len(values))}
	var merged []value
	for i, pair := range values {
		e := entry{line: r.at(pair.Key.GetToken())}
		if i == 0 {
			v.line = e.line
		}
		var err error
		_, merge := pair.Key.(*ast.MergeKeyNode)
		if !merge {
			if e.key, err = r.key(pair.Key); err != nil {
				return v, err
			}
		}
		if e.value, err = r.value(pair.Value, depth+1); err != nil {
			return v, err
		}
		if !merge {
			v.entries = append(v.entries, e)
			continue
		}
		if merged, err = appendMerged(merged, e.value); err != nil {
			return v, err
		}
	}
	v.merge(merged)
	return v, nil
}

// key is a mapping's key as text.
func (r *yamlReader) key(node ast.Node) (string, error) {
	if explicit, ok := node.(*ast.MappingKeyNode); ok {
		node = explicit.Value
	}
	v, err := r.value(node, 0)
	if err != nil {
		return "", err
	}
	r.budget.nodes-- // only values count
	if v.kind != scalar {
		return "", fmt.Errorf("expected text as a key, found %s", v.what())
	}
	return v.text, nil
}

func appendMerged(merged []value, v value) ([]value, error) {
	parts := []value{v}
	if v.kind == list {
		parts = v.items
	}
	for _, part := range parts {
		if part.kind != mapping {
			return nil, fmt.Errorf("<<: expected a mapping or a list of them, found %s", part.what())
		}
	}
	return append(merged, parts...), nil
}

func (v *value) merge(merged []value) {
	if len(merged) == 0 {
		return
	}
	known := map[string]bool{}
	for _, e := range v.entries {
		known[e.key] = true
	}
	for _, from := range merged {
		for _, e := range from.entries {
			if !known[e.key] {
				known[e.key] = true
				v.entries = append(v.entries, e)
			}
		}
	}
}
