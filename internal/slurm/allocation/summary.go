package allocation

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"strconv"
	"time"

	"berth/internal/queue/batch"
	"berth/internal/text"
	"berth/internal/text/problem"
)

// greet says what is about to run.
func (f *front) greet() {
	inFile := f.jobs.count(func(t *task) bool { return t.inFile })
	options := "Slurm's defaults"
	if len(f.opt.Alloc) > 0 {
		options = text.Line(f.opt.Asked)
	}
	f.narrator.say(fmt.Sprintf("%s in %s, up to %s with %s, logs in %s", text.Count(inFile, "job"), f.opt.File,
		text.Count(f.opt.Count, "allocation"), options, f.opt.LogDir))
	if f.jobs.earlier > 0 {
		f.narrator.say(fmt.Sprintf("skipping %s that ended in an earlier run (--retry-failed runs those that failed again)", text.Count(f.jobs.earlier, "job")))
	}
	if open := len(f.open()); open > 0 {
		f.narrator.say(fmt.Sprintf("taking over %s of an earlier run", text.Count(open, "allocation")))
	}
}

// finish prints the summary and returns the exit status.
func (f *front) finish() int {
	sum, now := f.jobs.tally(), time.Now()
	switch {
	case f.stopping > 0:
		sum.status = problem.Interrupted.ExitStatus()
	case sum.left > 0:
		sum.status = max(sum.status, problem.Unable.ExitStatus())
	}
	f.board.write(f.jobs, f.narrator)
	if sum.left > 0 && f.stopping == 0 && f.refusal == nil {
		f.narrator.warn(fmt.Sprintf("%s left: %s; do they have enough time and GPUs? %s is what the last one printed. The same command goes on from here",
			text.Count(sum.left, "job"), f.streak, batch.Relative(f.opt.Dir, f.allocations[len(f.allocations)-1].directory.file(outName))))
	}
	if f.opt.JSON {
		raw, _ := json.Marshal(map[string]any{"time": now, "event": "summary", "ok": sum.ok, "failed": sum.failed, "cancelled": sum.cancelled, "queued": sum.left,
			"allocations": len(f.allocations), "wall_seconds": now.Sub(f.began).Seconds(), "exit_status": sum.status})
		fmt.Fprintln(f.opt.Out, string(raw))
		return sum.status
	}
	fmt.Fprintln(f.opt.Out, sum.head(f.jobs.earlier, now.Sub(f.began)))
	if kinds := batch.Failures(sum.outcomes); kinds != "" {
		fmt.Fprintln(f.opt.Out, "not ok: "+kinds)
	}
	fmt.Fprintf(f.opt.Out, "%s lists every job and its log\n", filepath.Join(f.opt.LogDir, "status.txt"))
	return sum.status
}

// head is the first line of the summary.
func (t tally) head(earlier int, wall time.Duration) string {
	head := fmt.Sprintf("%s in %s: %d ok", text.Count(t.ok+t.failed+t.cancelled-earlier, "job"), text.Seconds(wall), t.ok)
	for _, part := range []struct {
		n    int
		word string
	}{{t.failed, "failed"}, {t.cancelled, "cancelled"}, {t.left, "left"}} {
		if part.n > 0 {
			head += fmt.Sprintf(", %d %s", part.n, part.word)
		}
	}
	if earlier > 0 {
		head += fmt.Sprintf(" (%d of them in an earlier run)", earlier)
	}
	return head
}

// How often the board is written; less often if it is long.
const (
	boardEvery  = 2 * time.Second
	boardPerJob = 100 * time.Microsecond
)

// board is status.txt: every job, where it is, and where its log is.
type board struct {
	path    string
	written time.Time
}

func (b *board) due(jobs int) bool {
	return time.Since(b.written) >= boardEvery+time.Duration(jobs)*boardPerJob
}

func (b *board) write(jobs *jobList, n *narrator) {
	b.written = time.Now()
	table := text.Titled("JOB", "STATE", "ALLOCATION", "NODE", "LOG", "COMMAND")
	for _, t := range jobs.all {
		state, in, log := "queued", "", ""
		switch {
		case t.ended():
			state = string(t.outcome)
		case t.begun:
			state = "running"
		}
		if t.in > 0 {
			in = strconv.Itoa(t.in)
		}
		if t.log != "" {
			log = batch.Relative(n.dir, t.log)
		}
		table.Row(strconv.Itoa(t.id), state, in, t.node, log, text.Clip(text.Line(t.spec.Command()), 200))
	}
	_ = batch.Replace(b.path, []byte(table.String())) // the next one may succeed
}
