package predict

import "strings"

// digits are what numbers are made of, including "#", which replaces them.
const digits = "0123456789#"

// joints join two numbers into one thing: 0.1, 2026-11-15, 10:30, 0,1,2, 17_3.
const joints = "-_.:,+%"

// words writes text without its numbers.
func (n *normaliser) words(text string) {
	start := len(n.out)
	for i := 0; i < len(text); {
		if !isWord(text[i]) {
			n.out = append(n.out, text[i])
			i++
			continue
		}
		end := i + 1
		for end < len(text) && isWord(text[end]) {
			end++
		}
		if isUUID(text[i:]) {
			end = i + uuidLength
			n.number(start)
		} else if isNumber(text[i:end]) {
			n.number(start)
		} else {
			n.mixed(text[i:end])
		}
		i = end
	}
}

// mixed writes a word with digits in it, such as run17.
func (n *normaliser) mixed(word string) {
	for i := range len(word) {
		if !isDigit(word[i]) {
			n.out = append(n.out, word[i])
		} else if i == 0 || !isDigit(word[i-1]) {
			n.out = append(n.out, '#')
		}
	}
}

// number writes a word that is a number, merged with the number it is joined to.
func (n *normaliser) number(start int) {
	for {
		cut := joined(n.out[start:])
		if cut < 0 {
			break
		}
		n.out = n.out[:start+cut]
	}
	n.out = append(n.out, '#')
}

// joined is the start of the number that a number written next continues, or -1:
// after "#-", after "#e-", and after a leading ".". Before an exponent the number
// must be a word of its own; otherwise "1e2e-3" would change again when
// normalised twice.
func joined(written []byte) int {
	last := len(written) - 1
	switch {
	case last < 0:
		return -1
	case last == 0 && written[0] == '.':
		return 0
	case last == 0 || strings.IndexByte(joints, written[last]) < 0:
		return -1
	case written[last-1] == '#':
		return last - 1
	case last == 1 || (written[last] != '-' && written[last] != '+') || written[last-1]|0x20 != 'e':
		return -1
	case written[last-2] == '#' && (last == 2 || !isWord(written[last-3])):
		return last - 2
	}
	return -1
}

// The shortest hash is git's abbreviated commit. Three separate numbers in one
// word, as in 3k9x2lq1 or 1h30m20s, are an id or a duration, not a name.
const (
	shortestHash     = 7
	shortestIdentity = 6
	identityNumbers  = 3
)

// isNumber reports whether a word is a number or a hash: 17, 3e4, 0x1f, 9fceb02d.
func isNumber(word string) bool {
	if len(word) > 2 && word[0] == '0' && word[1]|0x20 == 'x' && allHex(word[2:]) {
		return true
	}
	numbers, others, exponents := 0, 0, 0
	for i := range len(word) {
		switch {
		case !isDigit(word[i]):
			others++
			if word[i]|0x20 == 'e' && i > 0 && i < len(word)-1 {
				exponents++
			}
		case i == 0 || !isDigit(word[i-1]):
			numbers++
		}
	}
	switch {
	case numbers == 0:
		return false
	case others == 0:
		return true
	case others == 1 && exponents == 1:
		return true
	case len(word) >= shortestIdentity && numbers >= identityNumbers:
		return true
	}
	return len(word) >= shortestHash && allHex(word)
}

const uuidLength = 36

// isUUID reports whether the first word of a text is a UUID.
func isUUID(text string) bool {
	if len(text) < uuidLength || (len(text) > uuidLength && isWord(text[uuidLength])) {
		return false
	}
	for i := range uuidLength {
		dash := i == 8 || i == 13 || i == 18 || i == 23
		if dash != (text[i] == '-') || (!dash && !isHex(text[i])) {
			return false
		}
	}
	return true
}

func allHex(word string) bool {
	for i := range len(word) {
		if !isHex(word[i]) {
			return false
		}
	}
	return true
}

func isHex(c byte) bool {
	return isDigit(c) || (c|0x20 >= 'a' && c|0x20 <= 'f')
}

func isDigit(c byte) bool { return (c >= '0' && c <= '9') || c == '#' }

func isLetter(c byte) bool { return c|0x20 >= 'a' && c|0x20 <= 'z' }

// isWord counts every byte beyond ASCII as a letter, so that no character is
// split.
func isWord(c byte) bool { return isLetter(c) || isDigit(c) || c >= 0x80 }
