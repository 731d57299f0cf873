package manual

import (
	"html"
	"strconv"
	"strings"

	"berth/internal/text"
)

// The parts of Markdown that the pages use: headings, paragraphs, fenced code,
// lists, quotes, rules and tables, and in them code, emphasis, links and pictures.
// A library for all of it cost every command a millisecond before it began.

type kind int

const (
	paragraph kind = iota
	heading
	code
	quote
	list
	item
	table
	rule
)

// block is one block of a page.
type block struct {
	kind   kind
	text   string     // of a heading or a paragraph, unparsed; the lines of code
	level  int        // of a heading
	number int        // of an ordered list's first item; -1: it has bullets
	tight  bool       // a list without blank lines, or a paragraph in one
	rows   [][]string // of a table, the titles first
	blocks []*block   // within a quote, a list or an item
}

// blocksOf parses lines.
func blocksOf(lines []string) (blocks []*block) {
	for len(lines) > 0 {
		b, count := nextBlock(lines)
		if b != nil {
			blocks = append(blocks, b)
		}
		lines = lines[count:]
	}
	return blocks
}

// nextBlock parses the first block and says how many lines it takes; nil: nothing
// that is shown.
func nextBlock(lines []string) (b *block, count int) {
	line := strings.TrimSpace(lines[0])
	switch {
	case line == "":
		return nil, 1
	case headingLevel(line) > 0:
		level := headingLevel(line)
		return &block{kind: heading, level: level, text: strings.TrimSpace(line[level:])}, 1
	case strings.HasPrefix(line, "```"):
		return fenced(lines)
	case strings.HasPrefix(line, "<!--"):
		for count < len(lines) && !strings.Contains(lines[count], "-->") {
			count++
		}
		return nil, min(count+1, len(lines))
	case strings.HasPrefix(line, ">"):
		return quoted(lines)
	case len(line) >= 3 && strings.Trim(line, line[:1]) == "" && strings.Contains("-*_", line[:1]):
		return &block{kind: rule}, 1
	case marker(lines[0]) > 0:
		return listed(lines)
	case len(lines) > 1 && strings.Contains(line, "|") && delimits(lines[1]):
		return tabled(lines)
	}
	var words []string
	for ; count < len(lines) && (count == 0 || !begins(lines[count])); count++ {
		words = append(words, strings.TrimSpace(lines[count]))
	}
	return &block{text: strings.Join(words, "\n")}, count
}

// begins reports whether a line ends the paragraph before it.
func begins(line string) bool {
	bare := strings.TrimSpace(line)
	return bare == "" || headingLevel(bare) > 0 || strings.HasPrefix(bare, "```") || strings.HasPrefix(bare, "<!--") || strings.HasPrefix(bare, ">") || marker(line) > 0
}

func headingLevel(line string) int {
	level := len(line) - len(strings.TrimLeft(line, "#"))
	if level > 6 || level < len(line) && line[level] != ' ' {
		return 0
	}
	return level
}

func indentOf(line string) int { return len(line) - len(strings.TrimLeft(line, " ")) }

// without is a line without its first columns, as far as they are blank.
func without(line string, columns int) string { return line[min(columns, indentOf(line)):] }

func fenced(lines []string) (*block, int) {
	fence := strings.TrimSpace(lines[0])
	fence = fence[:len(fence)-len(strings.TrimLeft(fence, "`"))]
	b, indent, count := &block{kind: code}, indentOf(lines[0]), 1
	for ; count < len(lines); count++ {
		if strings.TrimSpace(lines[count]) == fence {
			count++
			break
		}
		b.text += without(lines[count], indent) + "\n"
	}
	return b, count
}

func quoted(lines []string) (*block, int) {
	var within []string
	for _, line := range lines {
		line, in := strings.CutPrefix(strings.TrimSpace(line), ">")
		if !in {
			break
		}
		within = append(within, strings.TrimPrefix(line, " "))
	}
	return &block{kind: quote, blocks: blocksOf(within)}, len(within)
}

// marker is where the text of a list's item begins; 0: the line begins none.
func marker(line string) int {
	indent := indentOf(line)
	rest := line[indent:]
	digits := len(rest) - len(strings.TrimLeft(rest, "0123456789"))
	switch {
	case digits > 0 && digits < 10 && strings.HasPrefix(rest[digits:], ". "):
		return indent + digits + 2
	case strings.HasPrefix(rest, "- ") || strings.HasPrefix(rest, "* "):
		return indent + 2
	}
	return 0
}

func listed(lines []string) (*block, int) {
	l := &block{kind: list, number: -1, tight: true}
	if first, err := strconv.Atoi(strings.Trim(lines[0][:marker(lines[0])], " .")); err == nil {
		l.number = first
	}
	next := func(at int) bool { // whether the line begins another item of the same list
		return at < len(lines) && marker(lines[at]) > 0 && indentOf(lines[at]) == indentOf(lines[0]) &&
			strings.ContainsAny(lines[at][:marker(lines[at])], "-*") == (l.number < 0)
	}
	count := 0
	for next(count) {
		column, size := marker(lines[count]), itemLines(lines[count:])
		within := []string{lines[count][column:]}
		for _, line := range lines[count+1 : count+size] {
			within = append(within, without(line, column))
		}
		count += size
		after := count
		for after < len(lines) && strings.TrimSpace(lines[after]) == "" {
			after++
		}
		it := &block{kind: item, blocks: blocksOf(within)}
		l.tight = l.tight && !parted(within, it.blocks) && (after == count || !next(after))
		l.blocks = append(l.blocks, it)
		if next(after) {
			count = after
		}
	}
	for _, it := range l.blocks {
		for _, b := range it.blocks {
			b.tight = b.tight || b.kind == paragraph && l.tight
		}
	}
	return l, count
}

