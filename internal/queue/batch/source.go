package batch

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"berth/internal/api"
	"berth/internal/job"
	"berth/internal/job/jobfile"
	"berth/internal/machine/modelfiles"
	"berth/internal/queue"
	"berth/internal/text/problem"
)

// Source is the jobs file of a run. It looks at the file once a poll, and only reads
// it: the file belongs to the user.
type Source struct {
	opt   *Options
	check func(jobfile.File) error // refuses a version of it
	sizes string                   // the table of model sizes in use; empty: none
	table jobfile.Sizes            // what it says
	file  jobfile.File             // as it was at first, until the queue has it

	stream   bool // a pipe: it was read to its end, and cannot change
	pipe     *pipe
	stamp    fileStamp
	text     []byte
	tail     bool   // a last line without its newline waits for the next poll
	settled  []byte // such a line that has been accepted
	gone     bool   // the file was missing at the last poll
	complain string // the last complaint, reported once
}

// NewSource is the jobs file of these options, of which check refuses versions.
func NewSource(o *Options, check func(jobfile.File) error) *Source {
	return &Source{opt: o, check: check}
}

// Open reads the file for the first time.
func (s *Source) Open(ctx context.Context) error {
	if err := s.openSizes(); err != nil {
		return err
	}
	pause := func(d time.Duration) {
		select {
		case <-time.After(d):
		case <-ctx.Done():
		}
	}
	file, err := s.read(ctx, pause)
	var syntax *jobfile.Errors
	switch {
	case errors.Is(err, errAmbiguous):
		return problem.Wrap(problem.Invalid, "use --format csv, or --format lines to run each line in a shell", err)
	case errors.As(err, &syntax):
		return problem.Wrap(problem.Invalid, "no job was started; berth help jobsfile explains the format", err)
	case err != nil:
		return problem.Wrap(problem.Invalid, "a jobs file has one command per line; to run a single command: berth submit -- COMMAND", err)
	}
	s.file = file
	if err := s.check(file); err != nil {
		if problem.KindOf(err) == "" {
			err = problem.Wrap(problem.Invalid, "", err)
		}
		return err
	}
	if len(file.Lines) == 0 && !s.opt.Watch {
		return problem.Newf(problem.Invalid, "write one command per line, or use --watch to wait for jobs", "%s has no jobs", s.opt.File)
	}
	return nil
}

// Lines is the first version of the file, until the queue has it.
func (s *Source) Lines() []*jobfile.Line { return s.file.Lines }

// Text is what was read last.
func (s *Source) Text() []byte { return s.text }

// openSizes reads the table of model sizes. The default one may be missing.
func (s *Source) openSizes() error {
	if s.opt.Format != CSV {
		return nil
	}
	path := s.opt.LLMConfig
	if path == "" {
		path = filepath.Join(s.opt.Dir, modelfiles.SizesFile)
		if _, err := os.Stat(path); errors.Is(err, os.ErrNotExist) {
			return nil
		}
		path = modelfiles.SizesFile
	}
	sizes, err := modelfiles.ReadSizes(s.opt.Dir, path)
	if err != nil {
		return problem.Wrap(problem.Invalid, "choose another table of model sizes with --llm-config", err)
	}
	s.table, s.sizes = sizes, path
	return nil
}

// CheckPlaces refuses the file if directories, virtual environments or outputs of
// lines that are still to run cannot work. over says which are not; nil: none.
func (s *Source) CheckPlaces(lines []*jobfile.Line, over func(i int) bool) error {
	if s.opt.AsGpusched {
		return nil
	}
	home := job.Getenv(s.opt.Env, "HOME")
	from := queue.Origin{Dir: s.opt.Dir, Home: home, Env: s.opt.Env}
	var bad jobfile.Errors
	for i, line := range lines {
		if line.Spec.CancelMarked || over != nil && over(i) {
			continue
		}
		for _, err := range queue.Unusable(&line.Spec, from) {
			bad.Add(s.opt.File, line.Number, err.Error())
		}
	}
	if len(bad.Problems) == 0 {
		return nil
	}
	return problem.Wrap(problem.Invalid, "no job was started; correct them, or make what is missing", &bad)
}

// place refuses lines for a Slurm whose config could not be read, and leaves the
// options for Slurm to those that run there.
func (o *Options) place(file jobfile.File) error {
	for _, line := range file.Lines {
		spec := &line.Spec
		if spec.To == job.ToSlurm && o.Slurm.Unread != nil {
			return fmt.Errorf("%s:%d: %w", o.File, line.Number, o.Slurm.Unread)
		}
		if spec.To != job.ToSlurm && spec.Slurm == o.SlurmOptions {
			spec.Slurm = ""
		}
	}
	return nil
}

// begun reports which lines have a job that has started or ended, and is left so.
func begun(jobs []api.Submitted) func(i int) bool {
	return func(i int) bool {
		state := job.State(jobs[i].State)
		return (state == job.Running || state == job.Parked || state.Terminal()) && !jobs[i].Again
	}
}
