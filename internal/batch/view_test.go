package batch

import (
	"bytes"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"berth/internal/engine"
	"berth/internal/job"
	"berth/internal/sched"
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
			{Index: 10, TotalMiB: 81920, UtilPct: -1, Stale: true, HealthReason: "missing from the last reading"},
		},
		running: []engine.Running{
			{Job: train, NowMiB: 17100, PeakMiB: 17200}, {Job: pair, NowMiB: -1}, {Job: half, NowMiB: 6000}, {Job: copying, NowMiB: -1},
		},
		pending: []waiting{
			{job: &job.Job{ID: "5", Spec: spec("python next.py")}, reason: "needs 2 GPUs with 18432 MiB free; best now: gpu1 20000, gpu3 9000"},
			{job: retried},
		},
		over: []*job.Job{
			ended(started("8", "python bad.py", 0), "exit:2", 74*time.Second),
			ended(started("7", "python good.py", 0), job.OK, 2300*time.Millisecond),
			ended(&job.Job{ID: "9", Spec: spec("python huge.py")}, job.Infeasible, 0),
		},
	}
}

func TestBoard(t *testing.T) {
	golden(t, "board", string(renderBoard(busy())))
	blind := snapshot{at: at0, file: "jobs.txt", paused: "the GPUs cannot be read: \x1b[2Jno answer"}
	golden(t, "board-blind", string(renderBoard(blind)))
}

func TestBoardIsWrittenWholeAndOnlyWhenItChanged(t *testing.T) {
	path := t.TempDir() + "/status.txt"
	b := &board{path: path}
	s := busy()
	s.running = nil // whose clocks would move
	if err := b.write(s); err != nil {
		t.Fatal(err)
	}
	if got := read(t, path); got != string(renderBoard(s)) {
		t.Errorf("it has %q", got)
	}
	write(t, path, "untouched")
	s.at = s.at.Add(time.Second)
	if err := b.write(s); err != nil || read(t, path) != "untouched" {
		t.Errorf("it was written again for the time alone: %v", err)
	}
	s.tally.ok++
	if err := b.write(s); err != nil || read(t, path) != string(renderBoard(s)) {
		t.Errorf("a change did not reach it: %v", err)
	}
	lost := &board{path: t.TempDir() + "/none/status.txt"}
	if err := lost.write(s); err == nil {
		t.Error("a directory that is not there")
	}
}

var escapes = regexp.MustCompile(`\x1b\[[0-9]*m`)

func TestView(t *testing.T) {
	for _, width := range []int{40, 80, 120} {
		plainLines := renderView(busy(), width, 24, false)
		coloured := renderView(busy(), width, 24, true)
		for i, line := range coloured {
			if got := escapes.ReplaceAllString(line, ""); got != plainLines[i] {
				t.Errorf("colours change the words of %q to %q", plainLines[i], got)
			}
			if columns(plainLines[i]) > width {
				t.Errorf("%q takes %d columns of %d", plainLines[i], columns(plainLines[i]), width)
			}
		}
		golden(t, fmt.Sprintf("view-%d", width), strings.Join(plainLines, "\n")+"\n")
		golden(t, fmt.Sprintf("view-%d-colour", width), strings.Join(coloured, "\n")+"\n")
	}
}

func TestViewIsBounded(t *testing.T) {
	s := snapshot{at: at0, paused: "berth is stopping"}
	for i := range 100 {
		s.running = append(s.running, engine.Running{Job: started(fmt.Sprint(i), "x", 0)})
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
		j := &job.Job{VRAMMiB: test.declared, Grant: job.Grant{BudgetMiB: test.budget, CardMiB: 24576}}
		if got := bar(engine.Running{Job: j, NowMiB: test.now}); got != test.want {
			t.Errorf("%s: %q, want %q", test.name, got, test.want)
		}
	}
}

// terminal plays what is written to it, so that a test sees what a person
// would. It knows the few sequences the live view uses.
type terminal struct {
	lines  []string
	rows   int // 0: more than enough
	broken error
}

var moveUp = regexp.MustCompile(`^\x1b\[(\d+)A\r\x1b\[J`)

