package batch

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"berth/internal/job"
	"berth/internal/machine/keep"
	"berth/internal/queue/engine"
	"berth/internal/queue/store"
	"berth/internal/text"
	"berth/internal/text/problem"
)

// gpusched's journal has the same place and name as berth's. berth renames it
// and imports it into the store; then gpusched's work is an earlier run like any
// other.
const (
	theirPrefix = "journal.gpusched"
	theirSuffix = ".jsonl"
)

// Bounds on the size of a journal, and on how many are kept.
const (
	maxTheirs     = 256 << 20
	maxTheirFiles = 999
)

// keepTheirs renames a journal of gpusched's, before berth opens its own under
// that name and would truncate it. After a crash here, inherit finds the renamed
// journal next time.
func (l layout) keepTheirs() error {
	theirs, err := holdsTheirs(l.journal())
	if err != nil || !theirs {
		return err
	}
	if err := l.refuseBeside(); err != nil {
		return err
	}
	kept, err := l.theirs()
	if err != nil {
		return err
	}
	next := 1
	if len(kept) > 0 {
		next = theirNumber(filepath.Base(kept[len(kept)-1])) + 1
	}
	if next > maxTheirFiles {
		return fmt.Errorf("keep gpusched's journal: expected at most %d in %s, found more", maxTheirFiles, l.logDir)
	}
	name := theirPrefix
	if next > 1 {
		name += "-" + strconv.Itoa(next)
	}
	if err := os.Rename(l.journal(), filepath.Join(l.logDir, name+theirSuffix)); err != nil {
		return fmt.Errorf("keep gpusched's journal: %w", err)
	}
	return nil
}

