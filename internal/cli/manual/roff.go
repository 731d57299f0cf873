package manual

import (
	"fmt"
	"strings"

	"github.com/yuin/goldmark/ast"
	extast "github.com/yuin/goldmark/extension/ast"
)

// fileFormats are the topics that describe a file: section 5 of the manual.
var fileFormats = map[string]bool{"config": true, "jobsfile": true, "jobspec": true}

// manSection is the section of the manual that a topic belongs to.
func manSection(topic string) int {
	if fileFormats[topic] {
		return 5
	}
	return 7
}

// ManName is the file that the page is as a man page, such as man5/berth-config.5.
func (p *Page) ManName() string {
	section := manSection(p.Topic)
	return fmt.Sprintf("man%d/berth-%s.%d", section, p.Topic, section)
}

// Man is the page as a man page.
func (p *Page) Man(version string, known func(topic string) bool) string {
	r := &roff{page: p, known: known}
	r.head("berth-"+p.Topic, manSection(p.Topic), version)
	r.section("Name")
	r.line("berth-" + p.Topic + ` \- ` + escape(p.Title))
	first := p.root.FirstChild()
	if h, ok := first.(*ast.Heading); ok && h.Level == 1 {
		first = first.NextSibling()
	}
	if _, ok := first.(*ast.Heading); !ok {
		r.section("Description")
	}
	for node := first; node != nil; node = node.NextSibling() {
		r.block(node)
	}
	r.section("See also")
	r.line(`\fBberth\fR(1)`)
	return r.out.String()
}

// Verb is a command for its man page.
type Verb struct {
	Path     string // "berth gpu pause"
	Synopsis string
	Short    string
	Long     string
	Example  string
	Flags    []Flag
	SeeAlso  []string // other verbs, as Path
}

// Flag is one flag: its forms, as "-g, --gpus N", and what it does.
type Flag struct{ Forms, Help string }

// ManName is the file that the verb is as a man page.
func (v Verb) ManName() string { return "man1/" + strings.ReplaceAll(v.Path, " ", "-") + ".1" }

// Man is the verb's man page.
func (v Verb) Man(version string) string {
	r := &roff{}
	r.head(strings.ReplaceAll(v.Path, " ", "-"), 1, version)
	r.section("Name")
	r.line(strings.ReplaceAll(v.Path, " ", `\-`) + ` \- ` + escape(v.Short))
	r.section("Synopsis")
	r.line(`\fB` + escape(v.Path) + `\fR` + escape(strings.TrimPrefix(v.Synopsis, v.Path)))
	r.section("Description")
	r.prose(v.Long)
	if len(v.Flags) > 0 {
		r.section("Options")
		for _, f := range v.Flags {
			r.line(".TP\n" + `\fB` + escape(f.Forms) + `\fR`)
			r.line(escape(f.Help))
		}
	}
	example, status, _ := strings.Cut(v.Example, "\n\n")
	if example != "" {
		r.section("Examples")
		r.code(example + "\n")
	}
	if said, ok := strings.CutPrefix(status, "Exit status: "); ok {
		r.section("Exit status")
		r.line(escape(said))
	} else if status != "" {
		r.prose(status)
	}
	if len(v.SeeAlso) > 0 {
		r.section("See also")
		var names []string
		for _, path := range v.SeeAlso {
			names = append(names, `\fB`+strings.ReplaceAll(escape(path), " ", `\-`)+`\fR(1)`)
		}
		r.line(strings.Join(names, ", "))
	}
	return r.out.String()
}

// roff writes one man page.
type roff struct {
	page   *Page
	known  func(topic string) bool
	out    strings.Builder
	headed bool // the last line is a heading
}

func (r *roff) head(name string, section int, version string) {
	fmt.Fprintf(&r.out, ".TH %q %d \"\" \"berth %s\" \"berth\"\n.nh\n", strings.ToUpper(name), section, version)
}

func (r *roff) section(title string) { r.line(".SH " + escape(strings.ToUpper(title))) }

func (r *roff) line(s string) {
	r.out.WriteString(s + "\n")
	r.headed = strings.HasPrefix(s, ".SH") || strings.HasPrefix(s, ".SS")
}

// paragraph starts one. A heading has done that already.
func (r *roff) paragraph() {
	if !r.headed {
		r.line(".PP")
	}
}

// text is a paragraph's words. No line of it starts as a request does.
func (r *roff) text(s string) {
	for line := range strings.Lines(s) {
		line = strings.TrimSpace(line)
		if strings.HasPrefix(line, ".") || strings.HasPrefix(line, "'") {
			line = `\&` + line
		}
		if line != "" {
			r.line(line)
		}
	}
}

