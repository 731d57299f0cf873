package jobfile

import (
	"fmt"
	"strings"

	"berth/internal/text"
)

// givenFlag is one flag of submit on a #BERTH line.
type givenFlag struct {
	name  string // as it was written: --time, -t
	field *Field
	pair  Pair
}

// flagNames are the long flags, with their dashes.
func flagNames() []string {
	var names []string
	for _, f := range fields {
		if f.Where != FileOnly {
			names = append(names, "--"+f.FlagName())
		}
	}
	return names
}

// CutFlag takes a flag of submit and its value off the front.
func CutFlag(words []string) (pair Pair, rest []string, err error) {
	f, rest, err := cutFlag(words)
	return f.pair, rest, err
}

// cutFlag takes a flag and its value off the front: --flag value, --flag=value,
// -f value or -fvalue. A flag that needs no value takes one only after =, so
// that it never swallows the next word.
func cutFlag(words []string) (f givenFlag, rest []string, err error) {
	word, rest := words[0], words[1:]
	var value string
	var attached bool
	switch {
	case len(word) > 2 && strings.HasPrefix(word, "--"):
		f.name, value, attached = strings.Cut(word, "=")
		f.field, err = longFlag(f.name)
	case len(word) > 1 && word[0] == '-' && word[1] != '-':
		f.name, value, attached = word[:2], strings.TrimPrefix(word[2:], "="), len(word) > 2
		f.field, err = shortFlag(word[1])
	default:
		err = fmt.Errorf("expected a flag of submit, found %s (put a value with spaces in quotes; a flag that needs no value takes one only after =)", text.Found(word))
	}
	switch {
	case err != nil:
		return f, nil, err
	case attached:
		f.pair = Pair{Key: f.field.Key, Value: value}
	case f.field.Alone != "":
		f.pair = Pair{Key: f.field.Key, Value: f.field.Alone}
	case len(rest) == 0:
		return f, nil, fmt.Errorf("%s: expected %s VALUE, found no value", f.name, f.name)
	default:
		f.pair, rest = Pair{Key: f.field.Key, Value: rest[0]}, rest[1:]
	}
	return f, rest, nil
}

func longFlag(name string) (*Field, error) {
	if f, err := Lookup(strings.TrimPrefix(name, "--")); err == nil && !strings.HasPrefix(f.Key, envPrefix) {
		return f, nil
	}
	return nil, fmt.Errorf("unknown flag %s%s; the flags are %s", text.Found(name), meant(name, flagNames()), strings.Join(flagNames(), " "))
}

func shortFlag(letter byte) (*Field, error) {
	var known []string
	for _, f := range fields {
		if f.Short == string(rune(letter)) {
			return f, nil
		}
		if f.Short != "" {
			known = append(known, "-"+f.Short)
		}
	}
	return nil, fmt.Errorf("unknown flag %s; the short flags are %s", text.Found("-"+string(rune(letter))), strings.Join(known, " "))
}
