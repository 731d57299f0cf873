package text

import (
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func TestCut(t *testing.T) {
	tests := []struct {
		text    string
		columns int
		want    string
	}{
		{"short", 5, "short"},
		{"longer", 5, "long…"},
		{"", 5, ""},
		{"x", 0, ""},
		{"xy", 1, "…"},
		{"训练模型", 8, "训练模型"},
		{"训练模型", 7, "训练模…"},
		{"训练模型", 6, "训练…"},
		{"✅ ok", 4, "✅ …"},
		{"e\u0301te\u0301", 3, "e\u0301te\u0301"},
	}
	for _, test := range tests {
		if got := Cut(test.text, test.columns); got != test.want {
			t.Errorf("Cut(%q, %d) = %q, want %q", test.text, test.columns, got, test.want)
		}
	}
}

func TestCutNeverTakesMoreThanItsColumns(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		s := rapid.StringOf(rapid.RuneFrom([]rune("ab 训练🚀e\u0301…"))).Draw(rt, "text")
		most := rapid.IntRange(1, 30).Draw(rt, "columns")
		got := Cut(s, most)
		if Width(got) > most {
			rt.Fatalf("%q takes %d columns of %d", got, Width(got), most)
		}
		if Width(s) <= most && got != s {
			rt.Fatalf("%q was cut to %q", s, got)
		}
		if kept := strings.TrimSuffix(got, "…"); got != s && !strings.HasPrefix(s, kept) {
			rt.Fatalf("%q is no beginning of %q", kept, s)
		}
	})
}

func TestPadAndWrap(t *testing.T) {
	if got := Pad("训练", 6) + "|" + Pad("abc", 2); got != "训练  |abc" {
		t.Errorf("%q", got)
	}
	if got := strings.Join(Wrap("one two  训练 much-too-long x", 8), "|"); got != "one two|训练|much-too-long|x" {
		t.Errorf("%q", got)
	}
}

func names() *Table {
	t := &Table{
		Columns:     []Column{{Title: "ID", Right: true}, {Title: "NAME"}, {Title: "NOTE", Shy: true}, {Title: "STATE"}},
		Concessions: []Concession{{"NAME", 4}, {"ID", 0}, {"NAME", 2}},
	}
	t.Add(Cell{Text: "7"}, Cell{Text: "训练模型"}, Cell{}, Cell{"running", Green})
	t.Add(Cell{Text: "12"}, Cell{Text: "train"}, Cell{}, Cell{Text: ""})
	return t
}

func TestTable(t *testing.T) {
	for _, test := range []struct {
		columns int
		colour  bool
		want    string
	}{
		{0, false, "ID  NAME      STATE\n 7  训练模型  running\n12  train\n"},
		{19, false, "ID  NAME    STATE\n 7  训练…   running\n12  train\n"},
		{17, false, "ID  NAME  STATE\n 7  训…   running\n12  tra…\n"},
		{15, false, "NAME    STATE\n训练…   running\ntrain\n"},
		{1, false, "N…  STATE\n…   running\nt…\n"},
		{0, true, "\x1b[1mID\x1b[0m  \x1b[1mNAME\x1b[0m      \x1b[1mSTATE\x1b[0m\n 7  训练模型  \x1b[32mrunning\x1b[0m\n12  train\n"},
	} {
		if got := names().Draw(test.columns, test.colour); got != test.want {
			t.Errorf("within %d columns:\n%s\nwant\n%s", test.columns, got, test.want)
		}
	}
	if got := names().Width(); got != 21 {
		t.Errorf("it takes %d columns", got)
	}
}

func TestTableWithoutTitles(t *testing.T) {
	table := Titled("", "")
	table.Row("now", "1 running")
	table.Row("over since", "")
	if got := table.String(); got != "now         1 running\nover since\n" {
		t.Errorf("%q", got)
	}
}