// prose is a help text: paragraphs, and indented lines that stay as they are.
func (r *roff) prose(s string) {
	for part := range strings.SplitSeq(strings.Trim(s, "\n"), "\n\n") {
		r.paragraph()
		var kept strings.Builder
		flush := func() {
			if kept.Len() > 0 {
				r.code(kept.String())
				kept.Reset()
			}
		}
		for line := range strings.Lines(part) {
			if strings.HasPrefix(line, " ") {
				kept.WriteString(strings.TrimRight(line, "\n") + "\n")
				continue
			}
			flush()
			r.text(escape(line))
		}
		flush()
	}
}

// code is lines that are shown as they are.
func (r *roff) code(s string) {
	r.line(".RS 4\n.nf")
	for line := range strings.Lines(s) {
		line = escape(strings.TrimRight(line, "\n"))
		if strings.HasPrefix(line, ".") || strings.HasPrefix(line, "'") {
			line = `\&` + line
		}
		r.line(line)
	}
	r.line(".fi\n.RE")
}

func (r *roff) block(node ast.Node) {
	switch n := node.(type) {
	case *ast.Heading:
		if n.Level <= 2 {
			r.section(strings.ReplaceAll(r.page.heading(n), "`", ""))
		} else {
			r.line(".SS " + r.inline(n))
		}
	case *ast.Paragraph:
		r.paragraph()
		r.text(r.inline(n))
	case *ast.TextBlock:
		r.text(r.inline(n))
	case *ast.FencedCodeBlock, *ast.CodeBlock:
		r.paragraph()
		r.code(r.page.lines(n))
	case *ast.Blockquote:
		r.line(".RS 4")
		r.blocks(n)
		r.line(".RE")
	case *ast.List:
		r.list(n)
	case *extast.Table:
		r.table(n)
	}
}

func (r *roff) blocks(parent ast.Node) {
	for node := parent.FirstChild(); node != nil; node = node.NextSibling() {
		r.block(node)
	}
}

func (r *roff) list(l *ast.List) {
	number := l.Start
	for item := l.FirstChild(); item != nil; item = item.NextSibling() {
		bullet := `\(bu`
		if l.IsOrdered() {
			bullet = fmt.Sprintf("%d.", number)
			number++
		}
		r.line(".IP " + bullet + " 4")
		for node := item.FirstChild(); node != nil; node = node.NextSibling() {
			switch node.(type) {
			case *ast.TextBlock, *ast.Paragraph:
				if node != item.FirstChild() {
					r.line(".IP")
				}
				r.text(r.inline(node))
			default:
				r.line(".RS 4")
				r.block(node)
				r.line(".RE")
			}
		}
	}
}

// table is a list, as entries makes one.
func (r *roff) table(n *extast.Table) {
	var titles []string
	for row := n.FirstChild(); row != nil; row = row.NextSibling() {
		var cells []string
		for cell := row.FirstChild(); cell != nil; cell = cell.NextSibling() {
			cells = append(cells, strings.TrimSpace(r.inline(cell)))
		}
		if titles == nil {
			titles = cells
			continue
		}
		r.line(".TP")
		if cells[0] == "" {
			cells[0] = `\ `
		}
		r.text(cells[0])
		said := 0
		for i, cell := range cells[1:] {
			if cell == "" {
				continue
			}
			if said++; said > 1 {
				r.line(".br")
			}
			if i > 0 && titles[i+1] != "" {
				cell = `\fI` + titles[i+1] + `:\fR ` + cell
			}
			r.text(cell)
		}
	}
}

func (r *roff) inline(parent ast.Node) string {
	b := &strings.Builder{}
	source := r.page.source
	for node := parent.FirstChild(); node != nil; node = node.NextSibling() {
		switch n := node.(type) {
		case *ast.Text:
			b.WriteString(escape(unescape(string(n.Segment.Value(source)))))
			if n.SoftLineBreak() || n.HardLineBreak() {
				b.WriteByte('\n')
			}
		case *ast.String:
			b.WriteString(escape(string(n.Value)))
		case *ast.CodeSpan:
			b.WriteString(`\fB` + escape(codeText(n, source)) + `\fR`)
		case *ast.Emphasis:
			b.WriteString(`\fI` + r.inline(n) + `\fR`)
		case *ast.Link:
			b.WriteString(r.link(n))
		case *ast.AutoLink:
			b.WriteString(escape(string(n.URL(source))))
		case *ast.Image:
			b.WriteString("[picture: " + r.inline(n) + "]")
		}
	}
	return b.String()
}

func (r *roff) link(n *ast.Link) string {
	label, target := r.inline(n), string(n.Destination)
	topic := topicOf(target)
	switch {
	case strings.Contains(target, "://"):
		return label + " (" + escape(target) + ")"
	case topic == "" || !r.known(topic) || topic == r.page.Topic:
		return label
	}
	page := fmt.Sprintf(`\fBberth\-%s\fR(%d)`, escape(topic), manSection(topic))
	if label == escape(topic+".md") {
		return page
	}
	return label + " (" + page + ")"
}

// escape protects what roff would take for its own, and keeps dashes that can
// be typed.
func escape(s string) string {
	return strings.NewReplacer(`\`, `\e`, "-", `\-`).Replace(s)
}
