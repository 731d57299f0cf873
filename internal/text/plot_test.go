package text

import (
	"math"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func TestAPlotShowsAreasTheLineAndWhatIsUnknown(t *testing.T) {
	nan := math.NaN()
	for name, test := range map[string]struct {
		plot Plot
		want string
	}{
		"ascii": {Plot{Values: []float64{0, 1, 2, 4, nan, 3}, Line: 3, Rows: 4, ASCII: true}, `
   4.0 +   #
   3.0 +   # #
       |  ## #
   0.0 + ### #`},
		"braille": {Plot{Values: []float64{0, 1, 2, 4, nan, nan, 3, 3}, Line: 3, Rows: 4}, `
   4.0 ┤ ⢸
   3.0 ┤╌⢸╌⣿
       │ ⣿ ⣿
   0.0 ┤⢸⣿ ⣿`},
		"a line above everything": {Plot{Values: []float64{1, 1}, Line: 8, Rows: 2, ASCII: true}, `
   8.0 +--
   0.0 +##`},
		"nothing": {Plot{Values: []float64{nan}, Rows: 2, ASCII: true}, `
   1.0 +
   0.0 +`},
	} {
		got := "\n" + strings.Join(test.plot.Draw(), "\n")
		if name == "ascii" {
			test.want = strings.Replace(test.want, "3.0 +   # #", "3.0 +---#-#", 1)
		}
		if got != test.want {
			t.Errorf("%s:%s\nwant%s", name, got, test.want)
		}
	}
}

func TestAPeakIsSeenHoweverShortItWas(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := Plot{Rows: rapid.IntRange(2, 20).Draw(t, "rows"), ASCII: rapid.Bool().Draw(t, "ascii"), Line: float64(rapid.IntRange(0, 50).Draw(t, "line"))}
		columns := rapid.IntRange(1, 60).Draw(t, "columns")
		p.Values = make([]float64, PlotSteps(columns, p.ASCII))
		at := rapid.IntRange(0, len(p.Values)-1).Draw(t, "at")
		p.Values[at] = 100
		top := []rune(p.Draw()[0])
		cell := 8 + at/PlotSteps(1, p.ASCII)
		if cell >= len(top) || top[cell] == ' ' {
			t.Fatalf("the peak at %d is not in %q", at, string(top))
		}
		for _, row := range p.Draw() {
			if Width(row) > 8+columns {
				t.Fatalf("%q takes more than %d columns", row, 8+columns)
			}
		}
	})
}

func TestSpark(t *testing.T) {
	values := []float64{0, 50, 100, math.NaN(), 120}
	if got := Spark(values, 100, false); got != "▁▅█ █" {
		t.Errorf("drawn %q", got)
	}
	if got := Spark(values, 100, true); got != "_+# #" {
		t.Errorf("drawn %q", got)
	}
}
