package batch

import (
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"berth/internal/job"
	"berth/internal/job/jobfile"
	"berth/internal/tests/testkit"
	"berth/internal/text/problem"
)

// theirSamples are journals as gpusched itself wrote them.
var theirSamples = []string{"gpusched-0.3.0.jsonl", "gpusched-0.4.0.jsonl"}

// The words are those of gpusched 0.4.0 for the same lines.
//
// seeds: G2 G3 G5 G6 G35 G60
func TestWhatGpuschedRefusesIsRefusedInItsWords(t *testing.T) {
	t.Parallel()
	for line, want := range map[string]string{
		"true":                       "",
		"# [bogus=1] true":           "",
		"[] true":                    "",
		"[VRAM=1.5g gpus=2] true":    "",
		"[vram=1000MB retries=0] x":  "",
		"[timeout=0.5d cancel] true": "",
		"[vram=1G vram=2G] true":     "",
		"[ -f x ] && true":           "", // a shell test, which gpusched refuses
		"[[ -f x ]] && true":         "",
		"[name=x] true":              "unknown attribute 'name' (known: vram, gpus, timeout, retries, cancel)",
		"[Priority=3] true":          "unknown attribute 'priority' (known: vram, gpus, timeout, retries, cancel)",
		"[cancel=1] true":            "unknown attribute 'cancel' (known: vram, gpus, timeout, retries, cancel)",
		"[vram=1T] true":             "cannot parse vram value '1T' (use MiB or a G/GiB suffix)",
		"[vram=auto] true":           "cannot parse vram value 'auto' (use MiB or a G/GiB suffix)",
		`[vram="1G"] true`:           `cannot parse vram value '"1G"' (use MiB or a G/GiB suffix)`,
		"[vram=1.] true":             "cannot parse vram value '1.' (use MiB or a G/GiB suffix)",
		"[vram=1G,gpus=1] true":      "cannot parse vram value '1G,gpus=1' (use MiB or a G/GiB suffix)",
		"[vram=0.4] true":            "vram must be positive, got '0.4'",
		"[timeout=1:30] true":        "cannot parse duration '1:30' (use s/m/h/d)",
		"[timeout=1w] true":          "cannot parse duration '1w' (use s/m/h/d)",
		"[timeout=0] true":           "timeout must be positive, got '0'",
		"[gpus=0.5] true":            "gpus must be an integer, got '0.5'",
		"[gpus=0] true":              "gpus must be >= 1, got 0",
		"[retries=1.5] true":         "retries must be an integer, got '1.5'",
		"[retries=-1] true":          "retries must be >= 0, got -1",
		"[exclusive] true":           "malformed attribute 'exclusive' (expected key=value, or bare 'cancel')",
		"[vram = 1G] true":           "malformed attribute 'vram' (expected key=value, or bare 'cancel')",
		"[vram=1G":                   "unterminated '[...]' attribute block",
		"[vram=1G]":                  "attribute block present but command is empty",
	} {
		if want != "" {
			want = "jobs file line 3: " + want
		}
		got := ""
		if err := theirMistakes([]byte("true\n\n" + line + "\n")); err != nil {
			got = err.Error()
		}
		if got != want {
			t.Errorf("%s\ngot  %s\nwant %s", line, got, want)
		}
	}
}

// toldBy is what the jobs of a journal come to, one word per command.
func toldBy(t *testing.T, text string) map[string]string {
	t.Helper()
	words := map[string]string{}
	for _, their := range readTheirs([]byte(text)) {
		j := their.job(at0, spec(their.command))
		said := string(j.State) + " " + string(j.Outcome)
		if j.RetriesUsed > 0 {
			said += fmt.Sprintf("%d MiB after %d", j.VRAMMiB, j.RetriesUsed)
		}
		words[fmt.Sprintf("%s#%d", their.command, their.occurrence)] = said
	}
	return words
}