func (tm *terminal) Write(p []byte) (int, error) {
	if tm.broken != nil {
		return 0, tm.broken
	}
	text := string(p)
	if up := moveUp.FindStringSubmatch(text); up != nil {
		var n int
		fmt.Sscan(up[1], &n)
		if tm.rows > 0 {
			n = min(n, tm.rows-1) // what has scrolled away cannot be reached
		}
		tm.lines = tm.lines[:len(tm.lines)-n]
		text = text[len(up[0]):]
	}
	for line := range strings.Lines(text) {
		tm.lines = append(tm.lines, strings.TrimSuffix(line, "\n"))
	}
	return len(p), nil
}

func TestTheLiveBlockStaysBelowTheLines(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tm := &terminal{}
		s := &screen{out: tm, live: true, width: func() int { return 60 }, height: func() int { return 24 }}
		s.print("first")
		snap := snapshot{total: 4, tally: tally{ok: 1, queued: 3}, paused: "berth is stopping"}
		s.show(&snap)
		s.print("second", "third")
		want := []string{"first", "second", "third", "nothing starts: berth is stopping", "█████░░░░░░░░░░░░░░░ 1/4 done · 0 running · 3 queued"}
		if got := strings.Join(tm.lines, "\n"); got != strings.Join(want, "\n") {
			t.Errorf("on the screen:\n%s", got)
		}
		snap2 := snapshot{total: 4, tally: tally{ok: 2, queued: 2}}
		s.show(&snap2)
		if n := len(tm.lines); n != 4 {
			t.Errorf("after a smaller block: %q", tm.lines)
		}
		s.close()
		s.print("summary")
		if got := strings.Join(tm.lines, " "); got != "first second third summary" {
			t.Errorf("what stays: %s", got)
		}
	})
}

func TestTheLiveBlockLeavesNothingBehindOnASmallTerminal(t *testing.T) {
	for _, rows := range []int{1, 2, 3, 5, 10} {
		tm := &terminal{rows: rows}
		s := &screen{out: tm, live: true, width: func() int { return 60 }, height: func() int { return rows }}
		snap := busy()
		for len(snap.running) < 40 {
			snap.running = append(snap.running, snap.running[0])
		}
		s.print("first")
		for range 3 {
			s.show(&snap)
		}
		s.print("second")
		s.close()
		if got := strings.Join(tm.lines, " "); got != "first second" {
			t.Errorf("on %d rows there stays: %s", rows, got)
		}
	}
}

func TestWithoutATerminalThereIsNoBlock(t *testing.T) {
	var out bytes.Buffer
	s := &screen{out: &out}
	snap := busy()
	s.show(&snap)
	s.print("a line")
	s.close()
	if out.String() != "a line\n" {
		t.Errorf("%q", out.String())
	}
}

func TestATerminalThatIsGoneIsLeftAlone(t *testing.T) {
	tm := &terminal{broken: errors.New("input/output error")}
	s := &screen{out: tm}
	s.print("into the void")
	tm.broken = nil
	s.print("nobody is there")
	if len(tm.lines) != 0 {
		t.Errorf("%q", tm.lines)
	}
}

func TestPaint(t *testing.T) {
	s := &screen{colour: true}
	tests := []struct{ line, want string }{
		{"[12:00:00] job 1 started on gpu [0] (1/1 dispatched) — x", "[12:00:00] job 1 started on gpu [0] (1/1 dispatched) — x"},
		{"[12:00:00] job 1 finished [OK] in 1.0s", "[12:00:00] job 1" + green + " finished [" + plain + "OK] in 1.0s"},
		{"[12:00:00] job 1 failed [exit:1] in 1.0s", red + "[12:00:00] job 1 failed [exit:1] in 1.0s" + plain},
		{"[12:00:00] job 1 failed, will retry: oom", amber + "[12:00:00] job 1 failed, will retry: oom" + plain},
		{"[12:00:00] WARN disk is full", amber + "[12:00:00] WARN disk is full" + plain},
	}
	for _, test := range tests {
		if got := s.paint(test.line); got != test.want {
			t.Errorf("%q, want %q", got, test.want)
		}
		if got := (&screen{}).paint(test.line); got != test.line {
			t.Errorf("without colour: %q", got)
		}
	}
}
