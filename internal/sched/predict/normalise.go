package predict

import (
	"bytes"
	"strings"
)

// mostCommand is the longest normalised command, in bytes. A longer one becomes
// its first words and a checksum.
const mostCommand = 512

// Normalise removes from a command what varies between runs of the same work:
// numbers, seeds, hashes, dates, directories of runs, quotes. Commands that come
// out equal are treated as the same work. A number becomes "#". Normalising is
// idempotent: "#" reads as a digit.
func Normalise(command string) string {
	n := normaliser{out: make([]byte, 0, min(len(command), 2*mostCommand))}
	token := make([]byte, 0, 64)
	for i := 0; i <= len(command); i++ {
		switch {
		case i == len(command) || command[i] <= ' ' || command[i] == 0x7f:
			if len(token) > 0 {
				n.token(string(token))
				token = token[:0]
			}
		case command[i] == '\'' || command[i] == '"' || command[i] == '\\' || command[i] == '`':
		default:
			token = append(token, command[i])
		}
	}
	return bounded(string(n.out))
}

// bounded shortens a long text to its first words and a checksum of all of it.
// The checksum looks like a flag of letters, so that normalising again neither
// takes it for a value nor finds a number in it.
func bounded(text string) string {
	if len(text) <= mostCommand {
		return text
	}
	word := []byte("-")
	for bits, i := checksum(text), 0; i < 16; i++ {
		word = append(word, 'g'+byte(bits>>(4*i)&15))
	}
	head := text[:mostCommand-len(word)]
	return head[:strings.LastIndexByte(head, ' ')+1] + string(word)
}

// checksum is FNV-1a: fast and the same everywhere. It does not prevent forged
// collisions, which would only spoil that user's own estimates.
func checksum(text string) uint64 {
	sum := uint64(14695981039346656037)
	for i := range len(text) {
		sum = (sum ^ uint64(text[i])) * 1099511628211
	}
	return sum
}

// normaliser writes the tokens of a command one by one.
type normaliser struct {
	out  []byte
	flag kind // of the previous flag, whose value the next token may be
}

// token writes one token: the value of the previous flag, or a token of its own.
func (n *normaliser) token(raw string) {
	if len(n.out) > 0 {
		n.out = append(n.out, ' ')
	}
	of := n.flag
	n.flag = plain
	if looksLikeFlag(raw) {
		of = plain
	}
	n.valueOf(of, raw, true)
}

// standalone writes a token that is not the value of a flag: a flag, perhaps with
// =value, a path, or words.
func (n *normaliser) standalone(raw string) {
	dashes := leadingDashes(raw)
	rest := raw[dashes:]
	equals, slash := strings.IndexByte(rest, '='), strings.IndexByte(rest, '/')
	if equals < 0 || (slash >= 0 && slash < equals) {
		n.value(raw)
		if dashes > 0 {
			n.flag = kindOf(rest)
		}
		return
	}
	n.out = append(n.out, raw[:dashes]...)
	n.words(rest[:equals])
	n.out = append(n.out, '=')
	n.valueOf(kindOf(rest[:equals]), rest[equals+1:], false)
}

// valueOf writes the value of a flag, which is a token of its own or follows an
// equals sign. A script is never a value: it is what runs.
func (n *normaliser) valueOf(of kind, value string, token bool) {
	start := len(n.out)
	if of == telling && isName(value) && !isScript(value) {
		n.out = append(n.out, value...)
		return
	}
	if token {
		n.standalone(value)
	} else {
		n.value(value)
	}
	if isScript(value) {
		return
	}
	// Look for a number in the output, not the input, so that normalising again
	// gives the same result.
	if of == naming || (of == numbered && bytes.ContainsAny(n.out[start:], digits)) {
		n.out = append(n.out[:start], '#')
	}
}

// value writes a token of its own or a value after an equals sign: a path or
// words. The sign of a number is removed with the number.
func (n *normaliser) value(raw string) {
	dashes := leadingDashes(raw)
	start := len(n.out)
	n.out = append(n.out, raw[:dashes]...)
	rest := raw[dashes:]
	if strings.IndexByte(rest, '/') >= 0 {
		n.path(rest, dashes > 0)
		return
	}
	n.words(rest)
	if dashes > 0 && string(n.out[start+dashes:]) == "#" {
		n.out = append(n.out[:start], '#')
	}
}

// mostDirectories is how many directories of a path are kept:
// "project/src/train.py" identifies a project; the rest differs between machines.
const mostDirectories = 2

// path writes the last part of a path and the directories above it, up to one
// with a number in its name, which belongs to a run. A leading slash is added if
// the result would not read as a path.
func (n *normaliser) path(raw string, flagged bool) {
	var kept [mostDirectories + 1]string // the last part first
	count := 0
	for count < len(kept) {
		part, more := "", false
		raw, part, more = cutLast(raw)
		if part != "" {
			if count > 0 && strings.ContainsAny(part, digits+"=") {
				break
			}
			kept[count] = part
			count++
		}
		if !more {
			break
		}
	}
	if flagged || count == 0 || (count == 1 && strings.IndexByte(kept[0], '=') >= 0) {
		n.out = append(n.out, '/')
	}
	for i := count - 1; i > 0; i-- {
		n.out = append(append(n.out, kept[i]...), '/')
	}
	if count > 0 {
		n.words(kept[0])
	}
}

// cutLast takes the last part off a path; it is empty for ".", ".." and "~".
func cutLast(path string) (rest, part string, more bool) {
	slash := strings.LastIndexByte(path, '/')
	part = path[slash+1:]
	part = part[leadingDashes(part):]
	if part == "." || part == ".." || part == "~" {
		part = ""
	}
	return path[:max(slash, 0)], part, slash >= 0
}

func leadingDashes(s string) int {
	return len(s) - len(strings.TrimLeft(s, "-"))
}

// looksLikeFlag distinguishes "-x" and "--x" from signed numbers such as "-3" and
// "-.5".
func looksLikeFlag(s string) bool {
	if len(s) < 2 || s[0] != '-' || s[1] == '.' || isDigit(s[1]) {
		return false
	}
	word := s[1:]
	end := 0
	for end < len(word) && isWord(word[end]) {
		end++
	}
	return !isNumber(word[:end]) && !isUUID(word)
}
