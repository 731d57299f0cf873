package sweep

import (
	"bytes"
	"encoding/json"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"berth/internal/job"
)

func TestParseAxis(t *testing.T) {
	t.Parallel()
	rows := []struct{ written, want, wrong string }{
		{"lr=1e-3,1e-4", "1e-3|1e-4", ""},
		{"seed=0-4", "0|1|2|3|4", ""},
		{"seed=0-10:5,20", "0|5|10|20", ""},
		{"shard=008-010", "008|009|010", ""},
		{`name="a, b",'c"d',e f`, `a, b|c"d|e f`, ""},
		{`q="1-3"`, "1-3", ""},
		{"model.lr=ü", "ü", ""},
		{"x=''", "", ""},
		{"x=1-2-3", "1-2-3", ""},
		{"x=-3-4", "-3-4", ""},
		{"x=a=b", "a=b", ""},
		{"x=", "", "expected a value"},
		{"x=1,,2", "", "expected a value"},
		{"x", "", "NAME=VALUE"},
		{"1x=1", "", "NAME=VALUE"},
		{"x=4-0", "", "low to high"},
		{"x=0-99999999", "", "at most"},
		{`x="a`, "", "closing quote"},
		{`x="a"b`, "", "comma after"},
	}
	for _, row := range rows {
		a, err := ParseAxis(row.written)
		if row.wrong != "" || err != nil {
			if err == nil || row.wrong == "" || !strings.Contains(err.Error(), row.wrong) {
				t.Errorf("%s: %v, want %q", row.written, err, row.wrong)
			}
			continue
		}
		var got []string
		for _, r := range a.Rows {
			got = append(got, r[0])
		}
		if strings.Join(got, "|") != row.want {
			t.Errorf("%s: %q, want %s", row.written, got, row.want)
		}
	}
}

func TestReadGrid(t *testing.T) {
	t.Parallel()
	rows := []struct{ content, want, wrong string }{
		{"\ufefflr, name\n1e-3,\"a, \"\"b\"\"\"\n1e-4,c\n", `1e-3;a, "b"|1e-4;c`, ""},
		{"", "", "names of the parameters"},
		{"lr\n", "", "rows of values"},
		{"lr,seed\n1\n", "", "line 2: expected 2 values, found 1"},
	}
	for _, row := range rows {
		a, err := ReadGrid(row.content)
		if row.wrong != "" {
			if err == nil || !strings.Contains(err.Error(), row.wrong) {
				t.Errorf("%q: %v", row.content, err)
			}
			continue
		}
		var got []string
		for _, r := range a.Rows {
			got = append(got, strings.Join(r, ";"))
		}
		if err != nil || strings.Join(got, "|") != row.want || !slices.Equal(a.Names, []string{"lr", "name"}) {
			t.Errorf("%q: %q %q, %v", row.content, a.Names, got, err)
		}
	}
}

func axis(name string, values ...string) Axis {
	a := Axis{Names: []string{name}}
	for _, v := range values {
		a.Rows = append(a.Rows, []string{v})
	}
	return a
}

func joined(trials [][]job.Param) string {
	var all []string
	for _, trial := range trials {
		var one []string
		for _, p := range trial {
			one = append(one, p.Value)
		}
		all = append(all, strings.Join(one, ","))
	}
	return strings.Join(all, " ")
}

func TestTrials(t *testing.T) {
	t.Parallel()
	grid := Axis{Names: []string{"a", "b"}, Rows: [][]string{{"1", "x"}, {"2", "y"}}}
	trials, err := Trials([]Axis{grid, axis("c", "p", "q")}, 10)
	if got, want := joined(trials), "1,x,p 1,x,q 2,y,p 2,y,q"; err != nil || got != want {
		t.Errorf("%s, %v; want %s", got, err, want)
	}
	for wrong, axes := range map[string][]Axis{
		"at most 3":   {axis("a", "1", "2"), axis("b", "1", "2")},
		"a twice":     {axis("a", "1"), axis("a", "2")},
		"\"1\" twice": {axis("a", "1", "1")},
		"row 2":       {{Names: []string{"a", "b"}, Rows: [][]string{{"1", "2"}, {"1", "2"}}}},
		"at least":    {{Names: []string{"a"}}},
		"2 values":    {{Names: []string{"a", "b"}, Rows: [][]string{{"1"}}}},
		"NUL":         {axis("a", "\x00")},
		"name of a":   {axis("a b", "1")},
		"1 to 100":    {},
		"at most 3 t": {axis("a", "1", "2", "3", "4")},
	} {
		if _, err := Trials(axes, 3); err == nil || !strings.Contains(err.Error(), wrong) {
			t.Errorf("%v, want %q", err, wrong)
		}
	}
}

