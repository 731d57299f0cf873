package jobfile

import (
	"cmp"
	"errors"
	"fmt"
	"strings"

	"berth/internal/job/sweep"
	"berth/internal/text"
)

const blockHint = "put a value with spaces or brackets in quotes, and write a shell test as \"[ \" or \"[[\""

var errUnclosed = errors.New("expected [key=value ...], found no closing ]; " + blockHint)

// OpensBlock reports whether a trimmed line starts with an attribute block.
// "[ " and "[[" are shell tests and belong to the command.
func OpensBlock(line string) bool {
	return len(line) > 1 && line[0] == '[' && line[1] != ' ' && line[1] != '\t' && line[1] != '['
}

// readBlock reads "[key=value ...]" and returns the rest of the line.
func (a *asking) readBlock(line string) (command string, err error) {
	rest := line[1:]
	for {
		rest = strings.TrimLeft(rest, " \t")
		if rest == "" {
			return "", errUnclosed
		}
		if rest[0] == ']' {
			return strings.TrimLeft(rest[1:], " \t\r"), checkSpec(&a.Spec, a.gpusGiven)
		}
		if end := strings.IndexAny(rest, " \t]"); end > 0 && strings.EqualFold(rest[:end], sweepWord) {
			if rest, err = a.readAxes(rest[end:]); err != nil {
				return "", err
			}
			continue
		}
		var f *Field
		var value string
		if f, value, rest, err = cutPair(rest); err != nil {
			return "", err
		}
		if err := a.put(f.Key, f, cmp.Or(value, f.Alone)); err != nil {
			return "", err
		}
	}
}

// sweepWord begins the parameters of a block: [vram=10G sweep lr=1e-3,1e-4 seed=0-4].
const sweepWord = "sweep"

// readAxes reads parameters up to the end of the block.
func (a *asking) readAxes(rest string) (string, error) {
	for {
		if rest = strings.TrimLeft(rest, " \t"); rest == "" {
			return "", errUnclosed
		}
		if rest[0] == ']' {
			if len(a.axes) == 0 {
				return "", errors.New("expected parameters after sweep, as in [sweep lr=1e-3,1e-4], found none")
			}
			return rest, nil
		}
		name, list, found := strings.Cut(rest, "=")
		if !found || strings.ContainsAny(name, " \t]") {
			return "", fmt.Errorf("expected NAME=VALUE,... after sweep (keys go in front of it), found %s", text.Found(rest))
		}
		rows, after, err := sweep.CutValues(list, " \t]")
		if err != nil {
			return "", fmt.Errorf("sweep: %s: %w", name, err)
		}
		if after != "" && strings.IndexByte(" \t]", after[0]) < 0 {
			return "", fmt.Errorf("sweep: %s: expected a comma, a space or ] after the closing quote, found more text", name)
		}
		a.axes, rest = append(a.axes, sweep.Axis{Names: []string{name}, Rows: rows}), after
	}
}

// cutPair takes the next key off the front, with its value unless it is bare.
func cutPair(text string) (f *Field, value, rest string, err error) {
	end := strings.IndexAny(text, "= \t]")
	if end < 0 {
		return f, "", "", errUnclosed
	}
	key, rest := text[:end], text[end:]
	bare := rest[0] != '='
	f, err = lookupInFile(key)
	switch {
	case key == "":
		return f, "", "", errors.New("expected key=value without spaces around the =, found = without a key")
	case err != nil && !strings.Contains(rest, "]"):
		return f, "", "", errUnclosed // the unknown key is a word of the command
	case err != nil && bare:
		return f, "", "", fmt.Errorf("%w; %s", err, blockHint)
	case err != nil:
		return f, "", "", err
	case bare && f.Alone == "":
		return f, "", "", fmt.Errorf("%s: expected %s=VALUE without spaces around the =, found no value", f.Key, f.Key)
	case bare:
		return f, "", rest, nil
	}
	if value, rest, err = cutValue(rest[1:]); err != nil {
		return f, "", "", fmt.Errorf("%s: %w", f.Key, err)
	}
	return f, value, rest, nil
}

// cutValue takes a value: quoted, or plain up to a space or the closing
// bracket. Only a quote at the start counts, so that ann's is plain.
func cutValue(written string) (value, rest string, err error) {
	if written == "" || (written[0] != '"' && written[0] != '\'') {
		end := strings.IndexAny(written, " \t]")
		if end < 0 {
			end = len(written)
		}
		if strings.IndexByte(written[:end], '[') >= 0 {
			return "", "", errors.New("expected quotes around a value with brackets, found [ without them")
		}
		return written[:end], written[end:], nil
	}
	value, rest, closed := text.Unquote(written)
	if !closed {
		return "", "", errors.New("expected a closing quote, found the end of the line (inside \"...\" write \\\" for a quote)")
	}
	if rest != "" && strings.IndexByte(" \t]", rest[0]) < 0 {
		return "", "", errors.New("expected a space or ] after the closing quote, found more text")
	}
	return value, rest, nil
}
