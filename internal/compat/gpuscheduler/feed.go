package gpuscheduler

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"berth/internal/api"
	"berth/internal/job"
	"berth/internal/job/jobfile"
	"berth/internal/text/problem"
)

// feed submits the lines of the jobs file whose jobs are not queued, running or
// finished.
type feed struct {
	shared
	dir    string // where jobs run
	self   string // path of this program
	logDir string

	last  []byte // the file at the last look
	whole bool   // all of it was dealt with
	stamp os.FileInfo
	read  time.Time

	sizes     jobfile.Sizes
	sizesText string

	gone    map[string]int // attempts of a job whose line was removed
	refused map[string]int // how often the daemon refused a job
}

// tried is how far a job of the file got.
type tried struct {
	runs    int  // how often it was queued, or refused
	settled bool // it is queued, running or finished
}

// due are the lines to queue, in the order of the file. Of several lines for the
// same job the last counts, because its priority is the newest. A failed job is
// due again if the file has more lines for it than it had attempts.
func due(lines []jobfile.CSVJob, known func(key string) tried, gone map[string]int) []jobfile.CSVJob {
	count, last := map[string]int{}, map[string]int{}
	for i, line := range lines {
		count[line.Key()]++
		last[line.Key()] = i
	}
	var list []jobfile.CSVJob
	for i, line := range lines {
		key := line.Key()
		if last[key] != i {
			continue
		}
		if t := known(key); !t.settled && gone[key]+count[key] > t.runs {
			list = append(list, line)
		}
	}
	return list
}

// changed reports whether to read the jobs file: it has changed, it ended in the
// middle of a line, or the interval has passed.
func (f *feed) changed(now time.Time) bool {
	edited := false
	if stamp := stampOf(f.opt.jobsFile); stamp != nil {
		edited, f.stamp = !sameStamp(stamp, f.stamp), stamp
	}
	return edited || !f.whole || now.Sub(f.read) >= f.opt.monitorEvery
}

// look reads the jobs file and queues what is new in it.
func (f *feed) look(ctx context.Context, now time.Time) {
	if f.opt.jobsFile == "" || !f.changed(now) {
		return
	}
	f.read = now
	text, err := os.ReadFile(f.opt.jobsFile)
	if errors.Is(err, os.ErrNotExist) {
		f.log.warnOnce("the jobs file %s does not exist yet; lines added to it will run", f.opt.jobsFile)
		f.last, f.whole = []byte{}, true
		f.absent(nil)
		return
	}
	if err != nil {
		f.log.warnOnce("read the jobs file: %v", err)
		return
	}
	f.whole = true
	if end := bytes.LastIndexByte(text, '\n') + 1; end < len(text) && f.last != nil && !bytes.Equal(text, f.last) {
		// The last line may be half written. It counts once it stays the same.
		f.whole = false
		f.last, text = text, text[:end]
	} else {
		f.last = text
	}
	f.readSizes()
	lines, err := jobfile.ParseCSV(f.opt.jobsFile, text)
	var wrong *jobfile.Errors
	if errors.As(err, &wrong) {
		for _, p := range wrong.Problems {
			f.log.warnOnce("%s; the line is skipped", p)
		}
	}
	f.queue(ctx, f.present(due(lines, f.tried, f.gone)))
	f.sayFailed(lines)
	f.absent(lines)
}

// present are the lines whose script exists. The others count at a later look.
func (f *feed) present(lines []jobfile.CSVJob) []jobfile.CSVJob {
	return slices.DeleteFunc(lines, func(line jobfile.CSVJob) bool {
		path := line.Script
		if !filepath.IsAbs(path) {
			path = filepath.Join(f.dir, path)
		}
		info, err := os.Stat(path)
		missing := err != nil || info.IsDir()
		if missing {
			f.log.warnOnce("line %d: script path not found or is not a file: %s; it is added once it exists", line.Line, line.Script)
		}
		return missing
	})
}

// tried is how far the job with this key got.
func (f *feed) tried(key string) tried {
	t := tried{runs: f.refused[key]}
	for _, v := range f.index.of(key) {
		t.runs++
		_, again := f.index.retries[v.ID]
		t.settled = t.settled || again || !v.State.Terminal() || v.State == job.Finished
	}
	return t
}

// absent records the attempts of jobs whose lines were removed, so that a line
// put back counts as new.
func (f *feed) absent(lines []jobfile.CSVJob) {
	there := map[string]bool{}
	for _, line := range lines {
		there[line.Key()] = true
	}
	forget := func(key string) {
		if !there[key] {
			f.gone[key] = f.tried(key).runs
		}
	}
	for key := range f.index.byKey {
		forget(key)
	}
	for key := range f.refused {
		forget(key)
	}
}

