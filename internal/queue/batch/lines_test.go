package batch

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"berth/internal/job"
	"berth/internal/tests/testkit"
	words "berth/internal/text"
)

// story is one event of every kind and shape, in an order that could be.
func story() []job.Event {
	var list []job.Event
	tell := func(kind job.EventKind, text string, j *job.Job) {
		list = append(list, job.Event{Seq: int64(len(list) + 1), At: at0.Add(time.Duration(len(list)) * time.Second), Kind: kind, Text: text, Job: j})
	}
	with := func(j *job.Job, change func(*job.Job)) *job.Job { change(j); return j }

	tell(job.EventQueued, "", &job.Job{ID: "1", Spec: spec("python a.py")})
	tell(job.EventStarted, "", started("1", "python a.py", 0))
	tell(job.EventStarted, "", with(started("2", "python b.py", 0, 1), func(j *job.Job) { j.VRAMMiB, j.Spec.Name = 8000, "big one" }))
	tell(job.EventStarted, "", with(started("3", "python c.py", 1), func(j *job.Job) { j.Grant.Share, j.Attempt.Number = 0.5, 2 }))
	tell(job.EventStarted, "", with(started("4", "python c.py", 1), func(j *job.Job) { j.Spec.Share, j.Grant.Share, j.VRAMMiB = 0.25, 0.25, 4000 }))
	tell(job.EventStarted, "", started("5", "tar cf x.tar x"))
	tell(job.EventAdopted, "", started("6", "python a.py", 3))
	tell(job.EventUsage, "gpu0:5000 MiB", started("2", "python b.py", 0, 1))
	tell(job.EventExceeds, "gpu0:9100 MiB used, 8000 MiB declared", started("2", "python b.py", 0, 1))
	tell(job.EventRetry, "out of GPU memory; retry 1 of 2 with 11375 MiB", with(started("2", "python b.py", 0, 1), func(j *job.Job) { j.RetriesUsed = 1 }))
	tell(job.EventRequeued, "reached its time limit of 1h0m0s; requeue 1 of 10", started("3", "python c.py", 1))
	tell(job.EventStopping, "cancel", with(started("4", "python c.py", 1), func(j *job.Job) { j.Stop = job.StopCancel }))
	tell(job.EventStopping, "aside", with(started("4", "python c.py", 1), func(j *job.Job) { j.Stop, j.Detail = job.StopPreempt, "is being preempted for job 7" }))
	tell(job.EventPreempted, "preempted for job 7", started("4", "python c.py", 1))
	tell(job.EventDequeued, "", &job.Job{ID: "9", Spec: spec("python old.py")})
	tell(job.EventEnded, "", with(ended(started("1", "python a.py", 0), job.OK, 2300*time.Millisecond), func(j *job.Job) { j.PeakMiB, j.AvgUtil = map[int]int64{0: 7000}, number(93.6) }))
	tell(job.EventEnded, "", with(ended(started("2", "python b.py", 0, 1), job.OK, 1774*time.Second), func(j *job.Job) { j.VRAMMiB, j.PeakMiB = 8000, map[int]int64{0: 7900} }))
	tell(job.EventEnded, "", with(ended(started("3", "python c.py", 1), "exit:3", time.Minute), func(j *job.Job) { j.PeakMiB = nil }))
	tell(job.EventEnded, "", with(ended(started("4", "python c.py", 1), job.OOM, time.Minute), func(j *job.Job) {
		j.VRAMMiB, j.PeakMiB, j.Detail, j.Log = 4000, map[int]int64{1: 6000}, "ran out of GPU memory", "/elsewhere/4.log"
	}))
	tell(job.EventEnded, "", with(ended(started("5", "tar cf x.tar x"), "signal:KILL", time.Second), func(j *job.Job) {}))
	tell(job.EventEnded, "", with(ended(started("6", "python a.py", 3), job.Timeout, time.Hour), func(j *job.Job) { j.Detail = "reached its time limit of 1h0m0s" }))
	tell(job.EventEnded, "", with(ended(started("7", "python a.py", 3), job.WasCancelled, time.Hour), func(j *job.Job) { j.Detail = "cancelled while running" }))
	tell(job.EventEnded, "", with(ended(&job.Job{ID: "8", Spec: spec("x")}, job.Infeasible, 0), func(j *job.Job) { j.Detail = "needs 9 GPUs; this machine has 2" }))
	tell(job.EventEnded, "", with(ended(&job.Job{ID: "10", Spec: spec("x")}, job.Depends, 0), func(j *job.Job) { j.Detail = "it needed job 3 to succeed, but that job failed with exit code 3" }))
	tell(job.EventEnded, "", with(ended(started("11", "x", 0), job.Lost, 0), func(j *job.Job) {
		j.Detail = "its supervisor was killed, so its exit status is not known"
	}))
	tell(job.EventEnded, "", with(ended(started("12", "x", 0), job.Launch, 0), func(j *job.Job) { j.Detail = "chdir /nowhere: no such file or directory" }))
	tell(job.EventGPUsLost, "nvidia-smi: Unknown Error", nil)
	tell(job.EventGPUsFound, "", nil)
	tell(job.EventWarning, "disk is full", nil)
	three, two := 3, 2
	tellCard := func(gpu *int, bad bool, text string) {
		tell(job.EventCard, text, nil)
		list[len(list)-1].Card = &job.CardChange{GPU: gpu, Bad: bad}
	}
	tellCard(&three, true, "gpu3 quarantined: has fallen off the bus")
	tell(job.EventCard, "gpu3 quarantined: has fallen off the bus; job 6 keeps running", started("6", "python a.py", 3))
	tellCard(&two, true, "gpu2 suspect: missing\x1b[2J from the readings")
	tellCard(&two, false, "gpu2 ok again; it was suspect: missing from the driver's list")
	tell(job.EventIdle, "holds 12000 MiB on gpu3 and has not used it for 30m", started("6", "python a.py", 3))
	hostile := func(j *job.Job) *job.Job {
		j.Spec.Name, j.Spec.Shell = "\x1b[31mred", "echo \x1b]0;title\x07\r\nfake"
		j.Log, j.Detail = "/run/berth_logs/jobs/13/\x1b[2J.log", "why\x1b[2J"
		return j
	}
	tell(job.EventStarted, "", hostile(started("13", "", 0)))
	tell(job.EventRetry, "text\x1b[2J", with(hostile(started("13", "", 0)), func(j *job.Job) { j.RetriesUsed = 1 }))
	tell(job.EventEnded, "", hostile(ended(started("13", "", 0), "exit:1", 0)))
	tell(job.EventWarning, "gpu\x1b[2J", nil)
	parked := with(started("14", "python a.py", 0), func(j *job.Job) { j.Parking.Since = at0; j.MustTo(job.Parked) })
	tell(job.EventParked, "20.6 GiB moved to the host's memory in 11.6 s", parked)
	tell(job.EventAdopted, "", parked)
	tell(job.EventResumed, "resumed on gpu0 in 4.2 s, having been parked for 3h02m", started("14", "python a.py", 0))
	return list
}