// TestMoreAddsNoTrialTwice: new values are combined with what the sweep has of its
// other parameters, as rows of a file where they came from one.
func TestMoreAddsNoTrialTwice(t *testing.T) {
	t.Parallel()
	have, _ := Trials([]Axis{axis("lr", "1", "2"), axis("seed", "0", "1")}, 10)
	more, err := More(have, []Axis{axis("lr", "2", "3")}, 10)
	if got, want := joined(more), "3,0 3,1"; err != nil || got != want {
		t.Errorf("%s, %v; want %s", got, err, want)
	}
	if again, err := More(append(have, more...), []Axis{axis("lr", "3")}, 10); err != nil || len(again) != 0 {
		t.Errorf("again: %s, %v", joined(again), err)
	}
	if _, err := More(have, []Axis{axis("lrr", "3")}, 10); err == nil || !strings.Contains(err.Error(), "lr, seed") {
		t.Error(err)
	}
	if _, err := More(have, []Axis{axis("lr", "3", "4")}, 3); err == nil {
		t.Error("more than the limit")
	}
}

func TestPlaceholders(t *testing.T) {
	t.Parallel()
	rows := []struct{ shell, want, wrong string }{
		{"x {a}", "x 'v w'", ""},
		{"x {{a}} {a}", "x {a} 'v w'", ""},
		{"x ${{a}} {a}", "x ${a} 'v w'", ""},
		{`x "{a}"`, `x "v w"`, ""},
		{"x '{a}'", "x 'v w'", ""},
		{"x $(date +%s) {a}", "x $(date +%s) 'v w'", ""},
		{"x {b} {a}", "", "no parameter for {b}"},
		{"x ${a}", "", "${{a}}"},
		{"x {a", "", "found \"{a\""},
		{"x {a}}", "", "} without {"},
		{"x {} {a}", "", "expected {NAME}"},
		{"awk '{print}' {a}", "", "no parameter for {print}"},
		{"x", "", "parameter a is not used"},
		{"x `y {a}`", "", "cannot quote it there"},
		{"x $(y {a})", "", "cannot quote it there"},
		{"x # {a}", "", "cannot quote it there"},
		{"x <<E\n{a}\nE", "", "cannot quote it there"},
		{`x \{a}`, "", "cannot quote it there"},
	}
	for _, row := range rows {
		m, err := NewMaker(&job.Template{Shell: row.shell}, []string{"a"})
		var made job.Template
		if err == nil {
			made, err = m.Make([]job.Param{{Name: "a", Value: "v w"}})
		}
		switch {
		case row.wrong != "" && (err == nil || !strings.Contains(err.Error(), row.wrong)):
			t.Errorf("%s: %v, want %q", row.shell, err, row.wrong)
		case row.wrong == "" && (err != nil || made.Shell != row.want):
			t.Errorf("%s: %q, %v", row.shell, made.Shell, err)
		}
	}
}

func TestANearbyParameterIsSuggested(t *testing.T) {
	t.Parallel()
	if _, err := NewMaker(&job.Template{Argv: []string{"x", "{sed}"}}, []string{"seed"}); err == nil || !strings.Contains(err.Error(), "did you mean {seed}") {
		t.Error(err)
	}
}

// TestValuesSurviveTheShell: whatever a value is, and wherever a template puts it, a
// program gets exactly that value, or the sweep is refused.
func TestValuesSurviveTheShell(t *testing.T) {
	t.Parallel()
	alphabet := rapid.SampledFrom([]rune("ab0 ,'\"\\$`(){}<>|&;#*?~!=%\n\tü€-"))
	around := rapid.SampledFrom([]string{
		"%", "'%'", `"%"`, "--k=%", `a"b %"c`, "'x'%'y'", `"$(echo z)"%`, "${HOME}%", `\\%`, `"it's %"`, `'"'%`, "`echo z`%", "$(echo %)",
		"x#%", `"a\"%"`, "$((1+1))%", "${X:-y}%", `"${X:-"%"}"`, `a\ %`, "\"`echo %`\"", `$'%'`, `"\%"`,
	})
	refused, done := 0, 0
	rapid.Check(t, func(t *rapid.T) {
		value := string(rapid.SliceOfN(alphabet, 0, 8).Draw(t, "value"))
		form := around.Draw(t, "form")
		template := func(inside string) string {
			return "printf '%s\\0' " + strings.ReplaceAll(strings.ReplaceAll(strings.ReplaceAll(form, "{", "{{"), "}", "}}"), "%", inside)
		}
		const mark = "MARK"
		m, err := NewMaker(&job.Template{Shell: template("{v}"), Argv: []string{"p", "{v}"}}, []string{"v"})
		if err != nil {
			if strings.Contains(err.Error(), "${{v}}") {
				t.Skip()
			}
			t.Fatal(err)
		}
		made, err := m.Make([]job.Param{{Name: "v", Value: value}})
		if err != nil {
			refused++
			return
		}
		if made.Argv[1] != value {
			t.Fatalf("a word: %q, want %q", made.Argv[1], value)
		}
		// What the shell makes of the template around a harmless value is around any other.
		expected, err := m.Make([]job.Param{{Name: "v", Value: mark}})
		if err != nil {
			t.Fatal(err)
		}
		got, errGot := exec.Command("/bin/sh", "-c", made.Shell).Output()
		want, errWant := exec.Command("/bin/sh", "-c", expected.Shell).Output()
		if errGot != nil || errWant != nil || !bytes.Equal(got, bytes.ReplaceAll(want, []byte(mark), []byte(value))) {
			t.Fatalf("%s\nprinted %q, %v; want %q for %q, %v", made.Shell, got, errGot, want, value, errWant)
		}
		done++
	})
	if done == 0 || refused == 0 {
		t.Errorf("%d ran, %d were refused: the generator makes only one kind", done, refused)
	}
}

