package jobfile

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"berth/internal/job"
	"berth/internal/text"
)

// csvLine is a line as a test writes down what was read.
func csvLine(j CSVJob) string {
	return fmt.Sprintf("%d: %d|%s|%s|%q|%v", j.Line, j.Priority, j.Script, j.Conda, j.Words, j.Allow)
}

// The example of the format's own page, with its third line's commas.
//
// seeds: S13 S16
func TestCSVReadsTheExample(t *testing.T) {
	jobs, err := ParseCSV("jobs.txt", []byte(`# Comments start with #
0,/path/to/train.py,pytorch_env,--llm qwen2.5-7b-inst --epochs 100,0-3

1,/path/to/eval.py,pytorch_env,--llm qwen2.5-3b-inst --dataset test,
2,/path/to/inference.py,,--llm qwen2.5-32b-inst --batch_size 1,4,5,6,7`))
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, j := range jobs {
		got = append(got, csvLine(j))
	}
	want := []string{
		`2: 0|/path/to/train.py|pytorch_env|["--llm" "qwen2.5-7b-inst" "--epochs" "100"]|[0 1 2 3]`,
		`4: 1|/path/to/eval.py|pytorch_env|["--llm" "qwen2.5-3b-inst" "--dataset" "test"]|[]`,
		`5: 2|/path/to/inference.py||["--llm" "qwen2.5-32b-inst" "--batch_size" "1"]|[4 5 6 7]`,
	}
	if !slices.Equal(got, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// seeds: S13 S16 R9
func TestCSVLines(t *testing.T) {
	for _, row := range []struct{ says, line, want string }{
		{"an execution type before the arguments", "0,a.py,env,python,--x 1,0-1", `1: 0|a.py|env|["--x" "1"]|[0 1]`},
		{"an execution type alone", "0,a.py,,torchrun-2gpu", `1: 0|a.py||[]|[]`},
		{"quoted arguments behind an execution type", `0,a.py,,torchrun-4gpu,"--x ""1,2""",2,3`, `1: 0|a.py||["--x" "1,2"]|[2 3]`},
		{"what only begins like an execution type", "0,a.py,,torchrun-gpu,1", `1: 0|a.py||["torchrun-gpu"]|[1]`},
		{"two fields are enough", "3,a.py", `1: 3|a.py||[]|[]`},
		{"three", "3,a.py,env", `1: 3|a.py|env|[]|[]`},
		{"four", "-3,a.py,,-x", `1: -3|a.py||["-x"]|[]`},
		{"white space around fields says nothing", " 3 , a b.py ,\tenv , -x  1 , 0 - 1 , 3 ", `1: 3|a b.py|env|["-x" "1"]|[0 1 3]`},
		{"lines may end as on Windows", "3,a.py,env,-x,0\r\n", `1: 3|a.py|env|["-x"]|[0]`},
		{"a mark at the front of the file is passed", "\ufeff3,a.py", `1: 3|a.py||[]|[]`},
		{"ids and ranges are mixed, and sorted", "0,a.py,,,7,0-2,5", `1: 0|a.py||[]|[0 1 2 5 7]`},
		{"an id twice is there once", "0,a.py,,,1,0-2,1", `1: 0|a.py||[]|[0 1 2]`},
		{"ids may stand in quotes", `0,a.py,,,"1,3"`, `1: 0|a.py||[]|[1 3]`},
		{"commas at the end say nothing", "0,a.py,,,1,,", `1: 0|a.py||[]|[1]`},
		{"commas in double quotes do not split", `0,a.py,,--prompt "a, b" -n 2,1`, `1: 0|a.py||["--prompt" "a, b" "-n" "2"]|[1]`},
		{"nor in single ones", `0,a.py,,--prompt 'a, "b"',1`, `1: 0|a.py||["--prompt" "a, \"b\""]|[1]`},
		{"nor behind a backslash", `0,a.py,,--tags a\,b,1`, `1: 0|a.py||["--tags" "a,b"]|[1]`},
		{"a backslash hides a quote", `0,a.py,,--say \"hi\",1`, `1: 0|a.py||["--say" "\"hi\""]|[1]`},
		{"quotes in quotes", `0,a.py,,--say "a \" , b",1`, `1: 0|a.py||["--say" "a \" , b"]|[1]`},
		{"a field in quotes, with its own doubled", `0,"a,b.py","my ""env""","--say ""a, b"" --n 1",2`, `1: 0|a,b.py|my "env"|["--say" "a, b" "--n" "1"]|[2]`},
		{"a word in quotes at the front is not a quoted field", `0,a.py,,"x y" z,2`, `1: 0|a.py||["x y" "z"]|[2]`},
		{"an apostrophe in a path is a letter", `0,/home/o'neil/a.py,,-x,2`, `1: 0|/home/o'neil/a.py||["-x"]|[2]`},
		{"an empty argument stays", `0,a.py,,--tag '' -x`, `1: 0|a.py||["--tag" "" "-x"]|[]`},
		{"nothing is expanded, nothing is a comment", `0,a.py,,$HOME *.txt ~ #1 a;b`, `1: 0|a.py||["$HOME" "*.txt" "~" "#1" "a;b"]|[]`},
	} {
		jobs, err := ParseCSV("f", []byte(row.line))
		if err != nil || len(jobs) != 1 {
			t.Errorf("%s: %d jobs, %v", row.says, len(jobs), err)
			continue
		}
		if got := csvLine(jobs[0]); got != row.want {
			t.Errorf("%s:\ngot  %s\nwant %s", row.says, got, row.want)
		}
	}
}

// seeds: S13
func TestCSVTellsEveryMistakeAndKeepsTheGoodLines(t *testing.T) {
	jobs, err := ParseCSV("jobs.txt", []byte(strings.Join([]string{
		"0,a.py", "train.py", "high,b.py", ",b.py", "0,,env", "0,b.py,,--say \"hi,1", "0,b.py,,a\\", "0,b.py,,,x", "0,b.py,,,3-1",
		"0,b.py,,--layers 1,2,three", "9999999999,b.py", "0,a\x00b.py", "1.5,b.py", "1,z.py",
	}, "\n")))
	var errs *Errors
	if !errors.As(err, &errs) {
		t.Fatalf("error %v", err)
	}
	want := []string{
		`jobs.txt:2: expected priority,script_path,conda_env,arguments,allowed_gpus (at least the first two), found one field`,
		`jobs.txt:3: priority: expected a whole number (lower starts first), found "high"`,
		`jobs.txt:4: priority: expected a whole number (lower starts first), found nothing`,
		`jobs.txt:5: script_path: expected the path of a Python script, found nothing`,
		`jobs.txt:6: arguments: expected a closing quote, found the end of the line`,
		`jobs.txt:7: arguments: expected a character after the backslash, found the end of the line`,
		`jobs.txt:8: allowed_gpus: expected GPU ids from 0 to 1023 such as 0-3,5, found "x"; put arguments with commas in quotes`,
		`jobs.txt:9: allowed_gpus: expected GPU ids from 0 to 1023 such as 0-3,5, found "3-1"; put arguments with commas in quotes`,
		`jobs.txt:10: allowed_gpus: expected GPU ids from 0 to 1023 such as 0-3,5, found "2,three"; put arguments with commas in quotes`,
		`jobs.txt:11: priority: expected a whole number (lower starts first), found "9999999999"`,
		`jobs.txt:12: expected one line of text, found a line end or a NUL byte in "a\x00b.py"`,
		`jobs.txt:13: priority: expected a whole number (lower starts first), found "1.5"`,
	}
	if got := err.Error(); got != strings.Join(want, "\n") {
		t.Errorf("got\n%s\nwant\n%s", got, strings.Join(want, "\n"))
	}
	if len(jobs) != 2 || jobs[0].Script != "a.py" || jobs[1].Script != "z.py" || jobs[1].Line != 14 {
		t.Errorf("good lines: %+v", jobs)
	}
}

// seeds: S14 S17 S19 S21 S22 S23
func TestCSVSpec(t *testing.T) {
	sizes, err := ParseSizes("s", []byte(`{"default_requirement": 1.0, "models": {"small": 0.5, "large": 2.5, "known": {"gpus": 2, "vram": "18G"}}}`))
	if err != nil {
		t.Fatal(err)
	}
	for _, row := range []struct {
		says, line string
		want       func(*job.Spec)
	}{
		{"a script alone takes one card", "0,a.py", func(*job.Spec) {}},
		{"a lower number comes first", "-5,a.py", func(s *job.Spec) { s.Priority = 5 }},
		{"a higher one later", "7,a.py", func(s *job.Spec) { s.Priority = -7 }},
		{"environment and cards", "0,a.py,env,,1-2", func(s *job.Spec) { s.Conda, s.Allow = "env", []int{1, 2} }},
		{"a small model takes a share", "0,a.py,,--llm small", func(s *job.Spec) { s.Share = 0.5 }},
		{"a large one whole cards", "0,a.py,,--llm large", func(s *job.Spec) { s.GPUs = 3 }},
		{"torchrun takes a card for each process, and no --cuda", "0,a.py,,torchrun-4gpu,--llm small", func(s *job.Spec) {
			s.Argv, s.GPUs, s.Inject = []string{"torchrun", "--nnodes=1", "--nproc-per-node=4", "a.py", "--llm", "small"}, 4, ""
		}},
		{"python is what runs without an execution type", "0,a.py,,python,--llm small", func(s *job.Spec) { s.Share = 0.5 }},
		{"a number is an argument", "0,a.py,,1", func(s *job.Spec) {}},
		{"memory goes along", "0,a.py,,--llm known", func(s *job.Spec) { s.GPUs, s.VRAMMiB = 2, 18<<10 }},
	} {
		jobs, err := ParseCSV("f", []byte(row.line))
		if err != nil {
			t.Fatal(err)
		}
		got, err := jobs[0].Spec(sizes)
		want := job.Defaults()
		want.Argv = append([]string{"python", "-u", "a.py"}, jobs[0].Words...)
		want.Inject = "--cuda=physical"
		row.want(&want)
		if err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%s: %v\ngot  %+v\nwant %+v", row.says, err, got, want)
		}
	}
	j := CSVJob{Script: "a.py", Words: []string{"--llm", "large"}, Allow: []int{0, 1}}
	if _, err := j.Spec(sizes); err == nil {
		t.Error("three cards out of two were not refused")
	}
}

// seeds: R8
func TestCSVKeyIsTheContent(t *testing.T) {
	key := func(line string) string {
		jobs, err := ParseCSV("f", []byte(line))
		if err != nil {
			t.Fatal(err)
		}
		return jobs[0].Key()
	}
	one := key("0,a.py,env,--x 1 --y 2,0")
	for _, same := range []string{"5,a.py,env,--x 1 --y 2,3", `0, a.py ,env,"--x  1 --y '2'"`} {
		if key(same) != one {
			t.Errorf("%q is another job", same)
		}
	}
	seen := map[string]string{one: ""}
	for _, other := range []string{
		"0,a.py,env,--y 2 --x 1", "0,a.py,env,--x 2 --y 1", "0,b.py,env,--x 1 --y 2", "0,a.py,,--x 1 --y 2",
		"0,a.py,env,--x '1 --y' 2", "0,a.py,env,--x 1 --y 2 ''", "0,a.py", "0,a.py,,''",
	} {
		if twin, found := seen[key(other)]; found {
			t.Errorf("%q is taken for %q", other, twin)
		}
		seen[key(other)] = other
	}
}

// What FormatCSV writes is read back the same, whatever the fields hold.
//
// seeds: S13 S16 R9
func TestCSVRoundTrip(t *testing.T) {
	field := rapid.StringOfN(rapid.SampledFrom([]rune(`ab ,"'\#-0	é`)), 0, 12, -1)
	rapid.Check(t, func(t *rapid.T) {
		j := CSVJob{
			Line: 1, Priority: rapid.IntRange(-9, 9).Draw(t, "priority"),
			Script: field.Draw(t, "script"), Conda: field.Draw(t, "conda"), Arguments: field.Draw(t, "arguments"),
			Allow: rapid.SliceOfNDistinct(rapid.IntRange(0, maxID), 0, 4, rapid.ID[int]).Draw(t, "allow"),
		}
		slices.Sort(j.Allow)
		if len(j.Allow) == 0 {
			j.Allow = nil
		}
		if j.Check() != nil {
			t.Skip("no line can say it")
		}
		j.Words, _ = text.ShellWords(j.Arguments, false)
		line := FormatCSV(j)
		got, err := ParseCSV("f", []byte(line+"\n"))
		if err != nil || len(got) != 1 || !reflect.DeepEqual(got[0], j) {
			t.Fatalf("%q: %v\ngot  %+v\nwant %+v", line, err, got, j)
		}
	})
}

func TestFormatCSVIsPlainWhereItCan(t *testing.T) {
	for want, j := range map[string]CSVJob{
		"0,a.py,,,":                             {Script: "a.py"},
		`2,/p/a b.py,env,--say "a, b" -x,0,1,2`: {Priority: 2, Script: "/p/a b.py", Conda: "env", Arguments: `--say "a, b" -x`, Allow: []int{0, 1, 2}},
		`0,"a,b.py",,"--n 1,2",`:                {Script: "a,b.py", Arguments: "--n 1,2"},
	} {
		if got := FormatCSV(j); got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	}
}

func FuzzParseCSV(f *testing.F) {
	f.Add([]byte("0,a.py,env,--x \"a, b\",0-3\n# c\n1,\"a\"\"b\",,'x',\r\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		jobs, err := ParseCSV("f", text)
		var errs *Errors
		if err != nil && (!errors.As(err, &errs) || len(errs.Problems) == 0) {
			t.Fatalf("%#v", err)
		}
		for _, j := range jobs {
			again, err := ParseCSV("f", []byte(FormatCSV(j)))
			j.Line = 1
			if err != nil || len(again) != 1 || !reflect.DeepEqual(again[0], j) {
				t.Fatalf("%q: %v\ngot  %+v\nwant %+v", FormatCSV(j), err, again, j)
			}
		}
	})
}
