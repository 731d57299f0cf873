package allocation

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"berth/internal/job"
	"berth/internal/job/jobfile"
	"berth/internal/machine/site"
	"berth/internal/slurm"
	"berth/internal/text/problem"
)

// grant is one allocation, as the front knows it.
type grant struct {
	number int
	place  place
	slurm  string // Slurm's id; empty: not known
	tasks  []*task
	lines  []string // jobs.txt
	began  *began
	closed bool
	never  bool // it never began

	journal  journal
	ends     time.Time // when its jobs are stopped; zero: not known, or no limit
	whole    time.Duration
	started  bool      // a job started in it
	finished int       // jobs that ended in it
	state    string    // as Slurm last said; empty: it does not know it
	absent   int       // how often in a row Slurm did not list it
	alive    string    // its last sign of life
	silent   time.Time // since when that is the last
	why      string    // why it waits, as last said
	noMore   bool
	doubt    map[*task]verdict // jobs that may have been stopped with it
}

// verdict is how a job seems to have ended, and since when that is known.
type verdict struct {
	news  news
	since time.Time
}

// front is one `berth run --allocations`.
type front struct {
	opt    Options
	dir    string // of the allocations
	ledger *ledger
	lock   *os.File
	run    string // names it in Slurm

	tasks  []*task
	byKey  map[string]*task
	grants []*grant
	pace   pace
	voice  *voice
	began  time.Time

	stamp     string    // of the jobs file, as last read
	asked     time.Time // when Slurm was last asked
	away      bool      // it does not answer
	accepted  int       // allocations at a time that Slurm accepts, as far as is known
	lost      int       // allocations that Slurm forgot
	fruitless int       // allocations in a row in which no job ended
	barren    int       // allocations in a row in which no job started
	refusal   error     // what sbatch said
	stopping  int       // how often the user interrupted
	hungUp    bool      // its terminal was closed
	boardAt   time.Time // when it was last written
	earlier   int       // jobs that ended in an earlier run
}

// Run drains the jobs file and returns the exit status. It returns an error if
// nothing could be asked for.
func Run(ctx context.Context, o Options) (int, error) {
	f := &front{opt: o, byKey: map[string]*task{}, began: time.Now(), accepted: o.Count}
	defer f.close()
	if err := f.open(); err != nil {
		return 0, err
	}
	f.greet()
	ticker := time.NewTicker(o.Poll)
	defer ticker.Stop()
	for {
		if f.relieved() {
			f.voice.say("leaving the allocations to another berth run")
			return 0, nil
		}
		done, err := f.step(ctx)
		if err != nil {
			return 0, problem.Wrap(problem.Unable, "the allocations go on with what they have; fix this, then run the same command again", err)
		}
		if done {
			return f.finish(), f.refusal
		}
		select {
		case <-ticker.C:
		case sig := <-o.Signals:
			if sig == syscall.SIGHUP {
				f.hangUp()
			} else {
				f.interrupt()
			}
		}
	}
}

// open reads the jobs file and the ledger.
func (f *front) open() error {
	logDir, err := filepath.Abs(f.opt.LogDir)
	if err != nil {
		return problem.Wrap(problem.Unable, "", err)
	}
	f.dir = dirOf(logDir)
	lines, stamp, err := f.opt.read()
	if err != nil {
		return err
	}
	f.stamp = stamp
	if err := f.settle(logDir); err != nil {
		return err
	}
	err = f.resume(lines)
	if err != nil && problem.KindOf(err) == "" {
		err = problem.Wrap(problem.Unable, "", err)
	}
	return err
}

// settle takes the log directory.
func (f *front) settle(logDir string) error {
	const elsewhere = "choose another place with --log-dir"
	if err := os.MkdirAll(f.dir, 0o755); err != nil {
		return problem.Wrap(problem.Unable, elsewhere, err)
	}
	if err := site.OwnPlace(logDir); err != nil {
		return problem.Wrap(problem.Unable, elsewhere, fmt.Errorf("log directory %w", err))
	}
	if err := f.hold(handoverTime); err != nil {
		return err
	}
	if f.opt.Fresh {
		if err := f.startOver(logDir); err != nil {
			return err
		}
	}
	var err error
	if f.opt.Installed == "" {
		if f.opt.Installed, err = bring(f.opt.Program, filepath.Join(f.dir, "bin")); err != nil {
			return problem.Newf(problem.Unable, elsewhere, "copy berth to where the nodes see it: %w", err)
		}
	}
	if f.voice, err = openVoice(&f.opt, logDir); err != nil {
		return problem.Wrap(problem.Unable, elsewhere, err)
	}
	return nil
}

