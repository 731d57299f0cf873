package sim

import (
	"errors"
	"io"
	"reflect"
	"strings"
	"testing"
	"testing/iotest"

	"berth/internal/text/problem"
)

const traceHeader = "job_id,submit_s,duration_s,gpus,gpu_milli,user,vram_mib,time_limit_s,priority\n"

func TestTraces(t *testing.T) {
	rows := []struct {
		name  string
		trace string
		want  []Job
	}{
		{"every column is read", traceHeader + "a,1,2.5,1,250,ann,2048,9,-3\n",
			[]Job{{ID: "a", User: "ann", Submit: 1000, Duration: 2500, GPUs: 1, Share: 0.25, VRAMMiB: 2048, Limit: 9000, Priority: -3}}},
		{"columns come in any order and case, others are ignored, the line is the id", "duration_s,group,SUBMIT_S\n5,x,1\n",
			[]Job{{ID: "2", Submit: 1000, Duration: 5000, GPUs: 1}}},
		{"what is blank is not known", traceHeader + "a,1,2,,,,,,\n", []Job{{ID: "a", Submit: 1000, Duration: 2000, GPUs: 1}}},
		{"Windows wrote it", "\ufeffsubmit_s,duration_s\r\n1,2\r\n\r\n3,4\r\n",
			[]Job{{ID: "2", Submit: 1000, Duration: 2000, GPUs: 1}, {ID: "4", Submit: 3000, Duration: 4000, GPUs: 1}}},
		{"fields may be quoted, with commas and line ends", "submit_s,duration_s,user\n1,2,\"ann, \"\"the\nboss\"\"\"\n\"3\",4,bob\n",
			[]Job{{ID: "2", User: "ann, \"the\nboss\"", Submit: 1000, Duration: 2000, GPUs: 1}, {ID: "4", User: "bob", Submit: 3000, Duration: 4000, GPUs: 1}}},
		{"whole numbers may have a point, and a whole share is a whole card", traceHeader + "a,1,2,2.0,1000,,,,\n", []Job{{ID: "a", Submit: 1000, Duration: 2000, GPUs: 2}}},
		{"a time limit has other names", "submit_s,duration_s,time_limit\n1,2,3\n", []Job{{ID: "2", Submit: 1000, Duration: 2000, GPUs: 1, Limit: 3000}}},
		{"what it really takes, and what program it is", "submit_s,duration_s,vram_mib,vram_used_mib,command\n1,2,100,200,python a.py\n",
			[]Job{{ID: "2", Submit: 1000, Duration: 2000, GPUs: 1, VRAMMiB: 100, UsedMiB: 200, Command: "python a.py"}}},
		{"a command wins over a name, in either order", "submit_s,duration_s,name,command,\n1,2,train,python a.py,\n1,2,train,,\n",
			[]Job{{ID: "2", Submit: 1000, Duration: 2000, GPUs: 1, Command: "python a.py"}, {ID: "3", Submit: 1000, Duration: 2000, GPUs: 1, Command: "train"}}},
		{"whether it can be parked, if that is said", "submit_s,duration_s,parks\n1,2,yes\n1,2,0\n1,2,\n",
			[]Job{{ID: "2", Submit: 1000, Duration: 2000, GPUs: 1, Parks: CanPark}, {ID: "3", Submit: 1000, Duration: 2000, GPUs: 1, Parks: CannotPark}, {ID: "4", Submit: 1000, Duration: 2000, GPUs: 1}}},
		{"whether it saves its own work, and how often", "submit_s,duration_s,checkpoint_s\n1,2,1800\n1,2,TERM\n1,2,0\n",
			[]Job{{ID: "2", Submit: 1000, Duration: 2000, GPUs: 1, Saves: 1_800_000}, {ID: "3", Submit: 1000, Duration: 2000, GPUs: 1, Saves: WhenTold}, {ID: "4", Submit: 1000, Duration: 2000, GPUs: 1}}},
		{"a last line needs no end", "submit_s,duration_s\n1,2", []Job{{ID: "2", Submit: 1000, Duration: 2000, GPUs: 1}}},
	}
	for _, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			w, err := ReadTrace("dir/t.csv", "t.csv", strings.NewReader(row.trace))
			if err != nil {
				t.Fatal(err)
			}
			if !reflect.DeepEqual(w.Jobs, row.want) || w.Source != "t.csv" || len(w.Places) != len(w.Jobs) {
				t.Errorf("%+v, want %+v", w.Jobs, row.want)
			}
		})
	}
}

