package cluster

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"berth/internal/machine/site"
	"berth/internal/slurm"
	"berth/internal/slurm/handover"
)

// Word is the first argument of the process that carries out a Request for a
// user.
const Word = "__slurm"

// Request is what is to be done on the cluster with a user's rights: one of these
// or several, in this order.
type Request struct {
	Environ []string // of Slurm's programs

	Submit  *Submission
	Take    []Marker // start markers to take, so that the jobs never begin
	Stop    []Marker // jobs that their wrappers are to stop
	Cancel  []Named
	Hold    []string
	Release []string
	Queue   string   // what begins the comments of the jobs to list; empty: do not
	Account []string // Slurm's ids of jobs whose end is in question
	Memory  []Marker // jobs that Slurm may have killed for their host memory
	Look    []Watch
	Remove  []string // directories of batches that are over
	Sweep   *Sweep
}

// Named is a job in Slurm by its id and its name. By the id alone it may be another
// one: slurmctld gives the id of a job that it forgot to the next.
type Named struct{ ID, Name string }

// Sweep removes what is left of old batches: markers, records and logs.
type Sweep struct {
	Dir    string // that all batches of a queue are in
	Before time.Time
	Keep   []string // batches whose jobs have not ended
}

// Submission is a batch to hand over.
type Submission struct {
	Dir       string
	Own       string // the directory above it that no other user may write to
	Orders    []handover.Order
	Script    []byte
	Arguments []string
	Programs  []Program
}

// Program is one of berth's own programs, copied to where the nodes see it.
type Program struct{ From, To string }

// Marker is the start marker of one job.
type Marker struct {
	Dir   string
	Index int
	Make  bool // the directory with all above it, which may never have been there
}

// Watch is a batch to look at, and what is known of its jobs already.
type Watch struct {
	Dir  string
	Jobs map[int]handover.Has
}

// Reply is what came of a Request.
type Reply struct {
	Submitted Submitted
	Taken     []bool // for each marker: berth has it now
	TakeError string // why one could be neither taken nor found
	StopError string // why one of the wrappers could not be told
	Queue     []slurm.Entry
	Trouble   string // why Slurm could not be asked
	Accounts  []slurm.Account
	Memory    []string      // for each such job what Slurm said; empty: nothing of the kind
	Seen      []Seen        // for each Watch
	Cost      time.Duration // of listing the queue
}

// Submitted is Slurm's answer to sbatch.
type Submitted struct {
	ID      string
	Unsent  string // why sbatch was not called
	Crowded string // for now: there are too many jobs in Slurm's queue
	Refused string // for good
	// MaxArray is Slurm's own bound of an array, if it refuses one; nil: not known.
	MaxArray *int
	Trouble  string // for now; the job may be in the queue nevertheless
}

// Seen is what is new about the jobs of a batch.
type Seen struct {
	Begun map[int]handover.Begun
	Now   map[int]handover.Now
	NowAt map[int]time.Time // of its file
	Ended map[int]handover.Record
	Error string // why not all could be read
}

// Programs are slow when slurmctld is; then they are asked again later.
const (
	sbatchTime = 60 * time.Second
	askTime    = 30 * time.Second
)

// Do carries out a request with the rights of this process.
func Do(ctx context.Context, r Request) Reply {
	var reply Reply
	if r.Submit != nil {
		reply.Submitted = submit(ctx, r.Environ, r.Submit)
	}
	for _, m := range r.Take {
		// If that fails, the marker cannot be made, and says why.
		if m.Make {
			_ = os.MkdirAll(m.Dir, 0o700)
		} else {
			_ = os.Mkdir(m.Dir, 0o700) // somebody removed it; without the one above it is not mounted
		}
		switch err := handover.Begin(m.Dir, m.Index, handover.Begun{Taken: true, At: time.Now()}); {
		case err == nil:
			reply.Taken = append(reply.Taken, true)
		case errors.Is(err, handover.ErrBegun):
			b, err := handover.ReadBegun(m.Dir, m.Index)
			reply.Taken = append(reply.Taken, err == nil && b != nil && b.Taken)
		default:
			reply.Taken, reply.TakeError = append(reply.Taken, false), err.Error()
		}
	}
	for _, m := range r.Stop {
		if err := there(m.Dir, handover.Stop(m.Dir, m.Index)); err != nil {
			reply.StopError = err.Error()
		}
	}
	r.Cancel = reply.present(ctx, &r)
	for _, words := range r.commands() {
		if _, errText, err := call(ctx, askTime, r.Environ, words[0], words[1:]...); err != nil && slurm.Temporary(errText) {
			reply.Trouble = explain(errText, err)
		}
	}
	if r.Queue != "" {
		reply.listQueue(ctx, &r)
	}
	if len(r.Account) > 0 {
		reply.account(ctx, &r)
	}
	for _, m := range r.Memory {
		reply.Memory = append(reply.Memory, memoryWords(m))
	}
	for _, w := range r.Look {
		reply.Seen = append(reply.Seen, look(w))
	}
	for _, dir := range r.Remove {
		// What is left of it is a few files; the next berth removes them.
		_ = handover.Remove(dir)
	}
	if r.Sweep != nil {
		r.Sweep.do()
	}
	return reply
}