// resume goes on where the ledger ends.
func (f *front) resume(lines []*line) (err error) {
	var entries []entry
	if f.ledger, entries, err = openLedger(filepath.Join(f.dir, "ledger.jsonl")); err != nil {
		return err
	}
	f.replay(entries)
	if f.run == "" {
		name := make([]byte, 4)
		_, _ = rand.Read(name) // never fails
		f.run = hex.EncodeToString(name)
		if err := f.ledger.write(entry{Run: f.run}); err != nil {
			return err
		}
	}
	for _, g := range f.grants {
		if err := f.follow(g); err != nil {
			return err
		}
		if g.lines, err = g.place.lines(); err != nil {
			return err
		}
		g.noMore = g.place.has(noMoreName)
	}
	for _, t := range f.tasks {
		if t.ended() {
			f.earlier++
		}
	}
	if err := f.unusable(lines); err != nil {
		return err
	}
	if err := f.accept(lines); err != nil {
		return err
	}
	for _, g := range f.grants {
		if err := g.complete(); err != nil {
			return err
		}
	}
	if f.opt.RetryFailed {
		return f.forget()
	}
	return nil
}

// startOver moves the records of earlier allocations away. None may be left in
// Slurm.
func (f *front) startOver(logDir string) error {
	if !Present(logDir) {
		return nil
	}
	l, entries, err := openLedger(filepath.Join(f.dir, "ledger.jsonl"))
	if err != nil {
		return problem.Wrap(problem.Unable, "", err)
	}
	_ = l.file.Close()
	closed := map[int]bool{}
	for _, e := range entries {
		closed[e.Close] = true
	}
	for _, e := range entries {
		if e.Ask > 0 && !closed[e.Ask] {
			return problem.Newf(problem.Refused, "run the same command without --fresh, stop it with Ctrl-C, then start over",
				"allocation %d of an earlier run may still run", e.Ask)
		}
	}
	old := filepath.Join(logDir, "old-"+time.Now().Format("20060102-150405"))
	if err = os.Mkdir(old, 0o755); err == nil {
		err = os.Rename(f.dir, filepath.Join(old, "alloc"))
	}
	if err == nil {
		_ = os.Rename(filepath.Join(logDir, "journal.jsonl"), filepath.Join(old, "journal.jsonl"))
		err = os.MkdirAll(f.dir, 0o755)
	}
	if err == nil {
		_ = f.lock.Close()
		err = f.hold(0)
	}
	if err != nil {
		return problem.Wrap(problem.Unable, "", err)
	}
	return nil
}

// replay brings back what the ledger says.
func (f *front) replay(entries []entry) {
	for _, e := range entries {
		switch {
		case e.Run != "":
			f.run = e.Run
		case len(e.Jobs) > 0:
			for _, key := range e.Jobs {
				f.add(key)
			}
		case e.Ask > 0:
			f.grants = append(f.grants, f.newGrant(e.Ask))
		case e.Got > 0:
			f.grants[e.Got-1].slurm = e.Slurm
		case e.Deal > 0:
			g := f.grants[e.Deal-1]
			for _, id := range e.IDs {
				g.take(f.tasks[id-1])
			}
		case e.Close > 0:
			g := f.grants[e.Close-1]
			// What it finished is read before its other jobs are free again.
			g.closed, g.never = true, e.Never
			_ = f.follow(g)
			f.free(g)
		case len(e.Forget) > 0:
			for _, id := range e.Forget {
				f.tasks[id-1].outcome, f.tasks[id-1].code, f.tasks[id-1].in = "", nil, 0
			}
		}
	}
}