func TestJournalsOfGpuschedAreUnderstood(t *testing.T) {
	t.Parallel()
	// seeds: G27 G28 R4
	wanted := map[string]string{
		"echo same >> ran#1":                                                      "finished ok",
		"echo same >> ran#2":                                                      "finished ok",
		"echo broken >> ran; exit 7#1":                                            "failed exit:7",
		"echo huge >> ran#1":                                                      "failed infeasible",
		"echo slow >> ran; sleep 30#1":                                            "failed timeout",
		"echo killed >> ran; kill -9 $$#1":                                        "failed signal:KILL",
		`echo 'non-ascii ümläut "quoted"' >> ran#1`:                               "finished ok",
		"python3 -m gpusched.simjob --vram 8000 --ramp 0.3 --hold 0.5#1":          "finished ok",
		"echo toomuch >> ran; echo 'RuntimeError: CUDA out of memory.'; exit 1#1": "failed oom",
		"echo oom >> ran; if [ -e roomy ]; then exit 0; fi; echo CUDA out of memory; exit 1#1": "failed oom",
	}
	for _, sample := range theirSamples {
		got := toldBy(t, testkit.Read(t, filepath.Join("testdata", sample)))
		for command, want := range wanted {
			if got[command] != want {
				t.Errorf("%s: %s is %q, want %q", sample, command, got[command], want)
			}
		}
	}
	got := toldBy(t, testkit.Read(t, "testdata/gpusched-0.4.0.jsonl"))
	if said := got["echo unwanted >> ran#1"]; said != "cancelled cancelled" {
		t.Errorf("what was cancelled is %q", said)
	}
	if said := got["echo stays >> ran; exec sleep 40#1"]; said != "queued " {
		t.Errorf("what was interrupted is %q", said)
	}
}

func TestAJournalOfGpuschedCutShortAnywhereLosesNoEnd(t *testing.T) {
	t.Parallel()
	for _, sample := range theirSamples {
		lines := strings.SplitAfter(testkit.Read(t, filepath.Join("testdata", sample)), "\n")
		for n := range lines {
			torn := strings.Join(lines[:n], "") + lines[n][:len(lines[n])/2]
			for command, said := range toldBy(t, torn) {
				over := strings.Contains(said, "finished") || strings.Contains(said, "failed") || strings.Contains(said, "cancelled")
				if written := endWritten(lines[:n], command); over != written {
					t.Fatalf("%s, %d lines: %s is %q, its end was written: %v", sample, n, command, said, written)
				}
			}
		}
	}
}

// endWritten looks for the end of a command by its key.
func endWritten(lines []string, command string) bool {
	at := strings.LastIndex(command, "#")
	quoted := strings.ReplaceAll(strings.ReplaceAll(command[:at], `"`, `\"`), "ü", `\u00fc`)
	quoted = strings.ReplaceAll(quoted, "ä", `\u00e4`)
	occurrence := command[at+1:][0] - '1'
	key := ""
	for _, line := range lines {
		if strings.Contains(line, `"command": "`+quoted+`"`) && strings.Contains(line, fmt.Sprintf(`#%d", "event": "seen"`, occurrence)) {
			key = line[:strings.Index(line, ",")]
		}
		if key != "" && strings.HasPrefix(line, key) && strings.Contains(line, `"event": "done"`) {
			return true
		}
	}
	return false
}

func TestADeclarationThatGpuschedRaisedIsKept(t *testing.T) {
	t.Parallel()
	// seeds: G41
	for _, sample := range theirSamples {
		text := testkit.Read(t, filepath.Join("testdata", sample))
		const first = `"event": "oom", "attempts": 1, "next_vram": 5000}`
		cut := text[:strings.Index(text, first)+len(first)] + "\n"
		const command = "echo oom >> ran; if [ -e roomy ]; then exit 0; fi; echo CUDA out of memory; exit 1#1"
		if said := toldBy(t, cut)[command]; said != "queued 5000 MiB after 1" {
			t.Errorf("%s: after an attempt it is %q", sample, said)
		}
	}
}

