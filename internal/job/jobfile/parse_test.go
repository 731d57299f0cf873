package jobfile

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"berth/internal/job"
)

// shell is the spec of a plain line after the given changes.
func shell(command string, changes ...func(*job.Spec)) job.Spec {
	spec := job.Defaults()
	spec.Shell = command
	for _, change := range changes {
		change(&spec)
	}
	return spec
}

func TestALineBecomesASpec(t *testing.T) {
	for _, row := range []struct {
		sentence string
		line     string
		want     job.Spec
	}{
		{"a plain line runs with the defaults", "python a.py", shell("python a.py")},
		{"white space around the command is dropped", " \t python a.py \t", shell("python a.py")},
		{"a carriage return at the end is dropped", "python a.py\r", shell("python a.py")},
		{"a carriage return behind the block is dropped", "[]\rpython a.py", shell("python a.py")},
		{"a comment sign inside a command stays", "echo a # b", shell("echo a # b")},
		{"bytes that are no text reach the shell untouched", "echo \xff\x01\x1b[1m", shell("echo \xff\x01\x1b[1m")},
		{"a shell test with one bracket is a command", "[ -f x ] && run", shell("[ -f x ] && run")},
		{"a shell test with a tab is a command", "[\t-f x ] && run", shell("[\t-f x ] && run")},
		{"a shell test with two brackets is a command", "[[ -f x ]] && run", shell("[[ -f x ]] && run")},
		{"a bracket alone is a command", "[", shell("[")},
		{"an empty block changes nothing", "[] run", shell("run")},
		{"a block may stand right before its command", "[gpus=2]run", shell("run", func(s *job.Spec) { s.GPUs = 2 })},
		{"white space before and in the block is allowed", "  [gpus=2\tvram=1G  ] run", shell("run", func(s *job.Spec) { s.GPUs, s.VRAMMiB = 2, 1024 })},
		{"keys are read in any case", "[GPUs=2 VRAM=1g] run", shell("run", func(s *job.Spec) { s.GPUs, s.VRAMMiB = 2, 1024 })},
		{"so is the word that makes a line a sweep", "[vram=1G SWEEP lr=1] run {lr}", shell("run 1", func(s *job.Spec) { s.VRAMMiB, s.Trial.Params = 1024, []job.Param{{Name: "lr", Value: "1"}} })},
		{"keys may be written as flags are", "[on-timeout=Requeue] run", shell("run", func(s *job.Spec) { s.OnTimeout = job.TimeoutRequeue })},
		{"the last of a repeated key counts", "[vram=1G vram=2G] run", shell("run", func(s *job.Spec) { s.VRAMMiB = 2048 })},
		{"the last of two words for one key counts", "[time=1m timeout=2m] run", shell("run", func(s *job.Spec) { s.TimeLimit = 2 * time.Minute })},
		{"auto takes a size's place", "[vram=1G vram=auto] run", shell("run", func(s *job.Spec) { s.VRAMAuto = true })},
		{"a size takes auto's place", "[vram=auto vram=1G] run", shell("run", func(s *job.Spec) { s.VRAMMiB = 1024 })},
		{"a bracket in double quotes does not close the block", `[setup="a[1] ]"] run`, shell("run", func(s *job.Spec) { s.Setup = "a[1] ]" })},
		{"a bracket in single quotes does not close the block", `[setup='x ] "y"'] run`, shell("run", func(s *job.Spec) { s.Setup = `x ] "y"` })},
		{"a backslash takes a quote or itself in double quotes", `[setup="a \"b\" \\ \$c"] run`, shell("run", func(s *job.Spec) { s.Setup = `a "b" \ \$c` })},
		{"a backslash is itself in single quotes", `[setup='a\b'] run`, shell("run", func(s *job.Spec) { s.Setup = `a\b` })},
		{"an apostrophe in a plain value is itself", "[name=ann's] run", shell("run", func(s *job.Spec) { s.Name = "ann's" })},
		{"switches stand bare", "[exclusive requeue cancel preemptible] run", shell("run", func(s *job.Spec) {
			s.Exclusive, s.Requeue, s.CancelMarked, s.Preemptible = true, true, true, "park"
		})},
		{"a switch may be turned off", "[exclusive exclusive=no] run", shell("run")},
		{"a share is of one GPU", "[gpus=0.5] run", shell("run", func(s *job.Spec) { s.GPUs, s.Share = 1, 0.5 })},
		{"a count takes a share's place", "[gpus=0.5 num_gpus=1.5] run", shell("run", func(s *job.Spec) { s.GPUs = 2 })},
		{"exact ids keep their order and set the count", "[ids=3,1] run", shell("run", func(s *job.Spec) { s.GPUs, s.IDs = 2, []int{3, 1} })},
		{"a share may name its one card", "[gpus=0.5 ids=3] run", shell("run", func(s *job.Spec) { s.GPUs, s.Share, s.IDs = 1, 0.5, []int{3} })},
		{"a count may agree with the ids", "[gpus=2 ids=1,3 allow=0-3] run", shell("run", func(s *job.Spec) {
			s.GPUs, s.IDs, s.Allow = 2, []int{1, 3}, []int{0, 1, 2, 3}
		})},
		{"variables keep their case and order", "[ENV.b=1 env.A= env.b='2 3'] run", shell("run", func(s *job.Spec) {
			s.Env = []job.EnvVar{{Key: "b", Value: "2 3"}, {Key: "A"}}
		})},
		{"limits and what happens at them", "[timeout=1:30:00 signal=sigusr1@2m on_timeout=requeue max_requeues=3 grace=5] run", shell("run", func(s *job.Spec) {
			s.TimeLimit, s.WarnSignal, s.WarnBefore = 90*time.Minute, "USR1", 2*time.Minute
			s.OnTimeout, s.MaxRequeues, s.Grace = job.TimeoutRequeue, 3, 5*time.Second
		})},
		{"everything else", "[name=t type=H100 cpus=4 mem=2G pin inject_gpus=--cuda=Physical priority=-7 retries=2 retry_on=fail dir=/d venv=v conda=c output=%j.log cap=soft preemptible=requeue] run", shell("run", func(s *job.Spec) {
			s.Name, s.Type, s.CPUs, s.MemMiB, s.Priority = "t", "H100", 4, 2048, -7
			s.Retries, s.RetryOn, s.Dir, s.Venv, s.Conda = 2, job.RetryFail, "/d", "v", "c"
			s.Output, s.Cap, s.Preemptible, s.Pin, s.Inject = "%j.log", "soft", "requeue", true, "--cuda=physical"
		})},
	} {
		t.Run(row.sentence, func(t *testing.T) {
			file, err := Parse("jobs.txt", []byte(row.line+"\n"), job.Defaults())
			if err != nil {
				t.Fatal(err)
			}
			if len(file.Lines) != 1 {
				t.Fatalf("found %d lines, want 1", len(file.Lines))
			}
			if diff := cmp.Diff(row.want, file.Lines[0].Spec); diff != "" {
				t.Error(diff)
			}
			if file.Lines[0].Command != row.want.Shell {
				t.Errorf("command %q, want %q", file.Lines[0].Command, row.want.Shell)
			}
		})
	}
}