// holdsTheirs looks at the first and the last whole line: gpusched either began
// the journal, or appended to one of berth's.
func holdsTheirs(path string) (bool, error) {
	file, err := os.Open(path)
	if errors.Is(err, os.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("open journal: %w", err)
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil || !info.Mode().IsRegular() {
		return false, err
	}
	head := make([]byte, min(info.Size(), tailBytes))
	tail := make([]byte, len(head))
	if _, err = file.ReadAt(head, 0); err == nil {
		_, err = file.ReadAt(tail, info.Size()-int64(len(tail)))
	}
	if err != nil {
		return false, fmt.Errorf("read journal: %w", err)
	}
	first, _, _ := bytes.Cut(head, []byte{'\n'})
	whole := bytes.TrimRight(tail[:bytes.LastIndexByte(tail, '\n')+1], "\n")
	last := whole[bytes.LastIndexByte(whole, '\n')+1:]
	return isTheirLine(first) || isTheirLine(last), nil
}

func isTheirLine(line []byte) bool {
	var ev theirEvent
	return json.Unmarshal(line, &ev) == nil && ev.isTheirs()
}

// theirs are the renamed journals of gpusched, oldest first.
func (l layout) theirs() ([]string, error) {
	entries, err := os.ReadDir(l.logDir)
	if err != nil {
		return nil, fmt.Errorf("look for gpusched's journal: %w", err)
	}
	var names []string
	for _, e := range entries {
		if e.Type().IsRegular() && theirNumber(e.Name()) > 0 {
			names = append(names, e.Name())
		}
	}
	slices.SortFunc(names, func(a, b string) int { return theirNumber(a) - theirNumber(b) })
	for i, name := range names {
		names[i] = filepath.Join(l.logDir, name)
	}
	return names, nil
}

// theirNumber is 1 for journal.gpusched.jsonl, 2 for journal.gpusched-2.jsonl,
// and 0 for any other name.
func theirNumber(name string) int {
	middle, found := strings.CutPrefix(name, theirPrefix)
	middle, ends := strings.CutSuffix(middle, theirSuffix)
	switch {
	case !found || !ends:
		return 0
	case middle == "":
		return 1
	}
	n, err := strconv.Atoi(strings.TrimPrefix(middle, "-"))
	if err != nil || n < 2 || middle != "-"+strconv.Itoa(n) {
		return 0
	}
	return n
}

// inherit imports gpusched's jobs into the store, in one commit. Jobs that the
// store has stay as they are, so that importing again changes nothing.
func (h *Host) inherit(now time.Time) error {
	theirs, alive, err := h.layout.loadTheirs()
	if err != nil || len(theirs) == 0 {
		return err
	}
	known := map[string]*job.Job{}
	if err := h.store.Each(func(j *job.Job) error { known[j.Key] = j; return nil }); err != nil {
		return fmt.Errorf("read the store: %w", err)
	}
	seq, err := h.store.LastSeq()
	if err != nil {
		return err
	}
	var jobs []*job.Job
	for _, t := range theirs {
		j := known[t.key()]
		if j == nil {
			seq++ // even if it is left out, so that the numbers match gpusched's
			spec := job.Defaults()
			declared, inFile := h.opt.Keys[t.key()]
			spec.Shell, spec.VRAMMiB = t.command, declared
			j = t.job(now, spec)
			j.User, j.UID = h.user(), os.Getuid()
			j.Seq, j.ID, j.Rank = seq, strconv.FormatInt(seq, 10), seq
			if j.State.Terminal() || inFile {
				jobs = append(jobs, j)
			}
		}
		if t.done == nil && t.group > 1 {
			h.orphans = append(h.orphans, orphan{key: t.key(), job: j, group: t.group, gone: !t.left(alive)})
		}
	}
	return h.admitInherited(jobs)
}

// orphan is a process group that gpusched left running, and the job of its line,
// which is held until the group is gone, or it would run twice.
type orphan struct {
	key   string
	job   *job.Job
	group int
	gone  bool
	said  bool
}

// Admit holds the jobs of new lines whose processes gpusched left running.
func (h *Host) Admit(jobs []*job.Job) {
	for i := range h.orphans {
		o := &h.orphans[i]
		for _, j := range jobs {
			if j.Key == o.key {
				o.job, j.Held = j, true
			}
		}
	}
}

// orphans are those of one queue.
type orphans []orphan

// tend holds the jobs whose processes gpusched left running, and releases
// them once these are gone.
func (all *orphans) tend(t *engine.Turn, began time.Time) {
	for i := range *all {
		o := &(*all)[i]
		o.gone = o.gone || !groupAlive(o.group, began)
		queued := t.Queue().Queued(o.job.ID) != nil
		switch {
		case o.gone:
			if t.Queue().Unhold(o.job.ID, "berth") {
				t.Queue().Tell(job.EventNotice, nil, fmt.Sprintf("job %s was interrupted mid-run by a previous scheduler's death — re-queuing", o.job.ID))
			}
		case t.Queue().Hold(o.job.ID, "berth"), !o.said && queued:
			o.said = true
			t.Warn(nil, fmt.Sprintf("job %s is still running as an ORPHAN of a previous scheduler (pgid %d) — not re-dispatching until it ends; to end it: kill -TERM -%[2]d", o.job.ID, o.group))
		}
	}
	*all = slices.DeleteFunc(*all, func(o orphan) bool { return o.gone })
}

// refuseTwice refuses to start over while a job that gpusched left is still
// running.
func (l layout) refuseTwice(keys map[string]int64) error {
	theirs, alive, err := l.loadTheirs()
	if err != nil {
		return err
	}
	for _, t := range theirs {
		if _, inFile := keys[t.key()]; inFile && t.left(alive) {
			return problem.Newf(problem.Unable, fmt.Sprintf("wait for it, or stop it with kill -TERM -%d", t.group),
				"gpusched left %q running as process group %d; starting it again would run it twice", t.command, t.group)
		}
	}
	return nil
}

// theirProblem adds a hint to an error about gpusched's journal.
func theirProblem(err error) error {
	if p, ok := errors.AsType[*problem.Problem](err); ok {
		return p
	}
	return problem.Wrap(problem.Unable, "make that journal readable; if you move it away, its finished jobs run again", err)
}

func (h *Host) admitInherited(jobs []*job.Job) error {
	if len(jobs) == 0 {
		return nil
	}
	if err := h.store.Commit(store.Tx{Put: jobs}); err != nil {
		return fmt.Errorf("import gpusched's journal: %w", err)
	}
	ended := 0
	for _, j := range jobs {
		if j.State.Terminal() {
			ended++
		}
	}
	h.tell(fmt.Sprintf("imported gpusched's journal: %s; it is kept as %s", text.Count(ended, "ended job"), theirPrefix+theirSuffix))
	return nil
}

// loadTheirs reads all journals as if they were one. alive reports whether a
// process group named in them still runs.
func (l layout) loadTheirs() (jobs []*theirJob, alive func(group int) bool, err error) {
	paths, err := l.theirs()
	if err != nil {
		return nil, nil, err
	}
	var text []byte
	var at time.Time // when the last of them was written
	for _, path := range paths {
		info, err := os.Stat(path)
		if err == nil && info.Size() > maxTheirs {
			err = fmt.Errorf("%s: expected at most %d bytes, found %d", path, maxTheirs, info.Size())
		}
		var part []byte
		if err == nil {
			part, err = os.ReadFile(path)
		}
		if err != nil {
			return nil, nil, fmt.Errorf("read gpusched's journal: %w", err)
		}
		text, at = append(append(text, part...), '\n'), info.ModTime()
	}
	jobs = readTheirs(text)
	l.findLeft(jobs)
	return jobs, func(group int) bool { return groupAlive(group, at) }, nil
}

// groupAlive reports whether a process group of this user that existed at that
// time still runs. A leader that started later only reuses the number.
func groupAlive(group int, at time.Time) bool {
	if unix.Kill(-group, 0) != nil {
		return false
	}
	table, err := keep.Processes()
	var up unix.Timespec
	if err != nil || unix.ClockGettime(unix.CLOCK_BOOTTIME, &up) != nil {
		return true // better not started than started twice
	}
	const perSecond = 100 // USER_HZ, on every architecture that has a GPU
	boot := time.Now().Add(-time.Duration(up.Nano()))
	alive := false
	for _, p := range table {
		began := boot.Add(time.Duration(p.Start) * time.Second / perSecond)
		if p.PID == group && began.After(at.Add(2*time.Second)) {
			return false
		}
		alive = alive || p.Group == group && !p.Dead()
	}
	return alive
}
