package text

import (
	"fmt"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// shown reports whether a character may be printed within a line.
func shown(r rune) bool { return unicode.IsPrint(r) }

// Line makes text safe to print within a line: characters that could control the
// terminal, end the line or be invisible become U+FFFD.
func Line(s string) string {
	return strings.Map(func(r rune) rune {
		if shown(r) {
			return r
		}
		return unicode.ReplacementChar
	}, s)
}

// Words is Line for text of several lines: each run of white space becomes one
// space.
func Words(s string) string { return Line(strings.Join(strings.Fields(s), " ")) }

// saidBytes bounds how much of another program's message is shown.
const saidBytes = 256

// Said is Line for a message of another program: its first 256 bytes.
func Said(s string) string { return Clip(Line(Clip(s, saidBytes)), saidBytes) }

// Escape makes text of one or more lines safe to print: characters that Line
// would replace are shown as escapes.
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

// Clip cuts a text to a number of bytes, in whole characters.
func Clip(s string, bytes int) string {
	if len(s) <= bytes {
		return s
	}
	for bytes > 0 && !utf8.RuneStart(s[bytes]) {
		bytes--
	}
	return s[:bytes]
}

// Quote shows user input in quotes, safe to print and cut to a length.
func Quote(s string, bytes int) string {
	if len(s) <= bytes {
		return strconv.Quote(s)
	}
	return strconv.Quote(Clip(s, bytes)) + "…"
}

// Found shows a value in an error message.
func Found(s string) string {
	const most = 60
	if s == "" {
		return "nothing"
	}
	return Quote(s, most)
}

// Mismatch is the error for a bad value.
func Mismatch(found, expected string) error {
	return fmt.Errorf("expected %s, found %s", expected, Found(found))
}

// Complaint formats a problem, of one or more lines, and its hint.
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
