package batch

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"berth/internal/engine"
	"berth/internal/gpu"
	"berth/internal/job"
	"berth/internal/machine"
	"berth/internal/problem"
	"berth/internal/text"
)

// DryRun says what Run would do with each line now. It starts and writes nothing,
// and returns 1 if a job could never run here.
func DryRun(ctx context.Context, opt Options) (int, error) {
	opt.Quiet = false
	s := &session{opt: opt, queue: newQueue()}
	s.screen = &screen{out: opt.Out}
	defer s.close()
	if err := s.openFile(ctx); err != nil {
		return 0, err
	}
	temporary, err := os.MkdirTemp("", "berth-dry-run-")
	if err != nil {
		return 0, problem.Wrap(problem.Unable, "", err)
	}
	defer os.RemoveAll(temporary)
	sample, err := s.rehearse(ctx, temporary)
	if err != nil {
		return 0, s.notOpened(err)
	}
	if err := s.openCaps(); err != nil {
		return 0, err
	}
	lines, trials, err := s.foresee(sample)
	if err != nil {
		return 0, err
	}
	return s.tellTrials(lines, trials), nil
}

// rehearse opens cards and engine. The store of an earlier run is read, unless
// this one would start over.
func (s *session) rehearse(ctx context.Context, temporary string) (sample gpu.Sample, err error) {
	storeDir := ""
	if earlier, err := Find(s.opt.LogDir); err == nil && !s.opt.Fresh {
		storeDir = machine.StoreDir(earlier.StateDir)
	}
	s.layout = layout{logDir: s.opt.LogDir, state: temporary}
	setup := s.setup()
	choose := setup.Choose
	setup.Choose = func(m *machine.Machine, first gpu.Sample, err error) ([]gpu.Device, error) {
		sample = first
		return choose(m, first, err)
	}
	s.machine, s.engine, err = machine.Rehearse(ctx, setup, s.engineConfig, storeDir)
	if err == nil {
		s.store, s.log = s.machine.Store, s.machine.Log
	}
	return sample, err
}

// dryLine is a line of the file and its job.
type dryLine struct {
	number        int
	id            string
	name, command string
	away          bool // it goes to Slurm at once
	state         job.State
	outcome       job.Outcome
}

// foresee queues the lines in memory, and asks what would become of them.
func (s *session) foresee(sample gpu.Sample) ([]dryLine, map[string]engine.Trial, error) {
	var live, again []*job.Job
	var err error
	if s.store != nil {
		if live, again, err = s.earlier(); err != nil {
			return nil, nil, problem.Wrap(problem.Unable, "", err)
		}
	}
	lines := make([]dryLine, len(s.file.Lines))
	keys := make([]string, len(lines))
	for i, l := range s.file.Lines {
		lines[i] = dryLine{number: l.Number, name: l.Spec.Name, command: l.Spec.Command(), away: l.Spec.To == job.ToSlurm && len(l.Spec.After) == 0}
		keys[i] = l.Key
	}
	trials := map[string]engine.Trial{}
	s.engine.Outside(time.Now(), func(t *engine.Turn) {
		err = s.limitGroups(t)
		t.Recovery().Restore(live, nil)
		t.Queue().Again(again)
		s.queue.apply(s.file, requestsOf(t))
		t.See(sample)
		ids := make([]string, len(lines))
		for i := range lines {
			e := s.queue.byKey[keys[i]]
			ids[i], lines[i].id, lines[i].state, lines[i].outcome = e.id, e.id, e.state, e.outcome
		}
		trials = t.Explain().Foresee(ids)
	})
	return lines, trials, err
}

// tellTrials prints a row for each line, and the sums.
func (s *session) tellTrials(lines []dryLine, trials map[string]engine.Trial) (status int) {
	table := &text.Table{Columns: []text.Column{{Title: "LINE", Right: true}, {Title: "NAME", Shy: true}, {Title: "WOULD"}, {Title: "GPUS"}, {Title: "WHY", Shy: true}, {Title: "COMMAND"}}}
	counts, order := map[string]int{}, []string{"start", "wait", "be skipped", "never run"}
	for _, l := range lines {
		would, cards, why := "wait", "", ""
		trial := trials[l.id]
		switch {
		case l.state.Terminal():
			would, why = "be skipped", "earlier: "+string(l.outcome)
		case l.state == job.Running:
			why = "still runs from an earlier run"
		case l.state == job.Parked:
			why = "still parked from an earlier run"
		case l.away:
			why = "is handed over to Slurm"
		case trial.Infeasible != "":
			would, why, status = "never run", trial.Infeasible, problem.Unable.ExitStatus()
		case trial.Starts:
			would, cards = "start", text.Numbers(trial.GPUs)
		default:
			why = trial.Waits
		}
		counts[would]++
		table.Row(strconv.Itoa(l.number), l.name, would, cards, why, l.command)
	}
	columns := 0
	if s.opt.Terminal {
		columns = s.opt.Width()
		table.Concessions = []text.Concession{{Title: "COMMAND", To: 20}, {Title: "NAME", To: 12}, {Title: "WHY", To: 20}}
	}
	var sums []string
	for _, would := range order {
		if n := counts[would]; n > 0 {
			sums = append(sums, fmt.Sprintf("%d would %s", n, would))
		}
	}
	s.screen.finish(strings.TrimSuffix(table.Draw(columns, false), "\n"),
		fmt.Sprintf("%s in %s: %s; nothing was started", text.Count(len(lines), "job"), s.opt.File, strings.Join(sums, ", ")))
	return status
}
