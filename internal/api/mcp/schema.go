package mcp

import (
	"encoding/json"
	"maps"
	"math"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"berth/internal/text"
	"berth/internal/text/problem"
)

// schema is the part of JSON Schema that describes the arguments of a tool.
type schema struct {
	Type        kinds      `json:"type"`
	Properties  properties `json:"properties,omitempty"`
	Items       *schema    `json:"items,omitempty"`
	Description string     `json:"description,omitempty"`
	Values      *schema    `json:"additionalProperties,omitempty"`
	Required    []string   `json:"required,omitempty"`
}

// kinds are the types of JSON that a value may have.
type kinds []string

func (k kinds) MarshalJSON() ([]byte, error) {
	if len(k) == 1 {
		return json.Marshal(k[0])
	}
	return json.Marshal([]string(k))
}

// properties keep the order of the fields: what an agent needs first comes first.
type properties []property

type property struct {
	name string
	*schema
}

func (p properties) MarshalJSON() ([]byte, error) {
	object := []byte{'{'}
	for i, one := range p {
		value, err := json.Marshal(one.schema)
		if err != nil {
			return nil, err
		}
		if i > 0 {
			object = append(object, ',')
		}
		object = append(strconv.AppendQuote(object, one.name), ':')
		object = append(object, value...)
	}
	return append(object, '}'), nil
}

// schemaOf describes a Go type: names and what may be left out come from the tag
// json, descriptions from jsonschema.
func schemaOf(t reflect.Type) *schema {
	if t == reflect.TypeFor[word]() {
		return &schema{Type: kinds{"string", "number", "boolean"}}
	}
	switch t.Kind() {
	case reflect.String:
		return &schema{Type: kinds{"string"}}
	case reflect.Bool:
		return &schema{Type: kinds{"boolean"}}
	case reflect.Int, reflect.Int64:
		return &schema{Type: kinds{"integer"}}
	case reflect.Float64:
		return &schema{Type: kinds{"number"}}
	case reflect.Pointer:
		return &schema{Type: append(kinds{"null"}, schemaOf(t.Elem()).Type...)}
	case reflect.Slice:
		return &schema{Type: kinds{"null", "array"}, Items: schemaOf(t.Elem())}
	case reflect.Map:
		return &schema{Type: kinds{"object"}, Values: schemaOf(t.Elem())}
	case reflect.Struct:
		object := &schema{Type: kinds{"object"}}
		for field := range t.Fields() {
			name, options, _ := strings.Cut(field.Tag.Get("json"), ",")
			of := schemaOf(field.Type)
			of.Description = field.Tag.Get("jsonschema")
			object.Properties = append(object.Properties, property{name, of})
			if options == "" {
				object.Required = append(object.Required, name)
			}
		}
		return object
	}
	panic("bug: no schema for " + t.String())
}

// read fills in, which s describes, from the arguments of a call.
func (s *schema) read(arguments, in any) error {
	given, is := arguments.(map[string]any)
	if !is && arguments != nil {
		return problem.Newf(problem.Invalid, "", "arguments: expected an object, found %s", found(arguments))
	}
	if err := s.checkArguments(given); err != nil {
		return err
	}
	data, err := json.Marshal(given) // 5.0 and 5e0 become 5
	if err != nil {
		return err
	}
	return json.Unmarshal(data, in)
}

// found is a value as a refusal shows it.
func found(value any) string {
	data, _ := json.Marshal(value) // it was JSON
	return text.Clip(string(data), maxCell)
}

func (s *schema) checkArguments(given map[string]any) error {
	for _, key := range slices.Sorted(maps.Keys(given)) {
		if !slices.ContainsFunc(s.Properties, func(p property) bool { return p.name == key }) {
			var known []string
			for _, p := range s.Properties {
				known = append(known, p.name)
			}
			slices.Sort(known)
			if len(known) == 0 {
				return problem.Newf(problem.Invalid, "", "expected no arguments, found %s", text.Found(key))
			}
			return problem.Newf(problem.Invalid, "", "expected the arguments %s, found %s", text.Or(known), text.Found(key))
		}
	}
	for _, p := range s.Properties {
		value, is := given[p.name]
		if !is && slices.Contains(s.Required, p.name) {
			return problem.Newf(problem.Invalid, "", "%s: expected %s, found nothing", p.name, p.Type)
		}
		if is {
			if err := p.check(p.name, value); err != nil {
				return err
			}
		}
	}
	return nil
}

func (s *schema) check(at string, value any) error {
	if !slices.ContainsFunc(s.Type, func(kind string) bool { return isOf(kind, value) }) {
		return problem.Newf(problem.Invalid, "", "%s: expected %s, found %s", at, s.Type, found(value))
	}
	switch v := value.(type) {
	case []any:
		for _, item := range v {
			if err := s.Items.check(at, item); err != nil {
				return err
			}
		}
	case map[string]any:
		for _, key := range slices.Sorted(maps.Keys(v)) {
			if err := s.Values.check(at+"."+key, v[key]); err != nil {
				return err
			}
		}
	}
	return nil
}

// String is how a refusal names the kinds.
func (k kinds) String() string {
	var names []string
	for _, kind := range k {
		switch {
		case kind == "null":
		case strings.ContainsAny(kind[:1], "aio"):
			names = append(names, "an "+kind)
		default:
			names = append(names, "a "+kind)
		}
	}
	return text.Or(names)
}

func isOf(kind string, value any) bool {
	switch v := value.(type) {
	case nil:
		return kind == "null"
	case bool:
		return kind == "boolean"
	case string:
		return kind == "string"
	case float64:
		return kind == "number" || kind == "integer" && v == math.Trunc(v) && math.Abs(v) < 1<<53
	case []any:
		return kind == "array"
	}
	return kind == "object"
}