func pick(t *testing.T, log string, written ...string) string {
	t.Helper()
	metrics, err := ParseMetrics(written)
	if err != nil {
		return err.Error()
	}
	var all []string
	for _, step := range []int{1, 3, len(log) + 1} {
		p := NewPicker(metrics)
		for part := range slices.Chunk([]byte(log), step) {
			if _, err := p.Write(part); err != nil {
				t.Fatal(err)
			}
		}
		var words []string
		for i, v := range p.Values() {
			word := metrics[i].Name + "=none"
			if v != nil {
				word = metrics[i].Name + "=" + v.Text
			}
			words = append(words, word)
		}
		all = append(all, strings.Join(words, " "))
	}
	if all[0] != all[2] || all[1] != all[2] {
		t.Errorf("in parts: %q", all)
	}
	return all[0]
}

func TestMetrics(t *testing.T) {
	t.Parallel()
	const log = "epoch 1 val_acc=0.81 loss: 2.0\r\nepoch 2 val_acc=0.93 loss: 1.5\nepoch 3 val_acc=0.90 loss: nan\n{\"step\": 3, \"val\": {\"acc\": 0.5}, \"f1\": 7}\nbar 10%\rbar 20%"
	rows := []struct{ metric, want string }{
		{"val_acc=([0-9.]+)", "val_acc=0.90"},
		{"max:val_acc=([0-9.]+)", "val_acc=0.93"},
		{"min:val_acc=([0-9.]+)", "val_acc=0.81"},
		{"last:=(?P<acc>[0-9.]+)", "acc=0.90"},
		{"val_acc", "val_acc=0.90"},
		{"max:val_acc", "val_acc=0.93"},
		{"min:loss", "loss=1.5"},
		{"loss", "loss=nan"},
		{"val.acc", "val.acc=0.5"},
		{"f1", "f1=7"},
		{"acc", "acc=none"},
		{"bar ([0-9]+)%", "bar=20"},
		{"nothing=(x)", "nothing=none"},
	}
	for _, row := range rows {
		if got := pick(t, log, row.metric); got != row.want {
			t.Errorf("%s: %s, want %s", row.metric, got, row.want)
		}
	}
	for metric, wrong := range map[string]string{
		"a=(b":                          "RE2",
		"val acc":                       "one group",
		"(a)(b)":                        "one group",
		"((a{100}){100}){10}(b)":        "invalid repeat",
		"((a{30}){30})":                 "smaller",
		strings.Repeat("x", 251) + "()": "at most 250 bytes",
	} {
		if _, err := parseMetric(metric); err == nil || !strings.Contains(err.Error(), wrong) {
			t.Errorf("%.40s: %v, want %q", metric, err, wrong)
		}
	}
	if got := pick(t, log, "val_acc", "max:val_acc"); !strings.Contains(got, "twice") {
		t.Error(got)
	}
	if got := pick(t, strings.Repeat("x", 2*maxLine)+" a=1\na=2", "a"); got != "a=2" {
		t.Errorf("a long line: %s", got)
	}
}

func FuzzPicker(f *testing.F) {
	f.Add([]byte("a=1\n{\"a\": 2}\r"), "a")
	f.Add([]byte("{\"a\": {\"b\": [1]}}"), "max:a.b")
	f.Fuzz(func(t *testing.T, log []byte, written string) {
		m, err := parseMetric(written)
		if err != nil {
			return
		}
		p := NewPicker([]Metric{m})
		_, _ = p.Write(log)
		for _, v := range p.Values() {
			if v != nil {
				if _, err := json.Marshal(v.JSON()); err != nil {
					t.Error(err)
				}
			}
		}
	})
}
