package manual

import (
	"cmp"
	"path"
	"slices"
	"strings"
)

// Page is one page, parsed.
type Page struct {
	Topic string // "config"
	Kind  string // "reference", the directory it is in; the tutorial's is its own
	Title string

	blocks []*block
}

// Parse reads a page of the docs directory, by its path there.
func Parse(name string, source []byte) *Page {
	kind, file := path.Split(name)
	p := &Page{
		Topic:  strings.TrimSuffix(file, ".md"),
		Kind:   strings.TrimSuffix(kind, "/"),
		blocks: blocksOf(strings.Split(string(source), "\n")),
	}
	p.Kind = cmp.Or(p.Kind, p.Topic)
	p.Title = p.Topic
	if len(p.blocks) > 0 && p.blocks[0].kind == heading {
		p.Title = p.heading(p.blocks[0])
	}
	return p
}

// Sections are the headings below the title.
func (p *Page) Sections() (titles []string) {
	for _, b := range p.blocks {
		if b.kind == heading && b.level > 1 {
			titles = append(titles, p.heading(b))
		}
	}
	return titles
}

// Section is the part of the page under a heading, down to the next heading
// of its level.
func (p *Page) Section(title string) *Page {
	part := *p
	part.blocks = nil
	first := slices.IndexFunc(p.blocks, func(b *block) bool { return b.kind == heading && p.heading(b) == title })
	for i, b := range p.blocks {
		if first < 0 || i > first && b.kind == heading && b.level <= p.blocks[first].level {
			break
		}
		if i >= first {
			part.blocks = append(part.blocks, b)
		}
	}
	return &part
}

func (p *Page) heading(b *block) string {
	return strings.ReplaceAll((&terminal{page: p}).inline(b.text), hardSpace, " ")
}

// topicOf is the topic that a link goes to; "" if it goes elsewhere.
func topicOf(target string) string {
	target, _, _ = strings.Cut(target, "#")
	if strings.Contains(target, "://") || !strings.HasSuffix(target, ".md") {
		return ""
	}
	return strings.TrimSuffix(path.Base(target), ".md")
}