func TestLines(t *testing.T) {
	t.Parallel()
	// The job that could not be launched has no log.
	exists := func(path string) bool { return path != "/run/berth_logs/jobs/12/1.log" }
	silent := func(string) []string { return nil }
	says := func(string) []string {
		return []string{"Traceback:", "\x1b[2J 値が正しくありません 値が正しくありません 値が正しくありません"}
	}
	narrow := func() int { return 60 }
	for name, n := range map[string]narrator{
		"lines":         {tolerance: 0.1, dir: "/run", exists: exists, tail: silent},
		"lines-verbose": {tolerance: 0.1, dir: "/run", verbose: true, exists: exists, tail: silent},
		"lines-narrow":  {tolerance: 0.1, dir: "/run", exists: exists, tail: says, width: narrow},
		"lines-quiet":   {tolerance: 0.1, dir: "/run", exists: exists, tail: says, quiet: true},
	} {
		var text strings.Builder
		for i, ev := range story() {
			for _, line := range n.lines(ev, min(i, 12), 12) {
				fmt.Fprintln(&text, line)
				if n.width != nil && words.Width(line) > n.width() {
					t.Errorf("%s: %q takes %d columns", name, line, words.Width(line))
				}
			}
		}
		if strings.ContainsAny(strings.ReplaceAll(text.String(), "\n", ""), "\x1b\r\x07") {
			t.Errorf("%s: a job can drive the terminal", name)
		}
		golden(t, name, text.String())
	}
}

func TestTheTailOfALog(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "1.log")
	for _, test := range []struct{ log, want string }{
		{"", ""},
		{"one\n", "one"},
		{"1\n2\n3\n4\n5\n6\n7", "3/4/5/6/7"},
		{"bar  1%\rbar 50%\rbar 99%\nError\r\n\n\n", "bar 99%/Error"},
		{strings.Repeat("x", saidBytes) + "\nlast\n", "last"},
	} {
		testkit.Write(t, path, test.log)
		if got := strings.Join(LastLines(path), "/"); got != test.want {
			t.Errorf("%.40q: %.60q, want %q", test.log, got, test.want)
		}
	}
	testkit.Must(t, os.Remove(path))
	testkit.Must(t, unix.Mkfifo(path, 0o600))
	if got := LastLines(path); got != nil { // and it does not wait for a writer
		t.Errorf("a pipe says %q", got)
	}
}
