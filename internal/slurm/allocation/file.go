package allocation

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"strings"

	"berth/internal/job"
	"berth/internal/job/jobfile"
	"berth/internal/queue"
	"berth/internal/text/problem"
)

// read reads the jobs file and refuses what cannot be done in allocations. The
// stamp tells its versions apart.
func (o *Options) read() (lines []*line, stamp string, err error) {
	info, err := os.Stat(o.File)
	if err != nil {
		return nil, "", problem.Wrap(problem.Invalid, "a jobs file has one command per line", fmt.Errorf("jobs file %w", err))
	}
	if !info.Mode().IsRegular() {
		return nil, "", problem.Newf(problem.Invalid, "write the jobs into a file", "--allocations: expected a jobs file that can be read again, found %s", o.File)
	}
	raw, err := os.ReadFile(o.File)
	if err != nil {
		return nil, "", problem.Wrap(problem.Invalid, "", err)
	}
	file, err := jobfile.Parse(o.File, raw, o.Defaults)
	var bad *jobfile.Errors
	switch {
	case errors.As(err, &bad):
		return nil, "", problem.Wrap(problem.Invalid, "no job was started; berth help jobsfile explains the format", err)
	case err != nil:
		return nil, "", problem.Wrap(problem.Invalid, "", err)
	case len(file.Lines) == 0:
		return nil, "", problem.Newf(problem.Invalid, "write one command per line", "%s has no jobs", o.File)
	}
	texts := strings.Split(string(bytes.TrimPrefix(raw, []byte("\xef\xbb\xbf"))), "\n")
	for _, l := range file.Lines {
		if why := impossible(&l.Spec); why != "" {
			return nil, "", problem.Newf(problem.Invalid, "leave it out, or run the line without --allocations", "%s:%d: %s in an allocation", o.File, l.Number, why)
		}
		text, err := jobfile.WithoutAfter(texts[l.Number-1])
		if err != nil {
			return nil, "", problem.Newf(problem.Invalid, "", "%s:%d: %w", o.File, l.Number, err)
		}
		lines = append(lines, &line{l, text})
	}
	return lines, stampOf(info), nil
}

func stampOf(info os.FileInfo) string { return fmt.Sprint(info.Size(), info.ModTime().UnixNano()) }

// impossible says what of a line cannot be kept.
func impossible(s *job.Spec) string {
	switch {
	case s.To == job.ToSlurm:
		return "to= is not possible"
	case s.Slurm != "":
		return "slurm= is not possible"
	case s.Snapshot.Tree != "":
		return "snapshot= is not possible"
	case s.Group != "":
		return "group= is not possible"
	}
	return ""
}

func (o *Options) origin() queue.Origin {
	return queue.Origin{Dir: o.Dir, Home: os.Getenv("HOME"), Env: o.Env}
}

// unusable refuses lines whose directories, virtual environments or outputs cannot
// work: the berth run of an allocation would refuse all of its lines.
func (f *front) unusable(lines []*line) error {
	from := f.opt.origin()
	var bad jobfile.Errors
	for _, l := range lines {
		if t := f.byKey[l.Key]; l.Spec.CancelMarked || t != nil && t.ended() {
			continue
		}
		for _, err := range queue.Unusable(&l.Spec, from) {
			bad.Add(f.opt.File, l.Number, err.Error())
		}
	}
	if len(bad.Problems) == 0 {
		return nil
	}
	return problem.Wrap(problem.Invalid, "no job was started; correct them, or make what is missing", &bad)
}
