package batch

import (
	"fmt"
	"regexp"
	"strings"
	"testing"
	"time"

	"berth/internal/job"
	"berth/internal/queue/engine/running"
	"berth/internal/sched"
	"berth/internal/tests/testkit"
	"berth/internal/text"
)

// busy is a snapshot with something of everything in it.
func busy() snapshot {
	train := started("1", "python train.py --config configs/large.yaml --epochs 100", 0)
	train.VRAMMiB, train.Spec.Name = 18432, "train"
	pair := started("2", "torchrun --nproc 2 pair.py", 1, 2)
	pair.StartedAt = at0.Add(-3 * time.Hour)
	half := started("3", "python half.py", 3)
	half.Grant.Share, half.Grant.BudgetMiB = 0.5, 11673
	copying := started("4", "cp -r \x1b[2Ja 训练数据", []int{}...)
	copying.Spec.Name = "a name that is far too long"
	retried := &job.Job{ID: "6", Spec: spec("python again.py"), RetriesUsed: 1}
	return snapshot{
		at: at0.Add(5 * time.Minute), file: "/home/ann/jobs.txt", total: 12,
		tally: tally{ok: 3, failed: 2, cancelled: 1, running: 4, queued: 3},
		cards: []sched.Card{
			{Index: 0, TotalMiB: 24576, UsedMiB: 17100, UtilPct: 97},
			{Index: 1, TotalMiB: 24576, UsedMiB: 2000, UtilPct: -1, ForeignMiB: 1100},
			{Index: 2, TotalMiB: 24576, UtilPct: -1, Health: sched.HealthQuarantined, HealthReason: "Xid 48 (double-bit ECC error)"},
			{Index: 3, TotalMiB: 24576, UsedMiB: 5000, UtilPct: 0, HealthReason: "the memory of job 7 is not free yet: 5000 MiB"},
			{Index: 10, TotalMiB: 81920, UtilPct: -1, Stale: true, HealthReason: "missing from the last reading"},
		},
		running: []running.Job{
			{Job: train, NowMiB: 17100, PeakMiB: 17200}, {Job: pair, NowMiB: -1}, {Job: half, NowMiB: 6000}, {Job: copying, NowMiB: -1},
		},
		pending: []waitingJob{
			{job: &job.Job{ID: "5", Spec: spec("python next.py")}, reason: "needs 2 GPUs with 18432 MiB free; best now: gpu1 20000, gpu3 9000"},
			{job: retried},
		},
		ended: []*job.Job{
			ended(started("8", "python bad.py", 0), "exit:2", 74*time.Second),
			ended(started("7", "python good.py", 0), job.OK, 2300*time.Millisecond),
			ended(&job.Job{ID: "9", Spec: spec("python huge.py")}, job.Infeasible, 0),
		},
	}
}

func TestBoard(t *testing.T) {
	t.Parallel()
	golden(t, "board", string(renderBoard(busy())))
	blind := snapshot{at: at0, file: "jobs.txt", paused: "the GPUs cannot be read: \x1b[2Jno answer"}
	golden(t, "board-blind", string(renderBoard(blind)))
}

func TestBoardIsWrittenWholeAndOnlyWhenItChanged(t *testing.T) {
	t.Parallel()
	path := t.TempDir() + "/status.txt"
	b := &board{path: path, render: renderBoard}
	s := busy()
	s.running = nil // whose clocks would move
	if err := b.write(s); err != nil {
		t.Fatal(err)
	}
	if got := testkit.Read(t, path); got != string(renderBoard(s)) {
		t.Errorf("it has %q", got)
	}
	testkit.Write(t, path, "untouched")
	s.at = s.at.Add(time.Second)
	if err := b.write(s); err != nil || testkit.Read(t, path) != "untouched" {
		t.Errorf("it was written again for the time alone: %v", err)
	}
	s.tally.ok++
	if err := b.write(s); err != nil || testkit.Read(t, path) != string(renderBoard(s)) {
		t.Errorf("a change did not reach it: %v", err)
	}
	lost := &board{path: t.TempDir() + "/none/status.txt", render: renderBoard}
	if err := lost.write(s); err == nil {
		t.Error("a directory that is not there")
	}
}

var escapes = regexp.MustCompile(`\x1b\[[0-9]*m`)

func TestView(t *testing.T) {
	t.Parallel()
	for _, width := range []int{40, 80, 120} {
		plainLines := renderView(busy(), width, 24, false)
		coloured := renderView(busy(), width, 24, true)
		for i, line := range coloured {
			if got := escapes.ReplaceAllString(line, ""); got != plainLines[i] {
				t.Errorf("colours change the words of %q to %q", plainLines[i], got)
			}
			if text.Width(plainLines[i]) > width {
				t.Errorf("%q takes %d columns of %d", plainLines[i], text.Width(plainLines[i]), width)
			}
		}
		golden(t, fmt.Sprintf("view-%d", width), strings.Join(plainLines, "\n")+"\n")
		golden(t, fmt.Sprintf("view-%d-colour", width), strings.Join(coloured, "\n")+"\n")
	}
}

