package snapshot

import "strings"

// pattern is a pattern as steps, each of which matches one byte, or any number of
// them if it is a star.
type pattern []step

type step struct {
	kind  byte   // one of those below
	class string // of inClass: the class, and whatever follows it
	byte  byte   // of plainByte
}

const (
	plainByte  = 'b'
	anyByte    = '?' // but no slash
	inClass    = '['
	star       = '*' // without a slash
	doubleStar = 'D' // with slashes
	noByte     = '!' // nothing matches from here on
)

// parsePattern reads a pattern of git's: byte by byte, * and ? never match a slash,
// and ** between slashes matches any number of directories.
func parsePattern(text string) (p pattern) {
	for at := 0; at < len(text); {
		switch c := text[at]; c {
		case '*':
			rest := strings.TrimLeft(text[at:], "*")
			end := len(text) - len(rest)
			kind := byte(star)
			// Two stars are special only as a whole element of the path.
			if end-at > 1 && (at == 0 || text[at-1] == '/') && (rest == "" || rest[0] == '/' || strings.HasPrefix(rest, `\/`)) {
				kind = doubleStar
			}
			p, at = append(p, step{kind: kind}), end
		case '?':
			p, at = append(p, step{kind: anyByte}), at+1
		case '[':
			length, _ := matchClass(text[at:], 0)
			if length == 0 {
				return append(p, step{kind: noByte})
			}
			p, at = append(p, step{kind: inClass, class: text[at : at+length]}), at+length
		case '\\':
			if at+1 == len(text) {
				return append(p, step{kind: noByte})
			}
			p, at = append(p, step{kind: plainByte, byte: text[at+1], class: `\`}), at+2
		default:
			p, at = append(p, step{kind: plainByte, byte: c}), at+1
		}
	}
	return p
}

// match follows all ways through the pattern at once, so that the time it takes is
// bounded by the length of the pattern times that of the text.
func (p pattern) match(text string) bool {
	now, next := make([]mark, len(p)+1), make([]mark, len(p)+1)
	p.enter(now, 0)
	for i := range len(text) {
		alive := false
		for at := range p {
			if now[at] == absent || !p[at].takes(text[i]) {
				continue
			}
			alive = true
			if kind := p[at].kind; kind == star || kind == doubleStar {
				next[at] = max(next[at], amid)
			}
			p.enter(next, at+1)
		}
		if !alive {
			return false
		}
		now, next = next, now
		clear(next)
	}
	return now[len(p)] != absent
}

// mark says whether a step is reached: not, in the middle of a star, or at its
// beginning too.
type mark byte

const (
	absent mark = iota
	amid
	entered
)

// enter marks a step as entered, and those behind it that need no byte before them.
func (p pattern) enter(reached []mark, at int) {
	for ; reached[at] != entered; at++ {
		reached[at] = entered
		if at == len(p) || p[at].kind != star && p[at].kind != doubleStar {
			return
		}
		if next := at + 1; p[at].kind == doubleStar && next < len(p) && p[next] == (step{kind: plainByte, byte: '/'}) {
			p.enter(reached, next+1) // no directory at all
		}
	}
}

// takes reports whether a step matches a byte.
func (s *step) takes(c byte) bool {
	switch s.kind {
	case plainByte:
		return c == s.byte
	case anyByte, star:
		return c != '/'
	case inClass:
		_, ok := matchClass(s.class, c)
		return ok
	case doubleStar:
		return true
	}
	return false
}

// classes are the named classes of bytes.
var classes = map[string]func(c byte) bool{
	"alnum":  func(c byte) bool { return isAlpha(c) || isDigit(c) },
	"alpha":  isAlpha,
	"blank":  func(c byte) bool { return c == ' ' || c == '\t' },
	"cntrl":  func(c byte) bool { return c < ' ' || c == 127 },
	"digit":  isDigit,
	"graph":  func(c byte) bool { return c > ' ' && c < 127 },
	"lower":  func(c byte) bool { return c >= 'a' && c <= 'z' },
	"print":  func(c byte) bool { return c >= ' ' && c < 127 },
	"punct":  func(c byte) bool { return c > ' ' && c < 127 && !isAlpha(c) && !isDigit(c) },
	"space":  func(c byte) bool { return c == ' ' || c >= '\t' && c <= '\r' },
	"upper":  func(c byte) bool { return c >= 'A' && c <= 'Z' },
	"xdigit": func(c byte) bool { return isDigit(c) || c >= 'a' && c <= 'f' || c >= 'A' && c <= 'F' },
}

func isAlpha(c byte) bool { return c|0x20 >= 'a' && c|0x20 <= 'z' }
func isDigit(c byte) bool { return c >= '0' && c <= '9' }

// matchClass matches one byte with the class at the beginning of a pattern, and
// returns the length of the class. A class without its end matches nothing.
func matchClass(pattern string, c byte) (length int, ok bool) {
	at, negated := 1, false
	if at < len(pattern) && (pattern[at] == '!' || pattern[at] == '^') {
		at, negated = at+1, true
	}
	matched, previous := false, -1
	for first := true; ; first = false {
		if at >= len(pattern) {
			return 0, false
		}
		p := pattern[at]
		switch {
		case p == ']' && !first:
			return at + 1, matched != negated && c != '/'
		case p == '\\':
			if at++; at >= len(pattern) {
				return 0, false
			}
			matched = matched || c == pattern[at]
			previous = int(pattern[at])
		case p == '-' && previous >= 0 && at+1 < len(pattern) && pattern[at+1] != ']':
			if at++; pattern[at] == '\\' {
				if at++; at >= len(pattern) {
					return 0, false
				}
			}
			matched = matched || int(c) >= previous && c <= pattern[at]
			previous = -1
		case p == '[' && at+1 < len(pattern) && pattern[at+1] == ':':
			end := strings.IndexByte(pattern[at+2:], ']')
			if end < 0 {
				return 0, false
			}
			name, named := strings.CutSuffix(pattern[at+2:at+2+end], ":")
			if !named || end == 0 { // a literal [
				matched = matched || c == '['
				previous = int('[')
				break
			}
			is := classes[name]
			if is == nil {
				return 0, false
			}
			matched = matched || is(c)
			at, previous = at+2+end, -1
		default:
			matched = matched || c == p
			previous = int(p)
		}
		at++
	}
}