// itemLines is how many lines the first item of a list has, without blank ones at
// its end.
func itemLines(lines []string) (count int) {
	column := marker(lines[0])
	for i, line := range lines {
		blank := strings.TrimSpace(line) == ""
		goesOn := i == count && !begins(line) // a paragraph's next line needs no indent
		if i > 0 && !blank && indentOf(line) < column && !goesOn {
			break
		}
		if !blank {
			count = i + 1
		}
	}
	return count
}

// parted reports whether a blank line parts two blocks of an item.
func parted(lines []string, blocks []*block) bool {
	inCode := false
	for _, line := range lines {
		if strings.HasPrefix(strings.TrimSpace(line), "```") {
			inCode = !inCode
		}
		if strings.TrimSpace(line) == "" && !inCode && len(blocks) > 1 {
			return true
		}
	}
	return false
}

// delimits reports whether a line is the one below a table's titles.
func delimits(line string) bool {
	line = strings.TrimSpace(line)
	return strings.Contains(line, "|") && strings.Contains(line, "-") && strings.Trim(line, "|-: ") == ""
}

func tabled(lines []string) (*block, int) {
	t, count := &block{kind: table}, 0
	for ; count < len(lines) && !begins(lines[count]); count++ {
		if count == 1 {
			continue
		}
		row := cellsOf(lines[count])
		if count > 1 { // each row has as many cells as there are titles
			row = append(row, make([]string, len(t.rows[0]))...)[:len(t.rows[0])]
		}
		t.rows = append(t.rows, row)
	}
	return t, count
}

// cellsOf cuts a row at its bars; \| is part of one.
func cellsOf(line string) (cells []string) {
	line = strings.TrimPrefix(strings.TrimSpace(line), "|")
	start := 0
	for i := range len(line) {
		if line[i] == '|' && (i == 0 || line[i-1] != '\\') {
			cells = append(cells, strings.TrimSpace(line[start:i]))
			start = i + 1
		}
	}
	if rest := strings.TrimSpace(line[start:]); rest != "" {
		cells = append(cells, rest)
	}
	return cells
}

// span is a part of a text.
type span struct {
	style  style
	text   string // of words and code
	target string // of a link
	spans  []span // within emphasis, a link or a picture
}

type style int

const (
	words style = iota
	codeSpan
	emphasis
	link
	picture
)

var punctuation = text.Pattern(`\\([!-/:-@\[-` + "`" + `{-~])`)

// spansOf parses a text.
func spansOf(s string) (spans []span) {
	start := 0
	for at := 0; at < len(s); {
		found, size := nextSpan(s[at:])
		if size == 0 {
			if at++; s[at-1] == '\\' && at < len(s) {
				at++
			}
			continue
		}
		spans = append(appendWords(spans, s[start:at]), found)
		at += size
		start = at
	}
	return appendWords(spans, s[start:])
}

// appendWords adds plain words, with \| and &lt; as the characters they are.
func appendWords(spans []span, s string) []span {
	if s == "" {
		return spans
	}
	return append(spans, span{text: html.UnescapeString(punctuation().ReplaceAllString(s, "$1"))})
}

// nextSpan parses a span at the beginning and returns its length, or 0 if the text does not begin with one.
func nextSpan(s string) (found span, size int) {
	switch {
	case s[0] == '`':
		ticks := len(s) - len(strings.TrimLeft(s, "`"))
		if end := strings.Index(s[ticks:], s[:ticks]); end >= 0 {
			said := strings.ReplaceAll(s[ticks:ticks+end], `\|`, "|") // in a table
			return span{style: codeSpan, text: strings.Join(strings.Fields(said), " ")}, 2*ticks + end
		}
		return span{text: s[:ticks]}, ticks
	case s[0] == '*':
		stars := min(2, len(s)-len(strings.TrimLeft(s, "*")))
		if end := closing(s[stars:], s[:stars]); end > 0 && s[stars] != ' ' {
			return span{style: emphasis, spans: spansOf(s[stars : stars+end])}, 2*stars + end
		}
	case s[0] == '[':
		label := closing(s[1:], "]")
		if label < 0 || !strings.HasPrefix(s[1+label:], "](") {
			return span{}, 0
		}
		target, _, ended := strings.Cut(s[label+3:], ")")
		if ended {
			return span{style: link, target: target, spans: spansOf(s[1 : 1+label])}, label + 3 + len(target) + 1
		}
	case strings.HasPrefix(s, "<br>"):
		return span{text: "\n"}, len("<br>")
	case strings.HasPrefix(s, "!["):
		if found, size = nextSpan(s[1:]); size > 0 {
			found.style = picture
			return found, size + 1
		}
	}
	return span{}, 0
}

// closing is where the mark is that ends a span, outside of code and of brackets
// within; negative: nowhere.
func closing(s, mark string) int {
	depth := 0
	for at := 0; at < len(s); at++ {
		switch {
		case depth == 0 && strings.HasPrefix(s[at:], mark):
			return at
		case s[at] == '\\':
			at++
		case s[at] == '[':
			depth++
		case s[at] == ']':
			depth = max(0, depth-1)
		case s[at] == '`':
			_, size := nextSpan(s[at:])
			at += size - 1
		}
	}
	return -1
}