// sayFailed logs the lines that are skipped because their job failed.
func (f *feed) sayFailed(lines []jobfile.CSVJob) {
	for _, line := range lines {
		jobs := f.index.of(line.Key())
		if t := f.tried(line.Key()); t.settled || len(jobs) == 0 {
			continue
		}
		if last := jobs[len(jobs)-1]; last.State.Terminal() {
			f.log.warnOnce("job %s (%s, line %d) ended with %s and is not run again; add the line once more to run it again",
				short(line.Key()), line.Script, line.Line, outcomeOf(last))
		}
	}
}

// readSizes reads the requirements of models. A file with mistakes is not used:
// the last good one counts, or else every job gets one whole GPU.
func (f *feed) readSizes() {
	text, err := os.ReadFile(f.opt.llmConfig)
	if err != nil {
		f.log.warnOnce("no table of models (%v); every job gets one whole GPU", err)
		f.sizes, f.sizesText = jobfile.Sizes{}, ""
		return
	}
	if string(text) == f.sizesText {
		return
	}
	f.sizesText = string(text)
	sizes, err := jobfile.ParseSizes(f.opt.llmConfig, text)
	if err != nil {
		f.log.fail("%v; the last good table of models counts, or else every job gets one whole GPU", err)
		return
	}
	f.sizes = sizes
}

// queueAtOnce bounds the jobs of one request.
const queueAtOnce = 1000

// queue submits jobs in batches. If a batch is refused, its jobs are submitted one
// by one, so that only the bad one is left out.
func (f *feed) queue(ctx context.Context, lines []jobfile.CSVJob) {
	for len(lines) > 0 && ctx.Err() == nil {
		some := lines[:min(len(lines), queueAtOnce)]
		lines = lines[len(some):]
		if len(some) > 1 && f.submit(ctx, some) == nil {
			continue
		}
		for _, line := range some {
			if err := f.submit(ctx, []jobfile.CSVJob{line}); err != nil && ctx.Err() == nil {
				f.refuse(line, err)
			}
		}
	}
}

func (f *feed) refuse(line jobfile.CSVJob, err error) {
	if kind := problem.KindOf(err); kind == problem.Unable || kind == problem.TooMuch {
		f.log.warnOnce("line %d, %s: not queued yet: %v", line.Line, line.Script, err)
		f.whole = false // tried again at the next look
		return
	}
	f.refused[line.Key()]++
	f.log.fail("line %d, %s: refused: %v", line.Line, line.Script, err)
}

func (f *feed) submit(ctx context.Context, lines []jobfile.CSVJob) error {
	r := api.SubmitRequest{Dir: f.dir, Environ: os.Environ()}
	for _, line := range lines {
		spec, err := f.spec(line)
		if err != nil {
			return err
		}
		r.Jobs = append(r.Jobs, spec)
	}
	reply, err := api.Call(ctx, f.client, api.Submit, r)
	if err != nil {
		return err
	}
	now := time.Now()
	for i, sent := range reply.Jobs[:min(len(reply.Jobs), len(lines))] {
		line, key := lines[i], lines[i].Key()
		// Until the event arrives, the job counts as queued.
		if _, known := f.index.views[sent.ID]; !known {
			f.index.put(job.View{ID: sent.ID, Name: nameOf(line.Script, key), State: job.Queued, Priority: -line.Priority, SubmittedAt: &now})
		}
		f.log.info("job %s queued: %s, priority %d, line %d", short(key), line.Script, line.Priority, line.Line)
		for _, note := range sent.Notes {
			f.log.info("job %s: %s", short(key), note)
		}
	}
	return nil
}

// spec is the daemon's spec of a line.
func (f *feed) spec(line jobfile.CSVJob) (api.Spec, error) {
	want, err := line.Spec(f.sizes)
	if err != nil {
		return api.Spec{}, err
	}
	want, note := baseEnvironment(want)
	if note != "" {
		f.log.warnOnce("%s", note)
	}
	key := line.Key()
	argv := want.Argv
	if f.opt.screen {
		argv = screenCommand(f.self, modeOf(line.Words), short(key), argv)
	}
	log := fmt.Sprintf("job_%s_%s.log", short(key), time.Now().Format("20060102_150405"))
	if want.Share > 0 {
		want.VRAMMiB = fractionMiB
	}
	want.Name, want.Output = nameOf(line.Script, key), strings.ReplaceAll(filepath.Join(f.logDir, log), "%", "%%")
	spec := api.Spec{Command: api.Command{Argv: argv}}
	for _, pair := range jobfile.Pairs(&want) {
		if !spec.Set(pair.Key, pair.Value) {
			return spec, fmt.Errorf("bug: jobs have no key %q", pair.Key)
		}
	}
	return spec, nil
}
