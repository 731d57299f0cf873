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

	"berth/internal/engine"
	"berth/internal/job"
	"berth/internal/jobfile"
	"berth/internal/keep"
	"berth/internal/problem"
	"berth/internal/store"
	"berth/internal/text"
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
func (s *session) inherit(now time.Time) error {
	theirs, alive, err := s.layout.loadTheirs()
	if err != nil || len(theirs) == 0 {
		return err
	}
	known := map[string]bool{}
	if err := s.store.Each(func(j *job.Job) error { known[j.Key] = true; return nil }); err != nil {
		return fmt.Errorf("read the store: %w", err)
	}
	lines := s.linesByKey()
	var jobs []*job.Job
	seq := s.lastSeq
	for _, t := range theirs {
		if t.done == nil && t.group > 1 {
			s.orphans = append(s.orphans, orphan{key: t.key(), group: t.group, gone: !t.left(alive)})
		}
		if known[t.key()] {
			continue
		}
		seq++ // even if it is left out, so that the numbers match gpusched's
		line := lines[t.key()]
		j := s.inherited(now, t, line)
		j.Seq, j.ID, j.Rank = seq, strconv.FormatInt(seq, 10), seq
		if j.State.Terminal() || line != nil {
			jobs = append(jobs, j)
		}
	}
	return s.admitInherited(jobs)
}

// orphan is a process group that gpusched left running, and the key of its line.
// The job of that line is held until the group is gone, or it would run twice.
type orphan struct {
	key   string
	group int
	gone  bool
	said  bool
}

// tendOrphans holds the jobs whose processes gpusched left running, and releases
// them once these are gone. A line that was deleted may come back, and is held
// then.
func (s *session) tendOrphans(t *engine.Turn) {
	for i := range s.orphans {
		o := &s.orphans[i]
		e := s.queue.byKey[o.key]
		o.gone = o.gone || !groupAlive(o.group, s.account.began)
		switch {
		case e == nil:
		case o.gone:
			if t.Queue().Unhold(e.id, "berth") {
				s.say(fmt.Sprintf("job %s was interrupted mid-run by a previous scheduler's death — re-queuing", e.id))
			}
		case t.Queue().Hold(e.id, "berth"), !o.said && e.state == job.Queued:
			o.said = true
			s.warn(fmt.Sprintf("job %s is still running as an ORPHAN of a previous scheduler (pgid %d) — not re-dispatching until it ends; to end it: kill -TERM -%[2]d", e.id, o.group))
		}
	}
	s.orphans = slices.DeleteFunc(s.orphans, func(o orphan) bool { return o.gone })
}

// refuseTwice refuses to start over while a job that gpusched left is still
// running.
func (s *session) refuseTwice() error {
	theirs, alive, err := s.layout.loadTheirs()
	if err != nil {
		return err
	}
	lines := s.linesByKey()
	for _, t := range theirs {
		if lines[t.key()] != nil && t.left(alive) {
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

func (s *session) linesByKey() map[string]*jobfile.Line {
	lines := make(map[string]*jobfile.Line, len(s.file.Lines))
	for _, line := range s.file.Lines {
		lines[line.Key] = line
	}
	return lines
}

// inherited is the job for one of theirs, with the spec of its line if it has
// one.
func (s *session) inherited(now time.Time, t *theirJob, line *jobfile.Line) *job.Job {
	spec := job.Defaults()
	spec.Shell = t.command
	if line != nil {
		spec = line.Spec
	}
	j := t.job(now, spec)
	j.User = s.user()
	return j
}

func (s *session) admitInherited(jobs []*job.Job) error {
	if len(jobs) == 0 {
		return nil
	}
	if err := s.store.Commit(store.Tx{Put: jobs}); err != nil {
		return fmt.Errorf("import gpusched's journal: %w", err)
	}
	ended := 0
	for _, j := range jobs {
		if j.State.Terminal() {
			ended++
		}
	}
	s.say(fmt.Sprintf("imported gpusched's journal: %s; it is kept as %s", text.Count(ended, "ended job"), theirPrefix+theirSuffix))
	var err error
	s.lastSeq, err = s.store.LastSeq()
	return err
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
