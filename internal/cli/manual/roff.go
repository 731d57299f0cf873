package manual

import (
	"cmp"
	"fmt"
	"strings"
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
	blocks := p.blocks
	if len(blocks) > 0 && blocks[0].kind == heading && blocks[0].level == 1 {
		blocks = blocks[1:]
	}
	if len(blocks) == 0 || blocks[0].kind != heading {
		r.section("Description")
	}
	r.blocks(blocks)
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

func (r *roff) blocks(blocks []*block) {
	for _, b := range blocks {
		r.block(b)
	}
}

func (r *roff) block(b *block) {
	switch b.kind {
	case heading:
		if b.level <= 2 {
			r.section(strings.ReplaceAll(r.page.heading(b), "`", ""))
		} else {
			r.line(".SS " + r.inline(b.text))
		}
	case paragraph:
		if !b.tight {
			r.paragraph()
		}
		r.text(r.inline(b.text))
	case code:
		r.paragraph()
		r.code(b.text)
	case quote:
		r.line(".RS 4")
		r.blocks(b.blocks)
		r.line(".RE")
	case list:
		r.list(b)
	case table:
		r.table(b)
	}
}

func (r *roff) list(l *block) {
	for i, it := range l.blocks {
		bullet := `\(bu`
		if l.number >= 0 {
			bullet = fmt.Sprintf("%d.", l.number+i)
		}
		r.line(".IP " + bullet + " 4")
		for i, b := range it.blocks {
			if b.kind == paragraph {
				if i > 0 {
					r.line(".IP")
				}
				r.text(r.inline(b.text))
				continue
			}
			r.line(".RS 4")
			r.block(b)
			r.line(".RE")
		}
	}
}

// table is a list, as entries makes one.
func (r *roff) table(t *block) {
	var titles []string
	for _, row := range t.rows {
		var cells []string
		for _, cell := range row {
			cells = append(cells, strings.TrimSpace(r.inline(cell)))
		}
		if titles == nil {
			titles = cells
			continue
		}
		r.line(".TP")
		cells[0] = cmp.Or(cells[0], `\ `)
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

func (r *roff) inline(s string) string { return r.spans(spansOf(s)) }

func (r *roff) spans(spans []span) string {
	b := &strings.Builder{}
	for _, part := range spans {
		switch part.style {
		case words:
			b.WriteString(escape(part.text))
		case codeSpan:
			b.WriteString(`\fB` + escape(part.text) + `\fR`)
		case emphasis:
			b.WriteString(`\fI` + r.spans(part.spans) + `\fR`)
		case link:
			b.WriteString(r.link(part))
		case picture:
			b.WriteString("[picture: " + r.spans(part.spans) + "]")
		}
	}
	return b.String()
}

func (r *roff) link(part span) string {
	label, target := r.spans(part.spans), part.target
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
