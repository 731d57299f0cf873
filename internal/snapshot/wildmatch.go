package snapshot

import "strings"

// wildMatch matches a path as git does: byte by byte, * and ? never match a
// slash, and ** between slashes matches any number of directories.
func wildMatch(pattern, text string) bool {
	for at := 0; at < len(pattern); {
		c := pattern[at]
		if c == '*' {
			return matchStar(pattern, at, text)
		}
		if text == "" {
			return false
		}
		switch c {
		case '?':
			if text[0] == '/' {
				return false
			}
			at++
		case '[':
			next, ok := matchClass(pattern[at:], text[0])
			if !ok {
				return false
			}
			at += next
		case '\\':
			if at++; at == len(pattern) || pattern[at] != text[0] {
				return false
			}
			at++
		default:
			if c != text[0] {
				return false
			}
			at++
		}
		text = text[1:]
	}
	return text == ""
}

// matchStar matches the rest of a pattern from a star on.
func matchStar(pattern string, at int, text string) bool {
	rest := strings.TrimLeft(pattern[at:], "*")
	double := len(pattern)-at-len(rest) > 1
	// Two stars are special only as a whole element of the path.
	double = double && (at == 0 || pattern[at-1] == '/') && (rest == "" || rest[0] == '/' || strings.HasPrefix(rest, `\/`))
	if rest == "" {
		return double || strings.IndexByte(text, '/') < 0
	}
	if double && rest[0] == '/' && wildMatch(rest[1:], text) {
		return true // no directory at all
	}
	for {
		if wildMatch(rest, text) {
			return true
		}
		if text == "" || text[0] == '/' && !double {
			return false
		}
		text = text[1:]
	}
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