func TestBadTracesAreRefusedWithFileAndLine(t *testing.T) {
	const head = "submit_s,duration_s,gpus,gpu_milli\n"
	rows := []struct{ name, trace, want string }{
		{"empty", "", "t.csv: expected a header and a line for each job, found an empty file"},
		{"no known column", "a,b\n1,2\n", "t.csv:1: expected a column submit_s, found none\nt.csv:1: expected a column duration_s, found none"},
		{"a column by another name", "submit_s,duration\n", "t.csv:1: expected a column duration_s, found none (is it duration?)"},
		{"a column twice", "submit_s,duration_s,submit_s\n", "t.csv:1: expected each column once, found submit_s twice"},
		{"no number", head + "1,2,1,1000\n1,soon,1,1000\n", `t.csv:3: duration_s: expected 0 to 1000000000 seconds, found "soon"`},
		{"neither yes nor no", "submit_s,duration_s,parks\n1,2,maybe\n", `t.csv:2: parks: expected yes or no, found "maybe"`},
		{"no time between saves", "submit_s,duration_s,checkpoint_s\n1,2,often\n", `t.csv:2: checkpoint_s: expected seconds (0 to 1000000000) or term, found "often"`},
		{"negative", head + "-1,2,1,\n", `t.csv:2: submit_s: expected 0 to 10000000000 seconds, found "-1"`},
		{"not a number", head + "NaN,2,1,\n", `t.csv:2: submit_s: expected 0 to 10000000000 seconds, found "NaN"`},
		{"infinite", head + "1,+Inf,1,\n", `t.csv:2: duration_s: expected 0 to 1000000000 seconds, found "+Inf"`},
		{"huge", head + "1,1e300,1,\n", `t.csv:2: duration_s: expected 0 to 1000000000 seconds, found "1e300"`},
		{"blank where it must not be", head + "1,,1,\n", `t.csv:2: duration_s: expected 0 to 1000000000 seconds, found ""`},
		{"half a GPU", head + "1,2,0.5,\n", `t.csv:2: gpus: expected a whole number from 0 to 1000000, found "0.5"`},
		{"more than a whole GPU", head + "1,2,1,1500\n", `t.csv:2: gpu_milli: expected a whole number from 0 to 1000, found "1500"`},
		{"too few fields", head + "1,2\n", "t.csv:2: expected 4 fields as in the header, found 2"},
		{"too many fields", head + "1,2,1,,\n", "t.csv:2: expected 4 fields as in the header, found 5"},
		{"an open quote", head + "1,2,\"1,\n", `t.csv:2: extraneous or missing " in quoted-field`},
		{"a long field is cut", head + strings.Repeat("9x", 50) + ",2,1,\n", `t.csv:2: submit_s: expected 0 to 10000000000 seconds, found "` + strings.Repeat("9x", 20) + `…"`},
		{"the line is right after a quoted line end", "submit_s,duration_s,user\n1,2,\"a\nb\"\n1,x,c\n", `t.csv:4: duration_s: expected 0 to 1000000000 seconds, found "x"`},
	}
	for _, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			_, err := ReadTrace("t.csv", "t.csv", strings.NewReader(row.trace))
			var usage *problem.Problem
			if !errors.As(err, &usage) || usage.What != row.want || usage.Hint == "" {
				t.Errorf("got %v\nwant %s", err, row.want)
			}
		})
	}
}

func TestMistakesOfATraceAreToldTogetherUpToABound(t *testing.T) {
	_, err := ReadTrace("t.csv", "t.csv", strings.NewReader("submit_s,duration_s\n"+strings.Repeat("x,1\n", 25)))
	lines := strings.Split(err.Error(), "\n")
	if len(lines) != maxTraceMistakes+1 || lines[maxTraceMistakes] != "and 15 more" || !strings.HasPrefix(lines[9], "t.csv:11: ") {
		t.Errorf("%q", lines)
	}
}

func TestATraceThatCannotBeReadOnIsNotTakenForAWholeOne(t *testing.T) {
	broken := io.MultiReader(strings.NewReader("submit_s,duration_s\n1,2\n"), iotest.ErrReader(errors.New("larger than 1024 MiB")))
	_, err := ReadTrace("t.csv", "t.csv", broken)
	if want := "t.csv: larger than 1024 MiB"; err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
}

func TestJobsWithoutAGPUAreCountedAndLeftOut(t *testing.T) {
	w, err := ReadTrace("t.csv", "t.csv", strings.NewReader("submit_s,duration_s,gpus,gpu_milli\n1,2,0,0\n1,2,1,1000\n"))
	if err != nil || len(w.Jobs) != 1 || w.LeftOut != 1 {
		t.Errorf("%+v, %v", w, err)
	}
}
