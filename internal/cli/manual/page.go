package manual

import (
	"path"
	"strings"

	"github.com/yuin/goldmark"
	"github.com/yuin/goldmark/ast"
	"github.com/yuin/goldmark/extension"
	"github.com/yuin/goldmark/text"
)

// Page is one page, parsed.
type Page struct {
	Topic string // "config"
	Kind  string // "reference", the directory it is in; the tutorial's is its own
	Title string

	source []byte
	root   ast.Node
}

// Parse reads a page of the docs directory, by its path there.
func Parse(name string, source []byte) *Page {
	kind, file := path.Split(name)
	p := &Page{
		Topic:  strings.TrimSuffix(file, ".md"),
		Kind:   strings.TrimSuffix(kind, "/"),
		source: source,
		root:   goldmark.New(goldmark.WithExtensions(extension.Table)).Parser().Parse(text.NewReader(source)),
	}
	if p.Kind == "" {
		p.Kind = p.Topic
	}
	p.Title = p.Topic
	if h, ok := p.root.FirstChild().(*ast.Heading); ok {
		p.Title = p.heading(h)
	}
	return p
}

// Sections are the headings below the title.
func (p *Page) Sections() (titles []string) {
	for node := p.root.FirstChild(); node != nil; node = node.NextSibling() {
		if h, ok := node.(*ast.Heading); ok && h.Level > 1 {
			titles = append(titles, p.heading(h))
		}
	}
	return titles
}

// Section is the part of the page under a heading, down to the next heading
// of its level. Its blocks leave the page for it.
func (p *Page) Section(title string) *Page {
	part := *p
	root := ast.NewDocument()
	var level int
	for node := p.root.FirstChild(); node != nil; {
		next := node.NextSibling()
		h, isHeading := node.(*ast.Heading)
		if isHeading && level > 0 && h.Level <= level {
			break
		}
		if isHeading && level == 0 && p.heading(h) == title {
			level = h.Level
		}
		if level > 0 {
			root.AppendChild(root, node)
		}
		node = next
	}
	part.root = root
	return &part
}

func (p *Page) heading(h *ast.Heading) string {
	return strings.ReplaceAll((&terminal{page: p}).inline(h), hardSpace, " ")
}

// lines is the text of a code block.
func (p *Page) lines(node ast.Node) string {
	b := &strings.Builder{}
	for i := range node.Lines().Len() {
		line := node.Lines().At(i)
		b.Write(line.Value(p.source))
	}
	return b.String()
}

// topicOf is the topic that a link goes to; "" if it goes elsewhere.
func topicOf(target string) string {
	target, _, _ = strings.Cut(target, "#")
	if strings.Contains(target, "://") || !strings.HasSuffix(target, ".md") {
		return ""
	}
	return strings.TrimSuffix(path.Base(target), ".md")
}