// do removes what it can; the rest is tried again another day.
func (s *Sweep) do() {
	entries, err := os.ReadDir(s.Dir)
	if err != nil {
		return
	}
	for _, e := range entries {
		info, err := e.Info()
		if err == nil && e.IsDir() && info.ModTime().Before(s.Before) && !slices.Contains(s.Keep, e.Name()) {
			_ = os.RemoveAll(filepath.Join(s.Dir, e.Name()))
		}
	}
}

// present is those of the jobs to cancel that Slurm has, under the name that they
// should have. scancel's own filter will not do: it ends the waiting tasks of an
// array together.
func (reply *Reply) present(ctx context.Context, r *Request) (found []Named) {
	if len(r.Cancel) == 0 {
		return nil
	}
	for _, e := range reply.entries(ctx, r.Environ) {
		if n := (Named{e.ID, e.Name}); slices.Contains(r.Cancel, n) {
			found = append(found, n)
		}
	}
	return found
}

// commands are those that stop, hold and release jobs.
func (r *Request) commands() (list [][]string) {
	for some := range slices.Chunk(r.Cancel, 500) {
		words := []string{"scancel"}
		for _, n := range some {
			words = append(words, n.ID)
		}
		list = append(list, words)
	}
	if len(r.Hold) > 0 {
		list = append(list, []string{"scontrol", "uhold", strings.Join(r.Hold, ",")})
	}
	if len(r.Release) > 0 {
		list = append(list, []string{"scontrol", "release", strings.Join(r.Release, ",")})
	}
	return list
}

func submit(ctx context.Context, environ []string, s *Submission) Submitted {
	// Another user who could write there would choose what runs as this one.
	if err := ownPlace(s.Own); err != nil {
		return Submitted{Unsent: err.Error()}
	}
	for _, p := range s.Programs {
		if err := install(p); err != nil {
			return Submitted{Unsent: err.Error()}
		}
	}
	if err := handover.Create(s.Dir, s.Orders, s.Script); err != nil {
		return Submitted{Unsent: err.Error()}
	}
	out, errText, err := call(ctx, sbatchTime, environ, "sbatch", s.Arguments...)
	if err == nil {
		var id string
		if id, err = slurm.Submitted(out); err == nil {
			return Submitted{ID: id}
		}
		return Submitted{Trouble: err.Error()}
	}
	// One that was killed may have been heard.
	if exit, ended := errors.AsType[*exec.ExitError](err); ended && exit.Exited() && ctx.Err() == nil {
		switch {
		case slurm.Crowded(errText):
			return Submitted{Crowded: explain(errText, err)}
		case !slurm.Temporary(errText):
			answer := Submitted{Refused: explain(errText, err)}
			if aboutArrays(errText) {
				config, _, _ := call(ctx, askTime, environ, "scontrol", "show", "config")
				answer.MaxArray = slurm.MaxArraySize(config)
			}
			return answer
		}
	}
	return Submitted{Trouble: explain(errText, err)}
}

// aboutArrays reports whether Slurm may refuse a job for its array.
func aboutArrays(why string) bool { return strings.Contains(strings.ToLower(why), "array") }