func TestViewIsBounded(t *testing.T) {
	t.Parallel()
	s := snapshot{at: at0, paused: "berth is stopping"}
	for i := range 100 {
		s.running = append(s.running, running.Job{Job: started(fmt.Sprint(i), "x", 0)})
	}
	s.tally.running = 100
	lines := renderView(s, 80, 60, false)
	if len(lines) != viewRunning+3 {
		t.Errorf("%d lines", len(lines))
	}
	if lines[viewRunning] != "  and 84 more running" {
		t.Errorf("%q", lines[viewRunning])
	}
	if n := len(renderView(s, 0, 60, false)); n != len(lines) {
		t.Errorf("a terminal without a width has %d lines", n)
	}
}

func TestTheViewFitsItsTerminal(t *testing.T) {
	t.Parallel()
	crowd := busy()
	crowd.paused = "berth is stopping"
	for len(crowd.running) < 100 {
		crowd.running = append(crowd.running, crowd.running[0])
	}
	crowd.tally.running = 100
	for _, s := range []snapshot{crowd, busy(), {total: 1}} {
		for height := 1; height <= 60; height++ {
			lines := renderView(s, 60, height, false)
			if len(lines) > height-1 {
				t.Fatalf("%d lines on a terminal of %d rows", len(lines), height)
			}
			if height > 1 && !strings.Contains(lines[len(lines)-1], "done · ") {
				t.Errorf("%d rows end in %q", height, lines[len(lines)-1])
			}
			shown, told := 0, 0
			for _, line := range lines {
				if strings.HasPrefix(line, "▶ ") {
					shown++
				}
				fmt.Sscanf(line, "  and %d more running", &told)
			}
			if len(lines) > 2 && shown+told != len(s.running) {
				t.Errorf("on %d rows %d jobs are shown and %d counted, of %d", height, shown, told, len(s.running))
			}
		}
	}
	if n := len(renderView(crowd, 60, 0, false)); n == 0 || n > 23 {
		t.Errorf("on a terminal that does not say its size, %d lines", n)
	}
	golden(t, "view-8-rows", strings.Join(renderView(crowd, 80, 8, false), "\n")+"\n")
}

func TestBar(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name     string
		now      int64
		declared int64
		budget   int64
		want     string
	}{
		{"half of the declaration", 500, 1000, 1000, "▮▮▮▮▮▯▯▯▯▯"},
		{"more than the declaration", 5000, 1000, 1000, "▮▮▮▮▮▮▮▮▮▮"},
		{"of a share, its budget", 300, 0, 1000, "▮▮▮▯▯▯▯▯▯▯"},
		{"else of the card", 12288, 0, 0, "▮▮▮▮▮▯▯▯▯▯"},
		{"not known", -1, 1000, 1000, "          "},
	}
	for _, test := range tests {
		j := &job.Job{VRAMMiB: test.declared, Attempt: job.Attempt{Grant: job.Grant{BudgetMiB: test.budget, CardMiB: 24576}}}
		if got := bar(running.Job{Job: j, NowMiB: test.now}); got != test.want {
			t.Errorf("%s: %q, want %q", test.name, got, test.want)
		}
	}
}

func TestLinesAreColouredByWhatHappened(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 3, 1, 12, 0, 0, 0, time.Local)
	failed := &job.Job{ID: "1", State: job.Failed, Outcome: job.Exited(1)}
	tests := []struct {
		ev   job.Event
		want string
	}{
		{job.Event{Kind: job.EventDequeued, Job: failed}, "[12:00:00] job 1 dequeued: its line is gone — "},
		{job.Event{Kind: job.EventEnded, Job: &job.Job{ID: "1", State: job.Finished, Outcome: job.OK}}, "[12:00:00] job 1 \x1b[32mfinished\x1b[0m [OK]"},
		{job.Event{Kind: job.EventEnded, Job: failed}, "\x1b[31m[12:00:00] job 1 failed [exit:1]\x1b[0m"},
		{job.Event{Kind: job.EventRetry, Job: failed, Text: "oom"}, "\x1b[33m[12:00:00] job 1 failed, will retry: oom\x1b[0m"},
		{job.Event{Kind: job.EventWarning, Text: "disk is full"}, "\x1b[33m[12:00:00] WARN disk is full\x1b[0m"},
		{job.Event{Kind: job.EventCard, Text: "gpu0 is lost", Card: &job.CardChange{Bad: true}}, "\x1b[33m[12:00:00] WARN gpu0 is lost\x1b[0m"},
		{job.Event{Kind: job.EventCard, Text: "gpu0 is back"}, "[12:00:00] gpu0 is back"},
	}
	for _, test := range tests {
		test.ev.At = at
		if got := strings.Join((narrator{paint: true, tail: LastLines}).lines(test.ev, 1, 1), "\n"); got != test.want {
			t.Errorf("%q, want %q", got, test.want)
		}
		if got := strings.Join((narrator{tail: LastLines}).lines(test.ev, 1, 1), "\n"); strings.Contains(got, "\x1b") {
			t.Errorf("without colour: %q", got)
		}
	}
	if got := strings.Join((narrator{paint: true}).warn(at, "disk is full"), "\n"); got != "\x1b[33m[12:00:00] WARN disk is full\x1b[0m" {
		t.Errorf("%q", got)
	}
}