func TestAJobThatGpuschedLeftRunningIsNotStartedTwice(t *testing.T) {
	t.Parallel()
	// seeds: G55
	for _, their := range readTheirs([]byte(testkit.Read(t, "testdata/gpusched-0.4.0.jsonl"))) {
		if stays := their.command == "echo stays >> ran; exec sleep 40"; their.left(func(group int) bool { return group == 1490 }) != stays {
			t.Errorf("%s: left running is %v", their.command, !stays)
		}
	}
	leader := exec.Command("cat")
	leader.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	hold, err := leader.StdinPipe()
	if err == nil {
		err = leader.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	if group := leader.Process.Pid; !groupAlive(group, time.Now()) {
		t.Error("a group that is there is said to be gone")
	} else if groupAlive(group, time.Now().Add(-time.Hour)) {
		t.Error("a group whose leader began later is taken for the one of before")
	}
	hold.Close()
	if err := leader.Wait(); err != nil {
		t.Fatal(err)
	}
	if groupAlive(leader.Process.Pid, time.Now()) {
		t.Error("a group that is gone is said to be there")
	}
}

func TestAJobThatGpuschedLeftRunningIsNotRetriedBeforeItIsGone(t *testing.T) {
	t.Parallel()
	// seeds: G55
	leader := exec.Command("cat")
	leader.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	hold, err := leader.StdinPipe()
	if err == nil {
		err = leader.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	h := newHost(t)
	testkit.Write(t, filepath.Join(h.opt.LogDir, "journal.gpusched.jsonl"), fmt.Sprintf(`{"key": "a#0", "event": "seen", "no": 1, "command": "echo left"}
{"key": "a#0", "event": "oom", "attempts": 1, "next_vram": 5000}
{"key": "a#0", "event": "started", "pgid": %d, "gpus": [0]}
`, leader.Process.Pid))
	o, lines := &Options{HostOptions: h.opt}, parsed(t, "[vram=4000] echo left\n").Lines
	testkit.Must(t, o.besideTheirs(lines))
	h.opt = o.HostOptions
	testkit.Must(t, h.inherit(at0))
	key := jobfile.Key("echo left", 1)
	if j, err := h.store.Job("1"); err != nil || j.State != job.Queued || j.Key != key || j.VRAMMiB != 5000 || j.Spec.VRAMMiB != 4000 {
		t.Errorf("the job of its line is %+v, %v", j, err)
	}
	if len(h.orphans) != 1 || h.orphans[0].key != key || h.orphans[0].group != leader.Process.Pid {
		t.Errorf("left are %v", h.orphans)
	}
	line := &job.Job{ID: "7", Key: key}
	if h.Admit([]*job.Job{line, {}}); !line.Held {
		t.Error("the job of its line is not held")
	}
	o.Fresh = true
	var p *problem.Problem
	if err := o.besideTheirs(lines); !errors.As(err, &p) || !strings.Contains(p.Hint, "kill -TERM -") {
		t.Errorf("asked to run it again: %v", err)
	}
	hold.Close()
	if err := leader.Wait(); err != nil {
		t.Fatal(err)
	}
	if err := o.besideTheirs(lines); err != nil {
		t.Errorf("once it is gone: %v", err)
	}
}

func TestGpuschedsJournalIsMovedAsideOnceAndKept(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	l := layout{logDir: dir, state: dir}
	text := testkit.Read(t, "testdata/gpusched-0.3.0.jsonl") + `{"key": "torn`
	testkit.Write(t, l.journal(), text)
	for range 2 {
		if err := l.keepTheirs(); err != nil {
			t.Fatal(err)
		}
	}
	first := filepath.Join(dir, "journal.gpusched.jsonl")
	if testkit.Read(t, first) != text {
		t.Error("it was changed")
	}
	const ours = `{"seq":1,"time":"2026-03-14T15:09:26Z","event":"queued"}` + "\n"
	testkit.Write(t, l.journal(), ours)
	if err := l.keepTheirs(); err != nil {
		t.Fatal(err)
	}
	if testkit.Read(t, l.journal()) != ours {
		t.Fatal("berth's own journal was moved")
	}
	// Someone used gpusched again, which went on with the journal it found.
	testkit.Write(t, l.journal(), ours+text)
	if err := l.keepTheirs(); err != nil {
		t.Fatal(err)
	}
	kept, err := l.theirs()
	if err != nil || len(kept) != 2 || kept[0] != first || filepath.Base(kept[1]) != "journal.gpusched-2.jsonl" {
		t.Errorf("kept are %v, %v", kept, err)
	}
	if testkit.Read(t, first) != text {
		t.Error("the first was overwritten")
	}
}

func TestWhatGpuschedDidIsTakenOverOnce(t *testing.T) {
	t.Parallel()
	// seeds: G36
	h := newHost(t)
	testkit.Write(t, filepath.Join(h.opt.LogDir, "journal.gpusched.jsonl"), testkit.Read(t, "testdata/gpusched-0.3.0.jsonl"))
	for range 2 {
		if err := h.inherit(at0); err != nil {
			t.Fatal(err)
		}
	}
	ids := map[string]string{}
	if err := h.store.Each(func(j *job.Job) error {
		ids[j.Key] = j.ID + " " + string(j.Outcome)
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	if len(ids) != 10 {
		t.Errorf("%d jobs were taken over, want all 10 that are over", len(ids))
	}
	for want, key := range map[string]string{
		"2 ok":     jobfile.Key("echo same >> ran", 1),
		"3 ok":     jobfile.Key("echo same >> ran", 2),
		"4 exit:7": jobfile.Key("echo broken >> ran; exit 7", 1),
	} {
		if ids[key] != want {
			t.Errorf("got %q, want %q with gpusched's own number", ids[key], want)
		}
	}
	if heard := h.said; len(heard) != 1 || !strings.Contains(heard[0], "imported gpusched's journal: 10 ended jobs") {
		t.Errorf("said: %q", heard)
	}
}