// ownPlace makes a directory of the user's own, or checks that it is one.
func ownPlace(dir string) error {
	if dir == "" {
		return nil
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	return site.OwnPlace(dir)
}

// install copies a program to where the nodes see it, unless it is there.
func install(p Program) error {
	if _, err := os.Stat(p.To); err == nil {
		return nil
	}
	if err := os.MkdirAll(filepath.Dir(p.To), 0o755); err != nil {
		return err
	}
	from, err := os.Open(p.From)
	if err != nil {
		return err
	}
	defer from.Close()
	to, err := os.CreateTemp(filepath.Dir(p.To), ".new-*")
	if err != nil {
		return err
	}
	_, err = io.Copy(to, from)
	if err = errors.Join(err, to.Chmod(0o755), to.Sync(), to.Close()); err == nil {
		err = os.Rename(to.Name(), p.To)
	}
	if err != nil {
		return errors.Join(fmt.Errorf("copy %s to the cluster: %w", p.From, err), os.Remove(to.Name()))
	}
	return nil
}

// listQueue lists the user's jobs in Slurm's queue that have our comment.
func (reply *Reply) listQueue(ctx context.Context, r *Request) {
	begun := time.Now()
	for _, e := range reply.entries(ctx, r.Environ) {
		if strings.HasPrefix(e.Comment, r.Queue) {
			reply.Queue = append(reply.Queue, e)
		}
	}
	reply.Cost = time.Since(begun)
}

// entries lists the user's jobs in Slurm's queue.
func (reply *Reply) entries(ctx context.Context, environ []string) []slurm.Entry {
	out, errText, err := call(ctx, askTime, environ, "squeue", slurm.QueueCommand(fmt.Sprint(os.Getuid()))...)
	if err != nil {
		reply.Trouble = explain(errText, err)
		return nil
	}
	all, err := slurm.Queue(out)
	if err != nil {
		reply.Trouble = err.Error()
	}
	return all
}

// account asks how jobs ended: Slurm's accounting, if it has one, else what
// slurmctld still remembers.
func (reply *Reply) account(ctx context.Context, r *Request) {
	if out, _, err := call(ctx, askTime, r.Environ, "sacct", slurm.AccountCommand(r.Account)...); err == nil {
		if reply.Accounts, err = slurm.Accounts(out); err == nil && len(reply.Accounts) > 0 {
			return
		}
	}
	for _, id := range r.Account {
		out, errText, err := call(ctx, askTime, r.Environ, "scontrol", slurm.RememberedCommand(id)...)
		if err == nil {
			reply.Accounts = append(reply.Accounts, slurm.Remembered(out)...)
		} else if _, ended := errors.AsType[*exec.ExitError](err); !ended || slurm.Temporary(errText) {
			reply.Trouble = explain(errText, err) // whether it remembers is not known
			return
		}
	}
}

// memoryWords is what Slurm printed when it killed a job for its host memory.
func memoryWords(m Marker) string {
	b, _ := handover.ReadBegun(m.Dir, m.Index) // without it there is no number to look for
	file, err := os.Open(slurmLog(m.Dir))
	if b == nil || err != nil {
		return ""
	}
	defer file.Close()
	if info, err := file.Stat(); err == nil && info.Size() > maxSlurmLog {
		_, _ = file.Seek(-maxSlurmLog, io.SeekEnd) // the end is what matters
	}
	out, _ := io.ReadAll(io.LimitReader(file, maxSlurmLog))
	return slurm.MemoryWords(string(out), b.Step)
}

// maxSlurmLog is how much of what Slurm printed about a batch is read.
const maxSlurmLog = 256 << 10

func look(w Watch) (s Seen) {
	all, err := handover.Look(w.Dir)
	if err = there(w.Dir, err); err != nil {
		return Seen{Error: err.Error()}
	}
	s = Seen{Begun: map[int]handover.Begun{}, Now: map[int]handover.Now{}, NowAt: map[int]time.Time{}, Ended: map[int]handover.Record{}}
	fail := func(err error) {
		// A file that is not one of berth's will not become one.
		if _, unread := errors.AsType[*fs.PathError](err); unread {
			s.Error = err.Error()
		}
	}
	for index, known := range w.Jobs {
		is := all[index]
		if is.Begun && !known.Begun {
			b, err := handover.ReadBegun(w.Dir, index)
			if fail(err); b != nil {
				s.Begun[index] = *b
			}
		}
		if is.Now && !is.NowAt.Equal(known.NowAt) && !is.Ended {
			n, err := handover.ReadNow(w.Dir, index)
			if fail(err); n != nil {
				s.Now[index], s.NowAt[index] = *n, is.NowAt
			}
		}
		if is.Ended && !known.Ended {
			r, err := handover.ReadRecord(w.Dir, index)
			if fail(err); r != nil {
				s.Ended[index] = *r
			}
		}
	}
	return s
}

// there drops the error that a batch has no directory, if the file system is there:
// somebody removed it.
func there(dir string, err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		_, err = os.Stat(filepath.Dir(dir))
	}
	return err
}

// call runs one of Slurm's programs.
func call(ctx context.Context, patience time.Duration, environ []string, name string, args ...string) (out, errText string, err error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	path, err := find(name, environ)
	if err != nil {
		return "", "", err
	}
	cmd := exec.CommandContext(ctx, path, args...)
	var stdout, stderr bytes.Buffer
	cmd.Dir, cmd.Env, cmd.Stdout, cmd.Stderr = "/", environ, &stdout, &stderr
	cmd.WaitDelay = time.Second
	err = cmd.Run()
	if ctx.Err() != nil {
		err = fmt.Errorf("%s did not answer within %s", name, patience)
	}
	return stdout.String(), stderr.String(), err
}

// find looks a program up in the PATH of the request.
func find(name string, environ []string) (string, error) {
	for _, pair := range environ {
		path, ok := strings.CutPrefix(pair, "PATH=")
		for _, dir := range filepath.SplitList(path) {
			if full := filepath.Join(dir, name); ok && filepath.IsAbs(dir) {
				if info, err := os.Stat(full); err == nil && info.Mode().IsRegular() && info.Mode()&0o111 != 0 {
					return full, nil
				}
			}
		}
	}
	return "", fmt.Errorf("there is no %s here: Slurm is not installed, or not in PATH", name)
}

// explain is what a program said, in one line.
func explain(errText string, err error) string {
	var said []string
	for line := range strings.Lines(errText) {
		line = strings.TrimSpace(line)
		for _, prefix := range []string{"sbatch: ", "squeue: ", "scancel: ", "error: ", "Batch job submission failed: "} {
			line = strings.TrimPrefix(line, prefix)
		}
		if line != "" && !slices.Contains(said, line) && len(said) < 3 {
			said = append(said, line)
		}
	}
	if len(said) == 0 {
		return err.Error()
	}
	return strings.Join(said, "; ")
}
