package text

import (
	"strings"
	"unicode"
)

// wide are the characters that take two columns of a terminal: East Asian scripts
// and emoji (W and F of Unicode's East Asian Width). A live view must know where
// a line wraps.
var wide = &unicode.RangeTable{
	R16: []unicode.Range16{
		{0x1100, 0x115f, 1}, {0x231a, 0x231b, 1}, {0x2329, 0x232a, 1}, {0x23e9, 0x23ec, 1},
		{0x23f0, 0x23f0, 1}, {0x23f3, 0x23f3, 1}, {0x25fd, 0x25fe, 1}, {0x2614, 0x2615, 1},
		{0x2648, 0x2653, 1}, {0x267f, 0x267f, 1}, {0x2693, 0x2693, 1}, {0x26a1, 0x26a1, 1},
		{0x26aa, 0x26ab, 1}, {0x26bd, 0x26be, 1}, {0x26c4, 0x26c5, 1}, {0x26ce, 0x26ce, 1},
		{0x26d4, 0x26d4, 1}, {0x26ea, 0x26ea, 1}, {0x26f2, 0x26f3, 1}, {0x26f5, 0x26f5, 1},
		{0x26fa, 0x26fa, 1}, {0x26fd, 0x26fd, 1}, {0x2705, 0x2705, 1}, {0x270a, 0x270b, 1},
		{0x2728, 0x2728, 1}, {0x274c, 0x274c, 1}, {0x274e, 0x274e, 1}, {0x2753, 0x2755, 1},
		{0x2757, 0x2757, 1}, {0x2795, 0x2797, 1}, {0x27b0, 0x27b0, 1}, {0x27bf, 0x27bf, 1},
		{0x2b1b, 0x2b1c, 1}, {0x2b50, 0x2b50, 1}, {0x2b55, 0x2b55, 1}, {0x2e80, 0x303e, 1},
		{0x3041, 0xa4cf, 1}, {0xa960, 0xa97c, 1}, {0xac00, 0xd7a3, 1}, {0xf900, 0xfaff, 1},
		{0xfe10, 0xfe19, 1}, {0xfe30, 0xfe6f, 1}, {0xff00, 0xff60, 1}, {0xffe0, 0xffe6, 1},
	},
	R32: []unicode.Range32{
		{0x16fe0, 0x18cff, 1}, {0x1aff0, 0x1b2ff, 1}, {0x1f004, 0x1f004, 1}, {0x1f0cf, 0x1f0cf, 1},
		{0x1f18e, 0x1f18e, 1}, {0x1f191, 0x1f19a, 1}, {0x1f200, 0x1f265, 1}, {0x1f300, 0x1faff, 1},
		{0x20000, 0x3fffd, 1},
	},
}

func runeWidth(r rune) int {
	switch {
	case r < 0x300:
		return 1
	case unicode.In(r, unicode.Mn, unicode.Me):
		return 0
	case unicode.Is(wide, r):
		return 2
	}
	return 1
}

// Width is the number of terminal columns that a line takes.
func Width(s string) (columns int) {
	for _, r := range s {
		columns += runeWidth(r)
	}
	return columns
}

// Cut shortens a line to a number of columns.
func Cut(s string, columns int) string {
	if columns < 1 {
		return ""
	}
	used, fits := 0, 0 // fits: bytes that leave a column for the ellipsis
	for i, r := range s {
		if used < columns {
			fits = i
		}
		if used += runeWidth(r); used > columns {
			return s[:fits] + "…"
		}
	}
	return s
}

// Pad fills a line with spaces to a number of columns.
func Pad(s string, columns int) string {
	return s + strings.Repeat(" ", max(0, columns-Width(s)))
}

// Wrap breaks a text between words into lines of at most that many columns. A
// longer word gets a line of its own.
func Wrap(s string, columns int) []string { return WrapBy(s, columns, Width) }

// WrapBy is Wrap for a text whose words have another width, such as coloured ones.
func WrapBy(s string, columns int, width func(word string) int) []string {
	var lines []string
	line, used := "", 0
	for word := range strings.FieldsSeq(s) {
		w := width(word)
		if used > 0 && used+1+w > columns {
			lines = append(lines, line)
			line, used = "", 0
		}
		if used > 0 {
			line, used = line+" ", used+1
		}
		line, used = line+word, used+w
	}
	return append(lines, line)
}