func (f *front) add(key string) *task {
	t := &task{id: len(f.tasks) + 1, key: key}
	f.tasks = append(f.tasks, t)
	f.byKey[key] = t
	return t
}

func (f *front) newGrant(number int) *grant {
	return &grant{number: number, place: place(filepath.Join(f.dir, strconv.Itoa(number))), doubt: map[*task]verdict{}}
}

// take gives a task to an allocation.
func (g *grant) take(t *task) {
	g.tasks = append(g.tasks, t)
	t.in, t.index, t.begun = g.number, len(g.tasks), false
}

// complete gives an allocation the jobs that the ledger says it has: a front that
// was killed may not have come to it.
func (g *grant) complete() error {
	if g.closed || len(g.lines) == len(g.tasks) {
		return nil
	}
	for _, t := range g.tasks[len(g.lines):] {
		text := t.text
		if text == "" { // its line was deleted meanwhile; the others keep their places
			text = "[cancel] true"
		}
		g.lines = append(g.lines, text)
	}
	return g.place.give(g.lines)
}

// tag is an allocation's name in Slurm.
func (f *front) tag(g *grant) string { return fmt.Sprintf("berth-%s-%d", f.run, g.number) }

// accept brings the tasks up to date with the jobs file.
func (f *front) accept(lines []*line) error {
	for _, t := range f.tasks {
		t.inFile = false
	}
	var fresh []string
	for _, l := range lines {
		if f.byKey[l.Key] == nil {
			fresh = append(fresh, l.Key)
		}
	}
	if len(fresh) > 0 {
		if err := f.ledger.write(entry{Jobs: fresh}); err != nil {
			return err
		}
	}
	for _, key := range fresh {
		f.add(key)
	}
	named := map[string]*task{}
	for _, l := range lines {
		t := f.byKey[l.Key]
		t.inFile, t.spec, t.text, t.number, t.after = true, l.Spec, l.text, l.Number, nil
		named[strconv.Itoa(l.Number)] = t
	}
	for _, l := range lines { // a name such as 3 counts before line 3
		if l.Spec.Name != "" {
			named[l.Spec.Name] = f.byKey[l.Key]
		}
	}
	for _, l := range lines {
		t := f.byKey[l.Key]
		for _, d := range l.Spec.After {
			t.after = append(t.after, dependency{on: named[d.Name], cond: d.On})
		}
		if l.Spec.CancelMarked && t.waits() {
			t.outcome, t.detail = job.WasCancelled, "its line is marked cancel"
		}
	}
	return nil
}

// forget makes the jobs that failed run again.
func (f *front) forget() error {
	var ids []int
	for _, t := range f.tasks {
		if t.ended() && t.outcome.Status() != 0 && t.inFile {
			ids = append(ids, t.id)
			t.outcome, t.code, t.in = "", nil, 0
			f.earlier--
		}
	}
	if len(ids) == 0 {
		return nil
	}
	return f.ledger.write(entry{Forget: ids})
}

func (f *front) close() {
	if f.voice != nil {
		f.voice.close()
	}
	if f.ledger != nil {
		_ = f.ledger.file.Close()
	}
	if f.lock != nil {
		_ = f.lock.Close()
	}
}

// line is a line of the jobs file, and its text for an allocation.
type line struct {
	*jobfile.Line
	text string
}

// known reports whether a name in Slurm is one of this run's.
func (f *front) known(name string) bool { return strings.HasPrefix(name, "berth-"+f.run+"-") }

// look asks Slurm about the allocations. Nil: it does not answer.
func (f *front) look(ctx context.Context) map[string]slurm.Entry {
	f.asked = time.Now()
	found, err := f.opt.queue(ctx, f.known)
	switch {
	case err == nil && f.away:
		f.voice.say("Slurm answers again")
	case err != nil && !f.away:
		why := ""
		if !errors.Is(err, errAway) {
			why = " (" + err.Error() + ")"
		}
		f.voice.warn("Slurm does not answer; running allocations go on, and berth waits for it" + why)
	}
	if f.away = err != nil; err != nil {
		return nil
	}
	return found
}
