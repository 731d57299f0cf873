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

// option is one that a program knows.
type option struct {
	short byte
	kind  int
	set   func(value string) error // nil: it changes nothing here
}

// options are those of a program, by name.
type options map[string]option

// on switches something on, kept keeps a value, and listed adds the parts of one.
func on(short byte, to *bool) option {
	return option{short, bare, func(string) error { *to = true; return nil }}
}

func kept(short byte, to *string) option {
	return option{short, valued, func(value string) error { *to = value; return nil }}
}

func listed(short byte, to *[]string) option {
	return option{short, valued, func(value string) error { *to = append(*to, strings.Split(value, ",")...); return nil }}
}

// refused is an option without which the command would do something else.
func refused(short byte, kind int, why string) option {
	return option{short, kind, func(string) error { return errors.New(why) }}
}

// without refuses an option whose filter berth cannot apply: more jobs would be
// selected than were asked for.
func without(short byte, what string) option {
	return refused(short, valued, "berth has no "+what)
}

// ignore adds options that change nothing here, each as NAME or NAME:LETTER.
func (known options) ignore(kind int, names string) options {
	for word := range strings.FieldsSeq(names) {
		name, letter, _ := strings.Cut(word+":\x00", ":")
		known[name] = option{short: letter[0], kind: kind}
	}
	return known
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
func (known options) parse(args []string, anywhere bool) (words []string, err error) {
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
		if err := o.set(value); err != nil {
			return nil, fmt.Errorf("--%s: %w", name, err)
		}
	}
	return words, nil
}

// alone reads options where no other word is expected.
func (known options) alone(args []string) error {
	words, err := known.parse(args, true)
	if err == nil && len(words) > 0 {
		err = fmt.Errorf("expected only options, found %s", text.Found(words[0]))
	}
	return err
}
