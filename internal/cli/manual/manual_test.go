package manual_test

import (
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"berth/internal/cli/manual"
)

const sample = "# The `title`\n\n" +
	"A paragraph with **bold**, `code span` and a [link](../howto/why.md#now) that is longer than forty columns.\n\n" +
	"<!-- generated -->\n" +
	"## First part\n\n" +
	"- one, see [the page](why.md) again\n- two\n  - nested and long enough to be wrapped at forty columns\n\n" +
	"1. first\n2. second\n\n" +
	"```\n$ berth list   --all  # a line of code is as long as it is\n```\n\n" +
	"| key | what it says |\n| --- | --- |\n| `a` | short |\n| `b\\|c` | several words that do not fit into one line &lt;id> |\n\n" +
	"## Second part\n\nThe end: [outside](https://example.org), [not here](../studies/x.md) ([order](order.md)).\n"

func TestAPageForATerminal(t *testing.T) {
	page := manual.Parse("reference/sample.md", []byte(sample))
	if page.Topic != "sample" || page.Kind != "reference" || page.Title != "The `title`" {
		t.Errorf("%q %q %q", page.Topic, page.Kind, page.Title)
	}
	style := manual.Style{Columns: 40, Word: func(topic string) string { return map[string]string{"why": "howto/why", "order": "order"}[topic] }}
	want := `The ` + "`title`" + `
===========

A paragraph with bold, ` + "`code span`" + ` and a
link that is longer than forty columns.

See also: berth help howto/why

First part
----------

- one, see the page again
- two
  - nested and long enough to be wrapped
    at forty columns

1. first
2. second

  $ berth list   --all  # a line of code is as long as it is

key    what it says
-----  ---------------------------------
` + "`a`" + `    short
` + "`b|c`" + `  several words that do not fit
       into one line <id>

Second part
-----------

The end: outside (https://example.org),
not here (order).

See also: berth help order
`
	if diff := cmp.Diff(want, page.Text(style)); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]string{"First part", "Second part"}, page.Sections()); diff != "" {
		t.Error(diff)
	}
	second := manual.Parse("sample.md", []byte(sample)).Section("Second part").Text(style)
	if !strings.HasPrefix(second, "Second part\n-----------\n\nThe end: ") {
		t.Errorf("%s", second)
	}
}

func TestColoursAddNoWidth(t *testing.T) {
	page := manual.Parse("sample.md", []byte("# T\n\nSome **bold words that go on and on** and `code`.\n\n| a | b |\n| - | - |\n| `x` | y |\n"))
	got := page.Text(manual.Style{Columns: 20, Colour: true})
	want := "\x1b[1mT\x1b[0m\n\nSome \x1b[1mbold\x1b[0m \x1b[1mwords\x1b[0m \x1b[1mthat\x1b[0m\n\x1b[1mgo\x1b[0m \x1b[1mon\x1b[0m \x1b[1mand\x1b[0m \x1b[1mon\x1b[0m and\n\x1b[1mcode\x1b[0m.\n\n" +
		"\x1b[1ma\x1b[0m  \x1b[1mb\x1b[0m\n\x1b[1mx\x1b[0m  y\n"
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestATableThatDoesNotFitBecomesAList(t *testing.T) {
	page := manual.Parse("sample.md", []byte("| key | what it says | default | |\n| - | - | - | - |\n| `key` | a sentence that is much wider than a column | a_word_of_twenty_five_let | restart |\n"))
	want := "`key`\n    a sentence that is much wider than\n      a column\n    default: a_word_of_twenty_five_let\n    restart\n"
	if diff := cmp.Diff(want, page.Text(manual.Style{Columns: 40})); diff != "" {
		t.Error(diff)
	}
}

func FuzzPage(f *testing.F) {
	f.Add(sample)
	f.Fuzz(func(t *testing.T, source string) {
		if !utf8.ValidString(source) {
			return
		}
		page := manual.Parse("x/y.md", []byte(source))
		for _, columns := range []int{1, 80} {
			page.Text(manual.Style{Columns: columns, Colour: true})
		}
		for _, title := range page.Sections() {
			page.Section(title)
		}
	})
}

func TestAPageAsAManPage(t *testing.T) {
	page := manual.Parse("reference/config.md", []byte("# Title\n\n.dot and a\\\\b, [why](../howto/why.md), [config.md](config.md).\n\n## Part\n\n- `--flag`\n\n```\n'quoted\n```\n\n| key | default |\n| - | - |\n| `a` | b |\n"))
	want := `.TH "BERTH-CONFIG" 5 "" "berth 1.2" "berth"
.nh
.SH NAME
berth-config \- Title
.SH DESCRIPTION
\&.dot and a\eb, why (\fBberth\-why\fR(7)), config.md.
.SH PART
.IP \(bu 4
\fB\-\-flag\fR
.PP
.RS 4
.nf
\&'quoted
.fi
.RE
.TP
\fBa\fR
b
.SH SEE ALSO
\fBberth\fR(1)
`
	if diff := cmp.Diff(want, page.Man("1.2", func(string) bool { return true })); diff != "" {
		t.Error(diff)
	}
	if page.ManName() != "man5/berth-config.5" {
		t.Error(page.ManName())
	}
}

func TestAVerbAsAManPage(t *testing.T) {
	verb := manual.Verb{
		Path: "berth gpu pause", Synopsis: "berth gpu pause N", Short: "Pause GPUs", Long: "One line.\n  kept as it is\n\nAnother.",
		Example: "  berth gpu pause 0\n\nExit status: 0 done.", Flags: []manual.Flag{{Forms: "-q, --quiet", Help: "say nothing"}}, SeeAlso: []string{"berth gpu"},
	}
	want := `.TH "BERTH-GPU-PAUSE" 1 "" "berth 1.2" "berth"
.nh
.SH NAME
berth\-gpu\-pause \- Pause GPUs
.SH SYNOPSIS
\fBberth gpu pause\fR N
.SH DESCRIPTION
One line.
.RS 4
.nf
  kept as it is
.fi
.RE
.PP
Another.
.SH OPTIONS
.TP
\fB\-q, \-\-quiet\fR
say nothing
.SH EXAMPLES
.RS 4
.nf
  berth gpu pause 0
.fi
.RE
.SH EXIT STATUS
0 done.
.SH SEE ALSO
\fBberth\-gpu\fR(1)
`
	if diff := cmp.Diff(want, verb.Man("1.2")); diff != "" {
		t.Error(diff)
	}
	if verb.ManName() != "man1/berth-gpu-pause.1" {
		t.Error(verb.ManName())
	}
}
