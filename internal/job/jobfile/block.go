package jobfile

import (
	"cmp"
	"errors"
	"fmt"
	"strings"
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
func cutValue(text string) (value, rest string, err error) {
	if text == "" || (text[0] != '"' && text[0] != '\'') {
		end := strings.IndexAny(text, " \t]")
		if end < 0 {
			end = len(text)
		}
		if strings.IndexByte(text[:end], '[') >= 0 {
			return "", "", errors.New("expected quotes around a value with brackets, found [ without them")
		}
		return text[:end], text[end:], nil
	}
	value, rest, closed := unquote(text)
	if !closed {
		return "", "", errors.New("expected a closing quote, found the end of the line (inside \"...\" write \\\" for a quote)")
	}
	if rest != "" && strings.IndexByte(" \t]", rest[0]) < 0 {
		return "", "", errors.New("expected a space or ] after the closing quote, found more text")
	}
	return value, rest, nil
}

// unquote takes a quoted string off the front. In double quotes only \" and
// \\ are escapes; every other backslash stays, because the value may be meant
// for a shell.
func unquote(text string) (value, rest string, closed bool) {
	quote := text[0]
	if quote == '\'' {
		end := strings.IndexByte(text[1:], quote)
		if end < 0 {
			return "", "", false
		}
		return text[1 : 1+end], text[2+end:], true
	}
	var b strings.Builder
	start := 1
	for i := 1; i < len(text); i++ {
		switch {
		case text[i] == '"' && start == 1:
			return text[1:i], text[i+1:], true
		case text[i] == '"':
			b.WriteString(text[start:i])
			return b.String(), text[i+1:], true
		case text[i] == '\\' && i+1 < len(text) && (text[i+1] == '"' || text[i+1] == '\\'):
			b.WriteString(text[start:i])
			i++
			start = i
		}
	}
	return "", "", false
}
