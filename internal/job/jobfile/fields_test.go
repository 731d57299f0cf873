package jobfile

import (
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"berth/internal/job"
)

// someValues are good values of each field, the last one not its default.
var someValues = map[string][]string{
	"name": {"a", "train 1"}, "gpus": {"0.125", "0", "1.5", "2"}, "type": {"H100"}, "vram": {"auto", "1.5G", "estimate:m,batch=2"}, "ids": {"3,1"}, "allow": {"0-3,5"},
	"exclusive": {"no", "yes"}, "cpus": {"0", "4"}, "mem": {"64G"}, "pin": {"true"}, "inject_gpus": {"no", "--cuda=physical"},
	"priority": {"-3", "0", "5"}, "timeout": {"0.25s", "90", "15m", "2h", "1:30:00", "3d"}, "signal": {"USR1", "term@2m", "USR1@0.5", "INT@30d"},
	"on_timeout": {"kill", "requeue"}, "max_requeues": {"10", "0"}, "retries": {"0", "3"}, "retry_on": {"oom", "fail"},
	"after": {"@", "12,13:any,17_3:fail,prep"}, "array": {"0-9%2"}, "max": {"3"}, "begin": {"now+2h"}, "hold": {"yes"}, "dir": {"/tmp"}, "env": {"A=1"},
	"export": {"all", "none", "HOME, PATH"}, "venv": {"v"}, "conda": {"base"}, "setup": {"source x"}, "output": {"%j.log"}, "pty": {"yes"},
	"dedup": {"yes"}, "grace": {"1s", "10s", "5m"}, "requeue": {"yes"}, "preemptible": {"no", "park", "requeue", "park,requeue"}, "checkpoint": {"no", "term", "90", "30m"}, "checkpoint_file": {"ckpt.pt", "$BERTH_CHECKPOINT_DIR/last.ckpt"}, "no_park": {"yes"}, "park_timeout": {"1s", "5m", "1h"}, "slurm_env": {"yes"}, "to": {"local", "slurm"}, "slurm": {"--account=lab -q long"}, "cap": {"none", "mps", "soft"}, "group": {"io", "Big-2.x_y"}, "notify": {"fail,end:exec:a b", "end:mailto:ann@example.org\nslack:https://h.example.org/x"}, "snapshot": {"no", "auto", "/src"}, "cancel": {"yes"},
}

// TestWhatIsWrittenReadsAsTheSame: a spec, told in keys and values, is the same
// spec again, whatever was said of it.
func TestWhatIsWrittenReadsAsTheSame(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var said []Pair
		for _, f := range fields {
			if f.write != nil && f.Where != FileOnly && rapid.Bool().Draw(t, f.Key) {
				said = append(said, Pair{Key: f.FlagName(), Value: rapid.SampledFrom(someValues[f.Key]).Draw(t, "value")})
			}
		}
		said = append(said, Pair{Key: "env.B", Value: rapid.String().Draw(t, "variable")})
		first, err := Ask(said, noon, job.Defaults(), 100)
		if err != nil {
			t.Skip(err)
		}
		first.Hold, first.Dedup, first.Note, first.BareTime = false, false, "", false // a submission's, not the spec's
		again, err := Ask(Pairs(&first.Spec), noon, job.Defaults(), 100)
		if diff := cmp.Diff(first, again); err != nil || diff != "" {
			t.Fatalf("%+v\n%+v\n%v\n%s", said, Pairs(&first.Spec), err, diff)
		}
	})
}

// TestEveryFieldIsWhole: each says all that flags, help and pages want of it,
// reads good values, and is kept somewhere.
func TestEveryFieldIsWhole(t *testing.T) {
	shorts := map[string]bool{}
	for _, f := range fields {
		if f.Help == "" || (f.Word == "") != (f.Alone == "true") {
			t.Errorf("%s lacks a word: %+v", f.Key, f)
		}
		if f.Short != "" && shorts[f.Short] {
			t.Errorf("-%s is there twice", f.Short)
		}
		shorts[f.Short] = true
		if f.Admin && f.Fixed != "" {
			t.Errorf("%s can be changed by administrators, and by nobody", f.Key)
		}
		values := someValues[f.Key]
		if len(values) == 0 {
			t.Errorf("no values of %s", f.Key)
			continue
		}
		a := asking{now: noon, maxArray: 100, Asked: unset}
		for _, value := range values {
			if err := a.put(f.Key, f, value); err != nil {
				t.Error(err)
			}
		}
		if cmp.Equal(a.Asked, unset) {
			t.Errorf("%s is not kept", f.Key)
		}
		if f.write != nil && f.write(&a.Asked) == f.write(&unset) {
			t.Errorf("%s is not written", f.Key)
		}
		if err := Reset(&a.Asked, f.Key); (err == nil) != (f.Fixed == "" && f.Key != "dir" && f.Where != FileOnly || f.Key == "export" || f.Key == "hold" || f.Key == "dedup" || f.Key == "slurm_env") {
			t.Errorf("unset %s: %v", f.Key, err)
		} else if err == nil && !cmp.Equal(a.Asked, unset) {
			t.Errorf("%s unset is %+v", f.Key, a.Asked)
		}
	}
}

