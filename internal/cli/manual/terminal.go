package manual

import (
	"fmt"
	"html"
	"strings"

	"github.com/yuin/goldmark/ast"
	extast "github.com/yuin/goldmark/extension/ast"

	"berth/internal/text"
)

// hardSpace is a space at which no line is broken. It becomes a plain one when
// the page is done.
const hardSpace = "\ue000"

// keepTogether is how wide a code span may be and still not be broken.
const keepTogether = 30

// Style is how a page is shown.
type Style struct {
	Columns int
	Colour  bool
	// Word is what shows a topic, after "berth help"; "" if it is not known.
	Word func(topic string) string
}

// Text is the page for a terminal.
func (p *Page) Text(s Style) string {
	t := &terminal{page: p, style: s, linked: map[string]bool{p.Topic: true}}
	t.children(p.root, "", "")
	t.seeAlso()
	return strings.ReplaceAll(strings.TrimLeft(t.out.String(), "\n"), hardSpace, " ")
}

// terminal writes one page.
type terminal struct {
	page   *Page
	style  Style
	linked map[string]bool // topics that were named as a command already
	see    []string        // commands for the links of this section
	out    strings.Builder
}

// children writes the blocks of a node. The first line starts with first, the
// others with rest: a list's bullet, then blanks.
func (t *terminal) children(parent ast.Node, first, rest string) {
	for node := parent.FirstChild(); node != nil; node = node.NextSibling() {
		if t.block(node, first, rest) {
			first = rest
		}
	}
}

// block writes one block, with an empty line before it unless it is part of a
// tight list. It tells whether anything was written.
func (t *terminal) block(node ast.Node, first, rest string) bool {
	switch n := node.(type) {
	case *ast.Heading:
		t.heading(n)
	case *ast.Paragraph:
		t.gap()
		t.wrapped(t.inline(n), first, rest)
	case *ast.TextBlock:
		t.wrapped(t.inline(n), first, rest)
	case *ast.FencedCodeBlock, *ast.CodeBlock:
		t.gap()
		for line := range strings.Lines(t.page.lines(n)) {
			t.out.WriteString(strings.TrimRight(rest+"  "+line, " \n") + "\n")
		}
	case *ast.Blockquote:
		t.children(n, first+"  ", rest+"  ")
	case *ast.List:
		t.list(n, rest)
	case *extast.Table:
		t.gap()
		t.table(n, rest)
	case *ast.ThematicBreak:
		t.gap()
		t.out.WriteString(strings.Repeat("-", t.style.Columns) + "\n")
	default: // HTML: comments around generated tables
		return false
	}
	return true
}

// gap writes one empty line, wherever something was written before.
func (t *terminal) gap() {
	if t.out.Len() > 0 {
		t.out.WriteByte('\n')
	}
}

// seeAlso ends a section with the commands that show the pages it links to.
func (t *terminal) seeAlso() {
	if len(t.see) > 0 {
		t.gap()
		t.wrapped("See also: "+strings.Join(t.see, ", "), "", "")
		t.see = nil
	}
}

func (t *terminal) heading(h *ast.Heading) {
	t.seeAlso()
	t.gap()
	title := t.inline(h)
	if t.style.Colour {
		t.out.WriteString(text.Bold.On(title) + "\n")
		return
	}
	t.out.WriteString(title + "\n")
	line := []string{"=", "-", "~"}[min(h.Level, 3)-1]
	t.out.WriteString(strings.Repeat(line, text.Width(title)) + "\n")
}

func (t *terminal) list(l *ast.List, indent string) {
	if l.Parent().Kind() == ast.KindDocument || !l.IsTight {
		t.gap()
	}
	number := l.Start
	for item := l.FirstChild(); item != nil; item = item.NextSibling() {
		bullet := "- "
		if l.IsOrdered() {
			bullet = fmt.Sprintf("%d. ", number)
			number++
		}
		if !l.IsTight && item != l.FirstChild() {
			t.gap()
		}
		first := indent + bullet
		for node := item.FirstChild(); node != nil; node = node.NextSibling() {
			rest := indent + strings.Repeat(" ", len(bullet))
			if p, ok := node.(*ast.Paragraph); ok && node == item.FirstChild() {
				t.wrapped(t.inline(p), first, rest) // the gap came before the bullet
			} else if !t.block(node, first, rest) {
				continue
			}
			first = rest
		}
	}
}

