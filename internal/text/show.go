package text

import (
	"fmt"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// shown reports whether a character may stand within a line.
func shown(r rune) bool { return unicode.IsPrint(r) }

// Line makes text safe to print within a line: what could drive a terminal,
// end the line or hide in it becomes U+FFFD.
func Line(s string) string {
	return strings.Map(func(r rune) rune {
		if shown(r) {
			return r
		}
		return unicode.ReplacementChar
	}, s)
}

// Words is Line for text that may come in several lines: each stretch of white
// space becomes one blank.
func Words(s string) string { return Line(strings.Join(strings.Fields(s), " ")) }

// saidBytes bounds what is shown of another program's words.
const saidBytes = 256

// Said is Line for what another program or a stranger said, of whatever length:
// its first 256 bytes.
func Said(s string) string { return Clip(Line(Clip(s, saidBytes)), saidBytes) }

// Escape makes text of one or more lines safe to print, and lets the reader see
// what was in it: what Line would replace is shown as an escape.
func Escape(s string) string {
	hidden := func(r rune) bool { return r != '\n' && !shown(r) }
	if strings.IndexFunc(s, hidden) < 0 && utf8.ValidString(s) {
		return s
	}
	var b strings.Builder
	for _, r := range s {
		if hidden(r) {
			b.WriteString(strings.Trim(strconv.QuoteRuneToASCII(r), "'"))
		} else {
			b.WriteRune(r)
		}
	}
	return b.String()
}

// Clip is as much of a text as fits into a number of bytes, in whole characters.
func Clip(s string, bytes int) string {
	if len(s) <= bytes {
		return s
	}
	for bytes > 0 && !utf8.RuneStart(s[bytes]) {
		bytes--
	}
	return s[:bytes]
}

// Quote shows what somebody wrote, in quotes, safe to print, and cut short so
// that it cannot fill the screen.
func Quote(s string, bytes int) string {
	if len(s) <= bytes {
		return strconv.Quote(s)
	}
	return strconv.Quote(Clip(s, bytes)) + "…"
}

// Found is a value as the user wrote it, for a complaint about it.
func Found(s string) string {
	const most = 60
	if s == "" {
		return "nothing"
	}
	return Quote(s, most)
}

// Mismatch is the shape of every complaint about a value.
func Mismatch(found, expected string) error {
	return fmt.Errorf("expected %s, found %s", expected, Found(found))
}

// Complaint is what a program says of a problem: what is wrong, on as many lines
// as that has, and what to do next.
func Complaint(program, what, hint string) string {
	var b strings.Builder
	for line := range strings.SplitSeq(strings.TrimRight(what, "\n"), "\n") {
		fmt.Fprintf(&b, "%s: %s\n", program, Line(line))
	}
	if hint != "" {
		fmt.Fprintf(&b, "hint: %s\n", Line(hint))
	}
	return b.String()
}
