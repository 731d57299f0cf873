package slurm

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"berth/internal/text"
)

// Values of option.kind.
const (
	bare     = iota // takes no value
	optional        // takes one after = only
	valued
)

// option is one that a program knows. T is what its options fill in.
type option[T any] struct {
	short byte
	kind  int
	set   func(*T, string) error // nil: it changes nothing here
}

// on switches something on, kept keeps a value, and listed adds the parts of one.
func on[T any](short byte, to func(*T) *bool) option[T] {
	return option[T]{short, bare, func(t *T, _ string) error { *to(t) = true; return nil }}
}

func kept[T any](short byte, to func(*T) *string) option[T] {
	return option[T]{short, valued, func(t *T, value string) error { *to(t) = value; return nil }}
}

func listed[T any](short byte, to func(*T) *[]string) option[T] {
	return option[T]{short, valued, func(t *T, value string) error {
		*to(t) = append(*to(t), strings.Split(value, ",")...)
		return nil
	}}
}

// without refuses an option whose filter berth cannot apply: more jobs would be
// selected than were asked for.
func without[T any](short byte, what string) option[T] {
	return option[T]{short, valued, func(*T, string) error { return errors.New("berth has no " + what) }}
}

// among reports whether one of the words is in a list that was asked for; an empty
// list has all of them.
func among(list []string, words ...string) bool {
	return len(list) == 0 || slices.ContainsFunc(list, func(one string) bool {
		return slices.ContainsFunc(words, func(word string) bool { return strings.EqualFold(one, word) })
	})
}

// parse reads options as getopt does, and returns the other words. The first of
// them ends the options, unless they may stand anywhere.
func parse[T any](args []string, known map[string]option[T], to *T, anywhere bool) (words []string, err error) {
	long := func(short byte) string {
		for name, o := range known {
			if o.short == short {
				return name
			}
		}
		return ""
	}
	for len(args) > 0 {
		word := args[0]
		name, value, attached := "", "", false
		switch {
		case word == "--":
			return append(words, args[1:]...), nil
		case strings.HasPrefix(word, "--"):
			name, value, attached = strings.Cut(word[2:], "=")
		case len(word) > 1 && word[0] == '-':
			name, value, attached = long(word[1]), strings.TrimPrefix(word[2:], "="), len(word) > 2
		case anywhere:
			words, args = append(words, word), args[1:]
			continue
		default:
			return args, nil
		}
		o, isKnown := known[name]
		args = args[1:]
		switch {
		case !isKnown || attached && o.kind == bare && word[1] == '-':
			return nil, fmt.Errorf("unknown option %s", text.Found(word))
		case attached && o.kind == bare:
			args = append([]string{"-" + value}, args...) // -lu is -l -u
			value = ""
		case !attached && o.kind == valued && len(args) == 0:
			return nil, fmt.Errorf("%s: expected a value, found none", word)
		case !attached && o.kind == valued:
			value, args = args[0], args[1:]
		}
		if o.set == nil {
			continue
		}
		if err := o.set(to, value); err != nil {
			return nil, fmt.Errorf("--%s: %w", name, err)
		}
	}
	return words, nil
}