func (t *terminal) wrapped(s, first, rest string) {
	for i, line := range wrap(s, t.style.Columns-text.Width(rest)) {
		if i > 0 {
			first = rest
		}
		t.out.WriteString(first + line + "\n")
	}
}

// inline is the text of a block. Every word carries its own colour, so that a
// line can be broken between any two.
func (t *terminal) inline(parent ast.Node) string {
	b := &strings.Builder{}
	for node := parent.FirstChild(); node != nil; node = node.NextSibling() {
		switch n := node.(type) {
		case *ast.Text:
			b.WriteString(unescape(string(n.Segment.Value(t.page.source))))
			if n.SoftLineBreak() || n.HardLineBreak() {
				b.WriteByte(' ')
			}
		case *ast.String:
			b.Write(n.Value)
		case *ast.CodeSpan:
			b.WriteString(t.code(n))
		case *ast.Emphasis:
			b.WriteString(t.paint(t.inline(n)))
		case *ast.Link:
			b.WriteString(t.link(n))
		case *ast.AutoLink:
			b.Write(n.URL(t.page.source))
		case *ast.Image:
			b.WriteString("[picture: " + t.inline(n) + "]")
		}
	}
	return b.String()
}

var escaped = text.Pattern(`\\([!-/:-@\[-` + "`" + `{-~])`)

// unescape resolves \| and &lt;, which the parser leaves in.
func unescape(s string) string { return html.UnescapeString(escaped().ReplaceAllString(s, "$1")) }

// codeText is what a code span says.
func codeText(n *ast.CodeSpan, source []byte) string {
	b := &strings.Builder{}
	for node := n.FirstChild(); node != nil; node = node.NextSibling() {
		if part, ok := node.(*ast.Text); ok {
			b.Write(part.Segment.Value(source))
		}
	}
	s := strings.ReplaceAll(b.String(), `\|`, "|") // in a table
	return strings.Join(strings.Fields(s), " ")
}

func (t *terminal) code(n *ast.CodeSpan) string {
	s := codeText(n, t.page.source)
	if text.Width(s) <= keepTogether {
		s = strings.ReplaceAll(s, " ", hardSpace)
	}
	if t.style.Colour {
		return t.paint(s)
	}
	return "`" + s + "`"
}

// paint makes every word of a text bold.
func (t *terminal) paint(s string) string {
	if !t.style.Colour {
		return s
	}
	words := strings.Split(s, " ")
	for i, word := range words {
		words[i] = text.Bold.On(word)
	}
	return strings.Join(words, " ")
}

// link is its text. The command that shows the page it goes to is at the
// end of the section, once on a page, or takes the place of a file's name.
func (t *terminal) link(n *ast.Link) string {
	label, target := t.inline(n), string(n.Destination)
	topic := topicOf(target)
	switch {
	case strings.Contains(target, "://") && label != target:
		return label + " (" + target + ")"
	case topic == "" || t.style.Word == nil || t.style.Word(topic) == "" || t.linked[topic]:
		return label
	}
	t.linked[topic] = true
	command := strings.ReplaceAll("berth help "+t.style.Word(topic), " ", hardSpace)
	if label == topic+".md" {
		return command
	}
	t.see = append(t.see, command)
	return label
}

var escapes = text.Pattern("\x1b\\[[0-9;]*m")

// width is how many columns a text takes, without its colours.
func width(s string) int { return text.Width(escapes().ReplaceAllString(s, "")) }

// wrap breaks a text between words.
func wrap(s string, columns int) []string { return text.WrapBy(s, columns, width) }
