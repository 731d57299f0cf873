package manual

import (
	"fmt"
	"strings"

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
	t.children(p.blocks, "", "")
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

// children writes blocks. The first line starts with first, the others with rest:
// a list's bullet, then blanks.
func (t *terminal) children(blocks []*block, first, rest string) {
	for _, b := range blocks {
		t.block(b, first, rest)
		first = rest
	}
}

// block writes one block, with an empty line before it unless it is part of a
// tight list.
func (t *terminal) block(b *block, first, rest string) {
	switch b.kind {
	case heading:
		t.heading(b)
	case paragraph:
		if !b.tight {
			t.gap()
		}
		t.wrapped(t.inline(b.text), first, rest)
	case code:
		t.gap()
		for line := range strings.Lines(b.text) {
			t.out.WriteString(strings.TrimRight(rest+"  "+line, " \n") + "\n")
		}
	case quote:
		t.children(b.blocks, first+"  ", rest+"  ")
	case list:
		t.list(b, rest)
	case table:
		t.gap()
		t.table(b, rest)
	case rule:
		t.gap()
		t.out.WriteString(strings.Repeat("-", t.style.Columns) + "\n")
	}
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

func (t *terminal) heading(b *block) {
	t.seeAlso()
	t.gap()
	title := t.inline(b.text)
	if t.style.Colour {
		t.out.WriteString(text.Bold.On(title) + "\n")
		return
	}
	t.out.WriteString(title + "\n")
	line := []string{"=", "-", "~"}[min(b.level, 3)-1]
	t.out.WriteString(strings.Repeat(line, text.Width(title)) + "\n")
}

func (t *terminal) list(l *block, indent string) {
	if indent == "" || !l.tight {
		t.gap()
	}
	for i, it := range l.blocks {
		bullet := "- "
		if l.number >= 0 {
			bullet = fmt.Sprintf("%d. ", l.number+i)
		}
		if !l.tight && i > 0 {
			t.gap()
		}
		first, rest := indent+bullet, indent+strings.Repeat(" ", len(bullet))
		for k, b := range it.blocks {
			if b.kind == paragraph && k == 0 {
				t.wrapped(t.inline(b.text), first, rest) // the gap came before the bullet
			} else {
				t.block(b, first, rest)
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
func (t *terminal) inline(s string) string { return t.spans(spansOf(s)) }

func (t *terminal) spans(spans []span) string {
	b := &strings.Builder{}
	for _, part := range spans {
		switch part.style {
		case words:
			b.WriteString(strings.ReplaceAll(part.text, "\n", " "))
		case codeSpan:
			b.WriteString(t.code(part.text))
		case emphasis:
			b.WriteString(t.paint(t.spans(part.spans)))
		case link:
			b.WriteString(t.link(part))
		case picture:
			b.WriteString("[picture: " + t.spans(part.spans) + "]")
		}
	}
	return b.String()
}

func (t *terminal) code(s string) string {
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
func (t *terminal) link(part span) string {
	label, target := t.spans(part.spans), part.target
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
