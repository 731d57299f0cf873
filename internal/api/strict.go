package api

import (
	"encoding/json"
	"io"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"berth/internal/text/problem"
)

// strictJSON passes on a body and refuses what the decoder would quietly change:
// bytes that are not UTF-8 and halves of surrogate pairs, which would become
// U+FFFD, and a second value for a key, which would replace the first. Any other
// mistake is left to the decoder.
type strictJSON struct {
	from io.Reader

	open   []object // the objects and arrays around the next byte
	quoted bool     // inside a string
	escape bool     // after a backslash
	plain  bool     // the string has had no escape so far
	text   []byte   // the string so far, as written
	rune   []byte   // the bytes of a character that is not complete yet
}

// object is an object or array that has not ended. Keys of berth's own objects
// are compared without case, because the decoder matches them so.
type object struct {
	array bool
	exact bool            // its keys are names that a user chose
	wants bool            // the next string is a key
	few   []string        // its keys
	many  map[string]bool // the same, where there are too many to compare each
}

func (s *strictJSON) Read(p []byte) (int, error) {
	n, err := s.from.Read(p)
	for rest := p[:n]; len(rest) > 0; rest = rest[1:] {
		if s.quoted && !s.escape && len(s.rune) == 0 {
			plain := 0 // most of a request is in strings
			for plain < len(rest) && rest[plain] != '"' && rest[plain] != '\\' && rest[plain] < utf8.RuneSelf {
				plain++
			}
			s.text = append(s.text, rest[:plain]...)
			if rest = rest[plain:]; len(rest) == 0 {
				break
			}
		}
		if refused := s.feed(rest[0]); refused != nil {
			return 0, refused
		}
	}
	return n, err
}

func (s *strictJSON) feed(b byte) error {
	if b >= utf8.RuneSelf || len(s.rune) > 0 {
		if s.rune = append(s.rune, b); !utf8.FullRune(s.rune) {
			s.append(b)
			return nil
		}
		if r, size := utf8.DecodeRune(s.rune); r == utf8.RuneError && size <= 1 {
			return problem.Newf(problem.Invalid, "send it as UTF-8", "expected UTF-8, found the byte 0x%02x", s.rune[0])
		}
		s.rune = s.rune[:0]
		s.append(b)
		return nil
	}
	switch {
	case s.quoted && s.escape:
		s.escape = false
	case s.quoted && b == '\\':
		s.escape, s.plain = true, false
	case s.quoted && b == '"':
		s.quoted = false
		return s.endString()
	case s.quoted:
	default:
		s.structure(b)
		return nil
	}
	s.append(b)
	return nil
}

// append keeps a byte of a string. A string without an escape matters only if it
// is a key.
func (s *strictJSON) append(b byte) {
	if s.quoted {
		s.text = append(s.text, b)
	}
}

func (s *strictJSON) structure(b byte) {
	switch b {
	case '"':
		s.quoted, s.plain, s.text = true, true, s.text[:0]
	case '{':
		around := s.inside()
		exact := around != nil && len(around.few) > 0 && around.few[len(around.few)-1] == "env"
		s.push(object{exact: exact, wants: true})
	case '[':
		s.push(object{array: true})
	case '}', ']':
		if len(s.open) > 0 {
			s.open = s.open[:len(s.open)-1]
		}
	case ',':
		if in := s.inside(); in != nil {
			in.wants = true
		}
	}
}

// push enters an object or array, and uses the space of one that has ended.
func (s *strictJSON) push(o object) {
	if n := len(s.open); n < cap(s.open) {
		o.few = s.open[:n+1][n].few[:0]
	}
	s.open = append(s.open, o)
}

// inside is the object around the next byte; nil in an array and at the top.
func (s *strictJSON) inside() *object {
	if len(s.open) == 0 || s.open[len(s.open)-1].array {
		return nil
	}
	return &s.open[len(s.open)-1]
}

func (s *strictJSON) endString() error {
	in := s.inside()
	isKey := in != nil && in.wants
	switch {
	case !s.plain && halfPair(s.text):
		return problem.Newf(problem.Invalid, "send such a character as UTF-8", "expected a whole character, found half of a surrogate pair in %s", quoted(string(s.text)))
	case !isKey:
		return nil
	}
	in.wants = false
	key := in.before(s.text)
	if !s.plain {
		var unescaped string // of its own, because it goes to the heap
		if json.Unmarshal([]byte(`"`+key+`"`), &unescaped) != nil {
			return nil // the decoder will say so
		}
		key = unescaped
	}
	if !in.add(key) {
		return problem.Newf(problem.Invalid, "", "expected the key %s once, found it twice", quoted(key))
	}
	return nil
}

// before is a key as text: the one that the last such object had in this place, if it
// is the same.
func (o *object) before(key []byte) string {
	if n := len(o.few); n < cap(o.few) && o.few[:n+1][n] == string(key) {
		return o.few[:n+1][n]
	}
	return string(key)
}

// fewKeys is how many keys are compared one by one.
const fewKeys = 16

// add reports whether a key is new.
func (o *object) add(key string) bool {
	if !o.exact {
		key = strings.Map(folded, key)
	}
	if o.many == nil && len(o.few) == fewKeys {
		o.many = map[string]bool{}
		for _, k := range o.few {
			o.many[k] = true
		}
	}
	if o.many[key] || o.many == nil && slices.Contains(o.few, key) {
		return false
	}
	if o.few = append(o.few, key); o.many != nil {
		o.many[key] = true
	}
	return true
}

// folded is the same for all letters that differ in case only.
func folded(r rune) rune {
	if r >= 'a' && r <= 'z' || r == '_' {
		return r // the usual ones
	}
	least := r
	for next := unicode.SimpleFold(r); next != r; next = unicode.SimpleFold(next) {
		least = min(least, next)
	}
	return unicode.ToLower(least)
}

// halfPair reports whether a string, as written, has an escape such as \ud800
// without its other half.
func halfPair(written []byte) bool {
	for i := 0; i+1 < len(written); i++ {
		if written[i] != '\\' {
			continue
		}
		if written[i+1] != 'u' {
			i++
			continue
		}
		switch first := hexAt(written, i); {
		case first >= 0xdc00 && first < 0xe000:
			return true
		case first >= 0xd800 && first < 0xdc00:
			second := hexAt(written, i+6)
			if second < 0xdc00 || second >= 0xe000 {
				return true
			}
			i += 6
		}
		i += 5
	}
	return false
}

// hexAt is the number of an escape \uXXXX at i, or -1.
func hexAt(written []byte, i int) int {
	if i+6 > len(written) || written[i] != '\\' || written[i+1] != 'u' {
		return -1
	}
	n := 0
	for _, b := range written[i+2 : i+6] {
		digit := strings.IndexByte("0123456789abcdef", b|0x20)
		if digit < 0 {
			return -1
		}
		n = n<<4 | digit
	}
	return n
}
