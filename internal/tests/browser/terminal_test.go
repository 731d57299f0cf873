package browser

import (
	"fmt"
	"html"
	"regexp"
	"strconv"
	"strings"
	"unicode/utf8"
)

// The size of a cell of a terminal in a picture, in pixels, and the room around.
const (
	cellWidth  = 8.0
	cellHeight = 17.0
	around     = 12.0
)

// ansiColours are those of a dark terminal: 30 to 37, and 90 to 97.
var ansiColours = []string{
	"#6e7681", "#ff7b72", "#56d364", "#e3b341", "#79c0ff", "#d2a8ff", "#56d4dd", "#d0d7de",
	"#8b949e", "#ffa198", "#7ee787", "#f2cc60", "#a5d6ff", "#e2c5ff", "#76e3ea", "#ffffff",
}

// look is how a run of characters is drawn.
type look struct {
	colour             string
	bold, dim, reverse bool
}

var plainLook = look{colour: "#d0d7de"}

const paper = "#0d1117"

var sgr = regexp.MustCompile("\x1b\\[([0-9;]*)m")

// drawTerminal draws a frame of a terminal as SVG. Each run of characters has its
// width written down, so that it fits whatever font there is, and bars and dots
// are shapes.
func drawTerminal(frame, title, description string) string {
	lines := strings.Split(strings.TrimRight(frame, "\n"), "\n")
	var body strings.Builder
	columns := 0
	for row, line := range lines {
		columns = max(columns, drawLine(&body, line, row))
	}
	width, height := float64(columns)*cellWidth+2*around, float64(len(lines))*cellHeight+2*around
	return fmt.Sprintf(`<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %g %g" width="%[1]g" height="%[2]g" role="img" aria-labelledby="title desc" font-family="ui-monospace, SFMono-Regular, Menlo, DejaVu Sans Mono, monospace" font-size="13">
<title id="title">%s</title>
<desc id="desc">%s</desc>
<rect fill="%s" width="%[1]g" height="%[2]g" rx="8"/>
%[6]s</svg>
`, width, height, html.EscapeString(title), html.EscapeString(description), paper, body.String())
}

// drawLine draws one line and returns how many columns it has.
func drawLine(to *strings.Builder, line string, row int) int {
	at, column, now := 0, 0, plainLook
	put := func(text string) {
		runes := []rune(text)
		for len(runes) > 0 {
			n := 1
			for n < len(runes) && shape(runes[n]) == shape(runes[0]) && (shape(runes[0]) != 'b' || runes[n] == runes[0]) {
				n++
			}
			drawRun(to, runes[:n], column, row, now)
			column += n
			runes = runes[n:]
		}
	}
	for _, found := range sgr.FindAllStringSubmatchIndex(line, -1) {
		put(line[at:found[0]])
		now = now.after(line[found[2]:found[3]])
		at = found[1]
	}
	put(line[at:])
	return column
}

// after is the look that follows from codes.
func (l look) after(codes string) look {
	for code := range strings.SplitSeq(codes, ";") {
		switch n, _ := strconv.Atoi(code); {
		case n == 0:
			l = plainLook
		case n == 1:
			l.bold = true
		case n == 2:
			l.dim = true
		case n == 7:
			l.reverse = true
		case n == 22:
			l.bold, l.dim = false, false
		case n == 27:
			l.reverse = false
		case n >= 30 && n <= 37:
			l.colour = ansiColours[n-30]
		case n == 39:
			l.colour = plainLook.colour
		case n >= 90 && n <= 97:
			l.colour = ansiColours[n-90+8]
		}
	}
	return l
}

// shape is how a character is drawn: 'b' as a block, 'd' as dots, 'r' and 't' as
// text.
func shape(r rune) rune {
	switch {
	case r >= '▁' && r <= '█' || r >= '░' && r <= '▓':
		return 'b'
	case r >= 0x2800 && r <= 0x28ff:
		return 'd'
	case r == '·' || r == '─' || r == '╌':
		return 'r' // text, in runs of its own
	}
	return 't'
}

func drawRun(to *strings.Builder, run []rune, column, row int, l look) {
	x, y := around+float64(column)*cellWidth, around+float64(row)*cellHeight
	width := float64(len(run)) * cellWidth
	ink := l.colour
	if l.reverse {
		fmt.Fprintf(to, `<rect x="%g" y="%g" width="%g" height="%g" fill="%s"/>`+"\n", x, y, width, cellHeight, l.colour)
		ink = paper
	}
	faint := ""
	if l.dim {
		faint = ` opacity=".65"`
	}
	switch shape(run[0]) {
	case 'b':
		height, strength := cellHeight, map[rune]string{'░': ".3", '▒': ".5", '▓': ".7"}[run[0]]
		if strength != "" {
			faint = ` opacity="` + strength + `"`
		} else {
			height *= float64(run[0]-'▁'+1) / 8
		}
		gap := 0.0
		if height == cellHeight {
			gap = 1.5 // between the bars of two lines
		}
		fmt.Fprintf(to, `<rect x="%g" y="%g" width="%g" height="%.4g" fill="%s"%s/>`+"\n", x, y+cellHeight-height+gap, width, height-2*gap, ink, faint)
	case 'd':
		drawDots(to, run, x, y, ink+`"`+faint)
	default:
		weight := ""
		if l.bold {
			weight = ` font-weight="600"`
		}
		for _, word := range words.FindAllStringIndex(string(run), -1) {
			text := string(run)[word[0]:word[1]]
			from, width := utf8.RuneCountInString(string(run)[:word[0]]), utf8.RuneCountInString(text)
			fmt.Fprintf(to, `<text x="%g" y="%g" textLength="%g" lengthAdjust="spacingAndGlyphs" fill="%s"%s%s>%s</text>`+"\n",
				x+float64(from)*cellWidth, y+cellHeight*0.76, float64(width)*cellWidth, ink, weight, faint, html.EscapeString(text))
		}
	}
}

// words are texts with single spaces, each of which has its place: not every
// viewer obeys a text's length.
var words = regexp.MustCompile(`\S+(?: \S+)*`)

// dotBits are the bits of a braille character, by row and column of its dots.
var dotBits = [4][2]rune{{0x01, 0x08}, {0x02, 0x10}, {0x04, 0x20}, {0x40, 0x80}}

// drawDots draws braille as dashed lines, one for each row of dots beside one
// another.
func drawDots(to *strings.Builder, run []rune, x, y float64, ink string) {
	const step = cellWidth / 2
	for i, bits := range dotBits {
		height := y + (float64(i)+0.5)*cellHeight/4
		for at := 0; at < 2*len(run); at++ {
			n := 0
			for at+n < 2*len(run) && run[(at+n)/2]&bits[(at+n)%2] != 0 {
				n++
			}
			if n > 0 {
				fmt.Fprintf(to, `<path d="M%g %gH%g" stroke-dasharray="2.4 1.6" stroke-width="2.4" stroke="%s/>`+"\n", x+float64(at)*step+0.8, height, x+float64(at+n)*step, ink)
				at += n
			}
		}
	}
}
