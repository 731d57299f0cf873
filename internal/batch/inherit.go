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
	"berth/internal/jobfile"
	"berth/internal/keep"
	"berth/internal/problem"
	"berth/internal/store"
	"berth/internal/text"
)

// gpusched's journal lies where berth's does, under the same name. It is moved
// aside and kept, and what it says is taken into the store: from there on what
// gpusched did is an earlier run like any other.
const (
	theirPrefix = "journal.gpusched"
	theirSuffix = ".jsonl"
)

// maxTheirs bounds what is read of it, and how many are kept.
const (
	maxTheirs     = 256 << 20
	maxTheirFiles = 999
)

// keepTheirs moves a journal of gpusched's out of the place where berth's
// belongs. It comes before berth's is opened, which would mend it. A crash
// after this leaves a journal that inherit finds next time.
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
		return fmt.Errorf("keep gpusched's journal: there are %d in %s already", maxTheirFiles, l.logDir)
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

// holdsTheirs looks at the first and the last whole line: gpusched begins its
// journal, or goes on with one of berth's that it found in its place.
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

// theirs are the journals of gpusched's that were kept, oldest first.
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

// inherit takes what gpusched did into the store, in one commit. What the
// store has already stays as it is there, so that doing it again changes
// nothing.
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
		if known[t.key()] {
			continue
		}
		seq++ // also where it is left out: the numbers stay gpusched's
		line := lines[t.key()]
		j := s.inherited(now, t, line, alive)
		j.Seq, j.ID, j.Rank = seq, strconv.FormatInt(seq, 10), seq
		if j.State.Terminal() || line != nil {
			jobs = append(jobs, j)
		}
	}
	return s.admitInherited(jobs)
}

// refuseTwice is for who asks to run again what is over: a job that gpusched
// left running is not.
func (s *session) refuseTwice() error {
	theirs, alive, err := s.layout.loadTheirs()
	if err != nil {
		return err
	}
	lines := s.linesByKey()
	for _, t := range theirs {
		if lines[t.key()] != nil && t.left(alive) {
			return problem.Newf(problem.Unable, fmt.Sprintf("wait for it, or end it with kill -TERM -%d", t.group),
				"gpusched left %q running as process group %d; run again it would run twice", t.command, t.group)
		}
	}
	return nil
}

// theirProblem is an error about gpusched's journal, for a person.
func theirProblem(err error) error {
	if p, ok := errors.AsType[*problem.Problem](err); ok {
		return p
	}
	return problem.Wrap(problem.Unable, "make that journal readable; moved away, what it says is done runs again", err)
}

func (s *session) linesByKey() map[string]*jobfile.Line {
	lines := make(map[string]*jobfile.Line, len(s.file.Lines))
	for _, line := range s.file.Lines {
		lines[line.Key] = line
	}
	return lines
}

// inherited is the job for one of theirs: as its line says, if it has one.
func (s *session) inherited(now time.Time, t *theirJob, line *jobfile.Line, alive func(int) bool) *job.Job {
	spec := job.Defaults()
	spec.Shell = t.command
	if line != nil {
		spec = line.Spec
	}
	j := t.job(now, spec, alive)
	j.User = s.user()
	return j
}

func (s *session) admitInherited(jobs []*job.Job) error {
	if len(jobs) == 0 {
		return nil
	}
	if err := s.store.Commit(store.Tx{Put: jobs}); err != nil {
		return fmt.Errorf("take over gpusched's journal: %w", err)
	}
	over := 0
	for _, j := range jobs {
		if j.State.Terminal() {
			over++
		}
		if j.Outcome == job.Lost {
			s.say(fmt.Sprintf("WARN %s is not started again: %s", label(j), j.Detail))
		}
	}
	s.say(fmt.Sprintf("took over gpusched's journal: %s over; it is kept as %s", text.Count(over, "job"), theirPrefix+theirSuffix))
	var err error
	s.lastSeq, err = s.store.LastSeq()
	return err
}

// loadTheirs reads the journals as the one that they would be, had berth not
// come in between. alive tells of a process group that they name.
func (l layout) loadTheirs() (jobs []*theirJob, alive func(group int) bool, err error) {
	paths, err := l.theirs()
	if err != nil {
		return nil, nil, err
	}
	var text []byte
	var at time.Time // when the last of them was written to
	for _, path := range paths {
		info, err := os.Stat(path)
		if err == nil && info.Size() > maxTheirs {
			err = fmt.Errorf("%s: %d bytes; at most %d are read", path, info.Size(), maxTheirs)
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

// groupAlive is whether a process group of this user's that was there at that
// time still is. A leader that started later has only got its number.
func groupAlive(group int, at time.Time) bool {
	if unix.Kill(-group, 0) != nil {
		return false
	}
	table, err := keep.Processes()
	var up unix.Timespec
	if err != nil || unix.ClockGettime(unix.CLOCK_BOOTTIME, &up) != nil {
		return true // rather not run than run twice
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