func TestBlanksAndCommentsAreSkippedAndNumbersKept(t *testing.T) {
	text := "\xef\xbb\xbf# a comment\r\n\n  \t\n  # another\none\r\n\ntwo\n"
	file, err := Parse("jobs.txt", []byte(text), job.Defaults())
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, line := range file.Lines {
		got = append(got, fmt.Sprintf("%d %s", line.Number, line.Command))
	}
	if diff := cmp.Diff([]string{"5 one", "7 two"}, got); diff != "" {
		t.Error(diff)
	}
}

func TestTheLastLineMayBeUnfinished(t *testing.T) {
	for _, row := range []struct {
		sentence, text string
		want           bool
	}{
		{"a last line with its newline is finished", "one\ntwo\n", false},
		{"a last line without it may not be", "one\ntwo", true},
		{"an unfinished comment does not matter", "one\n# two", false},
		{"unfinished white space does not matter", "one\n  ", false},
		{"an unfinished block is seen beside its error", "one\n[vram=1", true},
		{"an empty file has no last line", "", false},
	} {
		t.Run(row.sentence, func(t *testing.T) {
			file, _ := Parse("jobs.txt", []byte(row.text), job.Defaults())
			if file.Unterminated != row.want {
				t.Errorf("unterminated is %v", file.Unterminated)
			}
			if len(row.text) > 0 && (len(file.Lines) == 0 || file.Lines[0].Command != "one") {
				t.Errorf("the good line is missing: %v", file.Lines)
			}
		})
	}
}

func TestIdentityIsTheCommandAndItsOccurrence(t *testing.T) {
	file, err := Parse("jobs.txt", []byte("run\n[gpus=2] run\nother\n  run  \n"), job.Defaults())
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range []int{1, 2, 1, 3} {
		line := file.Lines[i]
		if line.Occurrence != want || line.Key != Key(line.Command, want) {
			t.Errorf("line %d: occurrence %d key %s, want occurrence %d", line.Number, line.Occurrence, line.Key, want)
		}
	}
	if got := Key("echo", 2); got != "092c79e8f80e559e#2" {
		t.Errorf("the key of a known command changed to %s: stored jobs would run again", got)
	}
}

