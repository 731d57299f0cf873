package sweep

import (
	"errors"
	"strings"

	"berth/internal/job"
)

// place is where in a shell line a placeholder is.
type place uint8

const (
	bare   place = iota
	single       // in '...'
	double       // in "..."
	// unsure is where the shells differ, or where a value could end what it is in:
	// in $(...), in `...`, behind <<, in a comment. Only a value without a special
	// character goes there.
	unsure
)

// quote makes the shell read the value as it is.
func (p place) quote(value string) (string, error) {
	switch quoted := job.Quote(value); {
	case quoted == value || p == bare:
		return quoted, nil
	case p == single:
		return strings.ReplaceAll(value, "'", `'\''`), nil
	case p == double:
		return strings.NewReplacer(`\`, `\\`, `"`, `\"`, "$", `\$`, "`", "\\`").Replace(value), nil
	}
	return "", errors.New("its value has special characters, and berth cannot quote it there; put the value into a variable (-e VALUE={...}, or env.VALUE in a jobs file) and use \"$VALUE\"")
}

// locate finds the place of each placeholder of a shell line.
func locate(w words) {
	var s shell
	for i := range w {
		s.read(w[i].literal)
		w[i].place = s.place
		switch {
		case s.lost || s.escaped:
			w[i].place = unsure
		case s.place == bare:
			s.word = true
		}
		s.escaped, s.last = false, 'x'
	}
}

// shell follows the quotes of a shell line. It gives up for good at what it does
// not follow.
type shell struct {
	place   place
	lost    bool
	escaped bool // the next character is
	word    bool // it is in a word
	last    byte // the character before, if it is not quoted
}

func (s *shell) read(literal string) {
	for i := 0; i < len(literal) && !s.lost; i++ {
		c, last := literal[i], s.last
		s.last = c
		if s.escaped {
			s.escaped, s.word, s.last = false, true, 0
			continue
		}
		if s.place == single {
			if c == '\'' {
				s.place = bare
			}
			continue
		}
		switch c {
		case '\\':
			s.escaped = true
		case '"':
			s.word = true
			if s.place == double {
				s.place = bare
			} else {
				s.place = double
			}
		case '`':
			s.lost = true
		case '$':
			i += s.dollar(literal[i+1:])
			s.word, s.last = true, 0
		default:
			if s.place == bare {
				s.plain(c, last)
			}
		}
	}
}

// dollar passes a simple $(...) or ${...}, and gives up at others.
func (s *shell) dollar(rest string) int {
	if rest == "" {
		return 0
	}
	closing := byte(0)
	switch rest[0] {
	case '(':
		closing = ')'
	case '{':
		closing = '}'
	case '\'', '"':
		s.lost = s.place == bare // $'...' is not the same in every shell
		return 0
	default:
		return 0
	}
	end := strings.IndexByte(rest, closing)
	if end < 0 || strings.ContainsAny(rest[1:end], "'\"`\\$(){}#<") || strings.Contains(" "+rest[1:end]+" ", " case ") {
		s.lost = true
		return 0
	}
	return end + 1
}

// plain reads a character outside of quotes.
func (s *shell) plain(c, last byte) {
	switch c {
	case '\'':
		s.place, s.word = single, true
	case '#':
		s.lost = !s.word
	case '<':
		s.lost = last == '<'
		s.word = false
	case ' ', '\t', '\n', ';', '&', '|', '(', ')', '>':
		s.word = false
	default:
		s.word = true
	}
}
