package main

import (
	"fmt"
	"html"
	"strings"
)

// picture is one drawing. Title and description are read aloud by screen readers.
type picture struct {
	name, title, desc string
	width, height     int
	body              strings.Builder
}

// colours has a class's colour in a light and in a dark theme. The background is
// part of the picture, so that it is readable on any page.
var colours = []struct{ class, light, dark string }{
	{"page", "#ffffff", "#0d1117"}, {"ink", "#1f2328", "#e6edf3"}, {"grey", "#e8ebef", "#2b323b"},
	{"blue", "#cfe4ff", "#1c3d66"}, {"green", "#d2f0d8", "#1d4a2a"}, {"amber", "#ffe9b8", "#5a4210"},
	{"red", "#ffd4d0", "#6a2520"}, {"plain", "#57606a", "#9aa4af"}, {"good", "#1a7f37", "#56d364"}, {"bad", "#b42318", "#ff8a80"},
}

// light is a class's colour in a light theme. It is written into each element, so
// that a viewer without style sheets shows the picture too.
func light(class string) string {
	for _, c := range colours {
		if c.class == class {
			return c.light
		}
	}
	panic("no colour " + class)
}

// dark is the style sheet of a dark theme.
func dark() string {
	var rules strings.Builder
	for _, c := range colours {
		property := "fill"
		if c.class == "plain" || c.class == "good" || c.class == "bad" {
			property = "stroke"
		}
		fmt.Fprintf(&rules, " .%s { %s: %s }", c.class, property, c.dark)
	}
	return "@media (prefers-color-scheme: dark) {" + rules.String() + " }"
}

func (p *picture) svg() string {
	return fmt.Sprintf(`<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" width="%[1]d" height="%[2]d" role="img" aria-labelledby="title desc" font-family="system-ui, Segoe UI, DejaVu Sans, sans-serif" font-size="14">
  <title id="title">%s</title>
  <desc id="desc">%s</desc>
  <style>%s</style>
  <rect class="page" fill="%s" width="%[1]d" height="%[2]d" rx="8"/>
%[7]s</svg>
`, p.width, p.height, html.EscapeString(p.title), html.EscapeString(p.desc), dark(), light("page"), p.body.String())
}

func (p *picture) add(format string, args ...any) { fmt.Fprintf(&p.body, "  "+format+"\n", args...) }

// text writes one line; how is any of small, bold, mid and right.
func (p *picture) text(x, y int, how, text string) {
	attributes := ""
	for word := range strings.FieldsSeq(how) {
		attributes += map[string]string{"small": ` font-size="12"`, "bold": ` font-weight="600"`, "mid": ` text-anchor="middle"`, "right": ` text-anchor="end"`}[word]
	}
	p.add(`<text x="%d" y="%d" class="ink" fill="%s" stroke="none"%s>%s</text>`, x, y, light("ink"), attributes, html.EscapeString(text))
}

// bar draws a filled box; an empty class leaves it open.
func (p *picture) bar(x, y, w, h int, class string) {
	if class != "" {
		p.add(`<rect x="%d" y="%d" width="%d" height="%d" rx="5" class="%s" fill="%s"/>`, x, y, w, h, class, light(class))
	}
	p.add(`<rect x="%d" y="%d" width="%d" height="%d" rx="5" fill="none" %s/>`, x, y, w, h, stroke("plain"))
}

// box is a bar with centred lines of text, the first one bold.
func (p *picture) box(x, y, w, h int, class string, lines ...string) {
	p.bar(x, y, w, h, class)
	top := y + h/2 + 5 - (len(lines)-1)*9
	for i, line := range lines {
		how, each := "mid bold", 7
		if i > 0 {
			how, each = "mid small", 6
		}
		// each is a little more than the mean width of a character
		if each*len([]rune(line)) > w-6 {
			panic(fmt.Sprintf("%s: %q is wider than its box", p.name, line))
		}
		p.text(x+w/2, top+18*i, how, line)
	}
}

// stroke is how a line of a class is drawn: plain, good or bad, and dashed.
func stroke(class string) string {
	class, dashed := strings.CutSuffix(class, " dashed")
	attributes := fmt.Sprintf(`class="%s" stroke="%s" stroke-width="1.5"`, class, light(class))
	if dashed {
		attributes += ` stroke-dasharray="5 4"`
	}
	return attributes
}

// path draws a path without a tip.
func (p *picture) path(d, class string) { p.add(`<path d="%s" fill="none" %s/>`, d, stroke(class)) }

// line draws a straight line.
func (p *picture) line(x1, y1, x2, y2 int, class string) {
	p.path(fmt.Sprintf("M%d %d L%d %d", x1, y1, x2, y2), class)
}

// arrow draws a line with a tip, in the direction of its longer side.
func (p *picture) arrow(x1, y1, x2, y2 int, class string) {
	p.line(x1, y1, x2, y2, class)
	p.tip(x1, y1, x2, y2, class)
}

// tip draws the tip of a line that ends in x2, y2.
func (p *picture) tip(x1, y1, x2, y2 int, class string) {
	dx, dy := x2-x1, y2-y1
	length := max(1, isqrt(dx*dx+dy*dy))
	back := func(along, aside int) string {
		return fmt.Sprintf("%d %d", x2-(along*dx-aside*dy)/length, y2-(along*dy+aside*dx)/length)
	}
	class, _ = strings.CutSuffix(class, " dashed")
	p.path("M"+back(8, 4)+" L"+back(0, 0)+" L"+back(8, -4), class)
}

// isqrt is a whole square root, so that a picture is the same on every machine.
func isqrt(n int) int {
	root := 0
	for (root+1)*(root+1) <= n {
		root++
	}
	return root
}