func TestALineOverridesTheDefaultsAndLeavesThemAlone(t *testing.T) {
	defaults := job.Defaults()
	defaults.Retries, defaults.Exclusive = 3, true
	defaults.Env = make([]job.EnvVar, 1, 8)
	defaults.Env[0] = job.EnvVar{Key: "A", Value: "1"}
	file, err := Parse("jobs.txt", []byte("[retries=0 exclusive=no env.A=2 env.B=x] one\n[env.B=y] two\nthree\n[env.C=z] four\n"), defaults)
	if err != nil {
		t.Fatal(err)
	}
	one, two, three := file.Lines[0].Spec, file.Lines[1].Spec, file.Lines[2].Spec
	if one.Retries != 0 || one.Exclusive || three.Retries != 3 || !three.Exclusive {
		t.Errorf("retries %d %d, exclusive %v %v", one.Retries, three.Retries, one.Exclusive, three.Exclusive)
	}
	if diff := cmp.Diff([]job.EnvVar{{Key: "A", Value: "2"}, {Key: "B", Value: "x"}}, one.Env); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]job.EnvVar{{Key: "A", Value: "1"}, {Key: "B", Value: "y"}}, two.Env); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]job.EnvVar{{Key: "A", Value: "1"}}, three.Env); diff != "" {
		t.Error(diff)
	}
}

func TestDependenciesAreReadInAnyOrderOfLines(t *testing.T) {
	file, err := Parse("jobs.txt", []byte("[name=c after=a,b:any] run c\n[name=a] run a\n[name=b after=a:fail] run b\n"), job.Defaults())
	if err != nil {
		t.Fatal(err)
	}
	want := []job.Dependency{{Name: "a", On: job.AfterOK}, {Name: "b", On: job.AfterAny}}
	if diff := cmp.Diff(want, file.Lines[0].Spec.After); diff != "" {
		t.Error(diff)
	}
}

func TestAValueComesBackAsItWasQuoted(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		value := rapid.StringMatching(`[ -~äß]{1,40}`).Draw(t, "value")
		quoted := `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(value) + `"`
		file, err := Parse("jobs.txt", []byte("[setup="+quoted+" gpus=2] run ] it\n"), job.Defaults())
		if err != nil {
			t.Fatal(err)
		}
		if got := file.Lines[0]; got.Spec.Setup != value || got.Spec.GPUs != 2 || got.Command != "run ] it" {
			t.Fatalf("%q came back as %q", value, got.Spec.Setup)
		}
	})
}

func TestALongChainIsNoCircle(t *testing.T) {
	var b strings.Builder
	b.WriteString("[name=n0] run 0\n")
	for i := 1; i < 20000; i++ {
		fmt.Fprintf(&b, "[name=n%d after=n%d] run %d\n", i, i-1, i)
	}
	if _, err := Parse("jobs.txt", []byte(b.String()), job.Defaults()); err != nil {
		t.Fatal(err)
	}
}

func TestApplyKnowsEveryKeyItLists(t *testing.T) {
	for _, key := range fileKeys() {
		if _, err := lookupInFile(strings.ToUpper(key)); err != nil {
			t.Error(err)
		}
	}
	spec := job.Defaults()
	if err := Apply(&spec, "exclusive", ""); err != nil || !spec.Exclusive {
		t.Errorf("a switch takes the empty value for yes: %v", err)
	}
	if err := Apply(&spec, "vram", "a\x00b"); err == nil {
		t.Error("a NUL byte passed")
	}
}

func BenchmarkParse100k(b *testing.B) {
	var text strings.Builder
	for i := range 100_000 {
		fmt.Fprintf(&text, "[vram=%dG gpus=2 timeout=2h name=train%d] python train.py --seed %d --lr 0.001\n", i%40+1, i, i)
	}
	data := []byte(text.String())
	b.SetBytes(int64(len(data)))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := Parse("jobs.txt", data, job.Defaults()); err != nil {
			b.Fatal(err)
		}
	}
}

// Apply sets one key of a spec. A key that works bare takes "" for "yes".
// The spec's lists are replaced, never changed in place, so specs made from
// the same defaults do not see one another. Check belongs after the last one.
func Apply(spec *job.Spec, key, value string) error {
	f, err := lookupInFile(key)
	if err != nil {
		return err
	}
	if value == "" {
		value = f.Alone
	}
	a := asking{Asked: Asked{Spec: *spec}, inFile: true}
	err = a.put(f.Key, f, value)
	*spec = a.Spec
	return err
}
