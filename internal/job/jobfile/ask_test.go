package jobfile

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"berth/internal/job"
)

// noon is a Sunday's, in a zone that is not the machine's.
var noon = time.Date(2026, 3, 1, 12, 0, 0, 0, time.FixedZone("X", 2*3600))

// pairs reads "key=value" and "key" as they would come from flags.
func pairs(words ...string) []Pair {
	var list []Pair
	for _, word := range words {
		key, value, found := strings.Cut(word, "=")
		if f, err := Lookup(key); !found && err == nil {
			value = f.Alone
		}
		list = append(list, Pair{Key: key, Value: value})
	}
	return list
}

func asked(changes ...func(*Asked)) Asked {
	a := Asked{Spec: job.Defaults()}
	for _, change := range changes {
		change(&a)
	}
	return a
}

func TestKeysBecomeAJob(t *testing.T) {
	for _, row := range []struct {
		sentence string
		pairs    []Pair
		want     Asked
	}{
		{"nothing said is the defaults", nil, asked()},
		{"the last of a repeated key counts", pairs("vram=1G", "vram=2G"), asked(func(a *Asked) { a.Spec.VRAMMiB = 2048 })},
		{"a flag's word is the key's", pairs("gpu-ids=3,1", "gpu_type=H100", "chdir=/d", "time=90", "on-timeout=requeue"), asked(func(a *Asked) {
			a.Spec.IDs, a.Spec.GPUs, a.Spec.Type, a.Spec.Dir = []int{3, 1}, 2, "H100", "/d"
			a.Spec.TimeLimit, a.Spec.OnTimeout, a.BareTime = 90*time.Second, job.TimeoutRequeue, true
		})},
		{"num_gpus is gpus, in any case", pairs("NUM_GPUS=0.5"), asked(func(a *Asked) { a.Spec.GPUs, a.Spec.Share = 1, 0.5 })},
		{"switches stand alone", pairs("exclusive", "hold", "pty", "dedup", "requeue", "preemptible"), asked(func(a *Asked) {
			a.Spec.Exclusive, a.Hold, a.Spec.Pty, a.Dedup, a.Spec.Requeue, a.Spec.Preemptible = true, true, true, true, true, "park"
		})},
		{"switches take true and false", pairs("exclusive=true", "hold=true", "hold=false", "preemptible=true"), asked(func(a *Asked) {
			a.Spec.Exclusive, a.Spec.Preemptible = true, "park"
		})},
		{"an array sets its limit in the spec too", pairs("array=1-3%2"), asked(func(a *Asked) {
			a.Array, a.Spec.ArrayLimit = &Array{Indices: []int{1, 2, 3}, Limit: 2, Step: 1}, 2
		})},
		{"a beginning lies ahead", pairs("begin=now+2h"), asked(func(a *Asked) { a.NotBefore = noon.Add(2 * time.Hour) })},
		{"now takes an earlier beginning back", pairs("begin=16:00", "begin=now"), asked()},
		{"a job waits for ids, each with its condition", pairs("after=12, 13:any,017_03:FAIL,@,@~2:any"), asked(func(a *Asked) {
			a.Spec.After = []job.Dependency{{Job: "12", On: job.AfterOK}, {Job: "13", On: job.AfterAny}, {Job: "17_3", On: job.AfterFail},
				{Job: "@", On: job.AfterOK}, {Job: "@~2", On: job.AfterAny}}
		})},
		{"variables by either word, the last value at the first place", pairs("env=A=1=2", "env.B=", "env.A=x"), asked(func(a *Asked) {
			a.Spec.Env = []job.EnvVar{{Key: "A", Value: "x"}, {Key: "B"}}
		})},
		{"what is exported is a word or a list of names", pairs("export=ALL", "export=HOME, PATH"), asked(func(a *Asked) { a.Spec.Export = "HOME,PATH" })},
		{"export none is kept", pairs("export=NONE"), asked(func(a *Asked) { a.Spec.Export = "none" })},
		{"the rest means what a jobs file means", pairs("signal=USR1@60", "preemptible=requeue", "cap=soft", "retry-on=fail", "max-requeues=3", "mem=2G"), asked(func(a *Asked) {
			a.Spec.WarnSignal, a.Spec.WarnBefore, a.Spec.Preemptible, a.Spec.Cap = "USR1", time.Minute, "requeue", "soft"
			a.Spec.RetryOn, a.Spec.MaxRequeues, a.Spec.MemMiB = job.RetryFail, 3, 2048
		})},
	} {
		t.Run(row.sentence, func(t *testing.T) {
			got, err := Ask(row.pairs, noon, job.Defaults(), 1000)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(row.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestKeysThatAreRefused(t *testing.T) {
	for _, row := range []struct {
		sentence string
		pairs    []Pair
		want     string
	}{
		{"an unknown key, with the nearest and all others", pairs("vrma=1G"), `unknown key "vrma" (did you mean vram?); the keys are name gpus type`},
		{"another word for a key is near too", pairs("num_gpu=2"), `unknown key "num_gpu" (did you mean num_gpus?)`},
		{"cancel, which is a jobs file's", pairs("cancel"), `unknown key "cancel"`},
		{"the command, which is the caller's", pairs("command=x"), `unknown key "command"`},
		{"half an id as a dependency", pairs("after=12_"), "after: expected job ids"},
		{"a dependency twice", pairs("after=12,12:any"), `after: expected each job once, found "12" twice`},
		{"a key without its value", pairs("gpus"), "gpus: expected a number of GPUs"},
		{"a switch with an empty value", pairs("hold="), "hold: expected yes or no, found nothing"},
		{"an error has the name that was used", pairs("time=soon"), `time: expected a duration above 0`},
		{"stopping at the limit", pairs("on_timeout=stop"), `on_timeout: expected kill, requeue or park, found "stop"`},
		{"parking at the limit without a GPU", pairs("on_timeout=park", "gpus=0"), `on_timeout: expected kill or requeue with gpus=0, found "park"`},
		{"parking at the limit under MPS", pairs("on_timeout=park", "cap=mps", "vram=1G"), `on_timeout: expected kill or requeue with cap=mps, found "park"`},
		{"parking and never parking", pairs("preemptible", "no_park"), "expected either preemptible=park or no_park, found both"},
		{"parking at the limit and never parking", pairs("on_timeout=park", "no_park"), "expected either on_timeout=park or no_park, found both"},
		{"saves too seldom", pairs("preemptible=requeue", "checkpoint=8d"), `checkpoint: expected how often it saves its work, 1s to 7d, or term, found "8d"`},
		{"saves, and is not preempted", pairs("checkpoint=30m"), `expected preemptible=requeue with checkpoint, found a job that cannot be preempted`},
		{"saves, and is only parked", pairs("checkpoint=term", "preemptible=park"), `expected preemptible=requeue with checkpoint, found preemptible=park`},
		{"a file of what it does not save", pairs("preemptible=requeue", "checkpoint_file=a"), "expected checkpoint with checkpoint_file: how often it saves its work, or term; found none"},
		{"no patience", pairs("park_timeout=2h"), `park_timeout: expected 1s to 1h, found "2h"`},
		{"an unknown cap", pairs("cap=iron"), `cap: expected none, soft or mps, found "iron"`},
		{"a hard cap without an amount", pairs("cap=mps"), `expected vram=SIZE or a share of a GPU with cap=mps, found neither`},
		{"a hard cap of what is not known yet", pairs("cap=mps", "vram=auto"), `expected vram=SIZE or a share of a GPU with cap=mps, found neither`},
		{"a cap without a card", pairs("gpus=0", "cap=mps"), `expected cap only with GPUs, found cap=mps with gpus=0`},
		{"a soft cap without a card", pairs("gpus=0", "cap=soft"), `expected cap only with GPUs, found cap=soft with gpus=0`},
		{"more tasks than allowed", pairs("array=0-1000"), "array: expected at most 1000 tasks in one array, found more in \"0-1000\""},
		{"a beginning that is over", pairs("begin=2026-03-01T11:59"), `begin: expected a time in the future, found "2026-03-01T11:59" (it is now 2026-03-01 12:00:00 X)`},
		{"keys that contradict", pairs("gpus=1", "gpu-ids=0,1"), "gpus: expected 2, as many as ids lists, or no gpus key; found 1"},
		{"a variable without its value", pairs("env=A"), `env: expected NAME=VALUE`},
		{"a variable with a bad name", pairs("env.A-B=1"), `expected env.NAME with letters, digits and _ in NAME, found "env.A-B"`},
		{"an export of no name", pairs("export=A,,B"), `export: expected all, none, or names of variables such as HOME,PATH, found "A,,B"`},
		{"a NUL byte", pairs("dir=a\x00b"), "dir: expected text, found a NUL byte"},
		{"keys without number", slices.Repeat(pairs("gpus=1"), maxPairs+1), "expected at most 4096 keys in one job, found 4097"},
	} {
		got, err := Ask(row.pairs, noon, job.Defaults(), 1000)
		if err == nil || !strings.HasPrefix(err.Error(), row.want) {
			t.Errorf("%s: %v, want %s", row.sentence, err, row.want)
		}
		if diff := cmp.Diff(Asked{}, got); diff != "" {
			t.Errorf("%s: something came back: %s", row.sentence, diff)
		}
	}
}

func TestJobsFromTheSameDefaultsAreSeparate(t *testing.T) {
	defaults := job.Defaults()
	defaults.Env = append(make([]job.EnvVar, 0, 8), job.EnvVar{Key: "A", Value: "1"})
	for i := range 2 {
		got, err := Ask(pairs(fmt.Sprintf("env.A=x%d", i), "env.B=2"), noon, defaults, 1)
		if err != nil || got.Spec.Env[0].Value != fmt.Sprintf("x%d", i) {
			t.Fatalf("%v %v", got, err)
		}
	}
	if defaults.Env[0].Value != "1" || len(defaults.Env) != 1 {
		t.Errorf("the defaults changed: %v", defaults.Env)
	}
}

// TestTheGrammarsDifferOnlyWhereTheyMust: a key is in both unless it says
// something that only one of them can.
func TestTheGrammarsDifferOnlyWhereTheyMust(t *testing.T) {
	only := func(mine, others []string) string {
		return strings.Join(slices.DeleteFunc(mine, func(key string) bool { return slices.Contains(others, key) }), " ")
	}
	if got := only(slices.Clone(askKeys()), fileKeys()); got != "array max begin hold env export pty dedup" {
		t.Errorf("only submit: %s", got)
	}
	if got := only(slices.Clone(fileKeys()), askKeys()); got != "cancel" {
		t.Errorf("only the jobs file: %s", got)
	}
	for _, key := range []string{"array", "hold", "pty"} {
		if err := Apply(&job.Spec{}, key, "1"); err == nil {
			t.Errorf("a jobs file takes %s", key)
		}
	}
	if f, err := Lookup("GPU-ids"); err != nil || f.Key != "ids" {
		t.Errorf("%v %v", f, err)
	}
}

// TestRulesOfAJobAddUp: a repeated key adds a line, an edit replaces them all, and
// none stands alone. No error repeats a secret.
func TestRulesOfAJobAddUp(t *testing.T) {
	for _, tt := range []struct {
		name   string
		before []string
		values []string
		want   string // the rules, or part of the error
		fails  bool
	}{
		{"one", nil, []string{"mailto:a@b.c"}, "end:mailto:a@b.c", false},
		{"two keys", nil, []string{"mailto:a@b.c", "fail:ntfy:x"}, "end:mailto:a@b.c|fail:ntfy:https://ntfy.sh/x", false},
		{"two lines", nil, []string{"mailto:a@b.c\nfail:ntfy:x\n"}, "end:mailto:a@b.c|fail:ntfy:https://ntfy.sh/x", false},
		{"one target twice", nil, []string{"mailto:a@b.c", "start,oom:mailto:a@b.c"}, "start,end,oom:mailto:a@b.c", false},
		{"over what was there", []string{"end:exec:old"}, []string{"mailto:a@b.c"}, "end:mailto:a@b.c", false},
		{"none over what was there", []string{"end:exec:old"}, []string{"None"}, "none", false},
		{"none and others", nil, []string{"none", "mailto:a@b.c"}, "expected none alone", true},
		{"an empty line", nil, []string{"mailto:a@b.c\n\nntfy:x"}, "expected events and a target", true},
		{"a mistake", nil, []string{"end:slak:https://h/s3cret"}, "did you mean slack", true},
		{"too many", nil, strings.Split("ntfy:a ntfy:b ntfy:c ntfy:d ntfy:e ntfy:f ntfy:g ntfy:h ntfy:i", " "), "at most 8", true},
	} {
		var pairs []Pair
		for _, value := range tt.values {
			pairs = append(pairs, Pair{Key: "notify", Value: value})
		}
		defaults := job.Defaults()
		defaults.Notify = tt.before
		got, err := Ask(pairs, noon, defaults, 1)
		said := strings.Join(got.Spec.Notify, "|")
		if err != nil {
			said = err.Error()
		}
		if (err != nil) != tt.fails || tt.fails && !strings.Contains(said, tt.want) || !tt.fails && said != tt.want || strings.Contains(said, "s3cret") {
			t.Errorf("%s: %q, expected %q", tt.name, said, tt.want)
		}
	}
	if script, err := ParseScript("s.sh", []byte("#!/bin/sh\n#BERTH --notify mailto:a@b.c\n#BERTH --notify=fail:ntfy:x -g 2\ntrue\n")); err != nil || !slices.Contains(script.Pairs, Pair{Key: "notify", Value: "mailto:a@b.c\nfail:ntfy:x"}) {
		t.Errorf("%+v, %v", script, err)
	}
	if items, err := ParseSpecs("s.yaml", []byte("command: x\nnotify: [end:exec:a b, ntfy:x]\n")); err != nil || !slices.Contains(items[0].Pairs, Pair{Key: "notify", Value: "end:exec:a b\nntfy:x"}) {
		t.Errorf("%+v, %v", items, err)
	}
}