// TestAdministratorsDoNotChangeWhatAJobDoes: they would act as its user.
func TestAdministratorsDoNotChangeWhatAJobDoes(t *testing.T) {
	for _, key := range []string{"inject_gpus", "signal", "dir", "env", "env.A", "export", "venv", "conda", "setup", "output", "pty", "snapshot", "notify", "slurm_env", "slurm"} {
		if f, err := Lookup(key); err != nil || f.Admin {
			t.Errorf("%s: %+v %v", key, f, err)
		}
	}
}

// TestEveryPartOfASpecIsAField: what a spec keeps can be said, but for what is
// not a user's to say.
func TestEveryPartOfASpecIsAField(t *testing.T) {
	said := []string{"Shell", "Argv", "Adopt", "Interactive", "ArrayShape", "Batch", "Trial"}
	for _, f := range fields {
		for _, value := range someValues[f.Key] {
			a := asking{now: noon, maxArray: 100}
			if err := a.put(f.Key, f, value); err != nil {
				t.Error(err)
			}
			spec := reflect.ValueOf(a.Spec)
			for i := range spec.NumField() {
				if !spec.Field(i).IsZero() {
					said = append(said, spec.Type().Field(i).Name)
				}
			}
		}
	}
	for _, part := range reflect.VisibleFields(reflect.TypeFor[job.Spec]()) {
		if !slices.Contains(said, part.Name) {
			t.Errorf("no field says %s", part.Name)
		}
	}
}

func TestSettingsAreWhatAViewHasNoPlaceFor(t *testing.T) {
	for _, row := range []struct {
		sentence string
		pairs    []Pair
		want     map[string]string
	}{
		{"nothing said: how it is ended", nil, map[string]string{"grace": "10s"}},
		{"a view shows how many, how much, how long and how urgent", pairs("gpus=2", "vram=1G", "time=2h", "priority=3", "name=a", "after=3", "dir=/", "env.A=1"),
			map[string]string{"grace": "10s", "on_timeout": "kill"}},
		{"memory by what was used before", pairs("vram=auto", "grace=5m"), map[string]string{"vram": "auto", "grace": "300s"}},
		{"what belongs together", pairs("time=2h", "on-timeout=requeue", "max-requeues=0", "retries=2"),
			map[string]string{"grace": "10s", "on_timeout": "requeue", "max_requeues": "0", "retries": "2", "retry_on": "oom"}},
		{"as people write it", pairs("mem=2G", "ids=3,1", "signal=USR1@30d", "exclusive", "preemptible"),
			map[string]string{"grace": "10s", "mem": "2048M", "ids": "3,1", "signal": "USR1@2592000", "exclusive": "yes", "preemptible": "park"}},
	} {
		asked, err := Ask(row.pairs, noon, job.Defaults(), 1)
		if diff := cmp.Diff(row.want, Settings(&asked.Spec)); err != nil || diff != "" {
			t.Errorf("%s: %v\n%s", row.sentence, err, diff)
		}
	}
}

func TestTheNameOfAGroup(t *testing.T) {
	for _, good := range []string{"io", "a", "Big-2.x_y", "0", strings.Repeat("x", maxGroupBytes)} {
		if got, err := ParseGroup(good); got != good || err != nil {
			t.Errorf("%q is read as %q, %v", good, got, err)
		}
	}
	for _, bad := range []string{"", "-io", ".io", "_", "a b", "a/b", "a,b", "*", "ä", "a\n", strings.Repeat("x", maxGroupBytes+1)} {
		if got, err := ParseGroup(bad); err == nil {
			t.Errorf("%q is accepted as %q", bad, got)
		}
	}
}
