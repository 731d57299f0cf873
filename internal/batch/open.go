package batch

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/user"
	"slices"
	"strconv"
	"strings"
	"time"

	"berth/internal/engine"
	"berth/internal/engine/cards"
	"berth/internal/engine/launch"
	"berth/internal/engine/settings"
	"berth/internal/gpu"
	"berth/internal/job"
	"berth/internal/jobfile"
	"berth/internal/machine"
	"berth/internal/problem"
	"berth/internal/sched"
	"berth/internal/series"
	"berth/internal/site"
	"berth/internal/store"
	"berth/internal/text"
)

// open prepares a session. It finds all mistakes in the user's input before
// anything is written or started.
func (s *session) open(ctx context.Context) error {
	steps := []func(context.Context) error{s.openFile, s.openLog, s.openMachine, s.openRecords}
	for _, step := range steps {
		if err := step(ctx); err != nil {
			return err
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
	}
	return nil
}

func (s *session) openFile(ctx context.Context) error {
	s.watcher = &watcher{path: s.opt.File, defaults: s.defaults(), format: s.opt.Format, asGpusched: s.opt.AsGpusched, live: s.opt.Watch}
	if err := s.openSizes(); err != nil {
		return err
	}
	pause := func(d time.Duration) {
		select {
		case <-time.After(d):
		case <-ctx.Done():
		}
	}
	file, err := s.watcher.read(ctx, s.opt.Poll, pause)
	var syntax *jobfile.Errors
	switch {
	case errors.Is(err, errAmbiguous):
		return problem.Wrap(problem.Invalid, "use --format csv, or --format lines to run each line in a shell", err)
	case errors.As(err, &syntax):
		return problem.Wrap(problem.Invalid, "no job was started; berth help jobsfile explains the format", err)
	case err != nil:
		return problem.Wrap(problem.Invalid, "a jobs file has one command per line; to run a single command: berth submit -- COMMAND", err)
	case len(file.Lines) == 0 && !s.opt.Watch:
		return problem.Newf(problem.Invalid, "write one command per line, or use --watch to wait for jobs", "%s has no jobs", s.opt.File)
	}
	s.file, s.allAway = file, allAway(file)
	for _, line := range file.Lines {
		if line.Spec.GPUs == 0 && line.Spec.To != job.ToSlurm && !line.Spec.CancelMarked {
			s.cpuJobs++
		}
	}
	return nil
}

func (s *session) openLog(context.Context) error {
	if err := elsewhere(s.opt.LogDir); err != nil && !s.opt.Fresh {
		return problem.Wrap(problem.Unable, "run it there, or keep the state where all machines see it (XDG_STATE_HOME); --fresh starts over", err)
	}
	l, err := openLayout(s.opt.LogDir, cmp.Or(s.opt.StateHome, stateHome(s.getenv)), site.OnNetwork)
	if err != nil {
		return problem.Wrap(problem.Unable, "choose another place with --log-dir", err)
	}
	s.layout = l
	return nil
}

// openMachine opens what the jobs run on.
func (s *session) openMachine(ctx context.Context) error {
	var m *machine.Machine
	err := s.awaitQueue(ctx, func() (err error) {
		m, err = machine.Open(ctx, s.setup())
		return err
	})
	if err != nil {
		return s.notOpened(err)
	}
	s.machine, s.store, s.log = m, m.Store, m.Log
	if err := s.mark(); err != nil {
		return problem.Wrap(problem.Unable, "", err)
	}
	return nil
}

func (s *session) setup() machine.Setup {
	return machine.Setup{
		StateDir: s.layout.state, Hint: "choose another place with --log-dir", MPSDir: s.layout.state, KeepSamples: series.Keep,
		Log: machine.Log{Path: s.layout.log(), MaxBytes: site.LogBytes, Level: s.opt.LogLevel},
		Sim: s.opt.Sim, SimVRAMMiB: s.opt.SimVRAMMiB, Getenv: s.getenv, Within: s.allocated(),
		Launcher: launch.Launcher{JobsDir: s.layout.jobsDir(), Dir: s.opt.Dir, Home: s.getenv("HOME"), Env: s.opt.Env, LogFree: s.opt.LogFree, LeaveRest: s.opt.AsGpusched},
		Choose: func(m *machine.Machine, first gpu.Sample, err error) ([]gpu.Device, error) {
			switch {
			case s.allAway && s.opt.GPUs == nil && (err != nil || m.NoGPUs):
				return nil, nil // a login node needs no GPU
			case err != nil:
				return nil, problem.Newf(problem.Unable, machine.NoCardsHint, "the GPUs cannot be read: %w", err)
			case m.NoGPUs:
				return nil, s.doWithout("this machine has no GPU")
			case s.noneAllocated():
				m.Source, m.NoGPUs = gpu.None(), true
				return nil, s.doWithout("Slurm gave no GPU to this job")
			}
			return first.Devices, s.chooseCards(first)
		},
	}
}

// notOpened is the problem for an error of opening the machine.
func (s *session) notOpened(err error) error {
	if problem.KindOf(err) != "" || errors.Is(err, errInterrupted) {
		return err
	}
	if locked, ok := errors.AsType[*store.LockedError](err); ok {
		return problem.Newf(problem.Unable, fmt.Sprintf("berth list --log-dir %s shows its jobs; for a second queue use another --log-dir", s.opt.LogDir),
			"another berth run is using %s (pid %d)", s.opt.LogDir, locked.PID)
	}
	if _, ok := errors.AsType[*store.NewerSchemaError](err); ok {
		return problem.Wrap(problem.Unable, "use the newer berth, or another --log-dir", err)
	}
	return problem.Wrap(problem.Unable, "is the disk full or the directory read-only?", err)
}

// doWithout checks whether the jobs can run without a GPU: either all of them can,
// or none is started. why says what is wrong with the GPUs.
func (s *session) doWithout(why string) error {
	if s.opt.AsGpusched {
		return problem.Newf(problem.Unable, "try --sim 2: simulated GPUs, real processes", "%s", why)
	}
	if len(s.opt.GPUs) > 0 {
		return problem.Newf(problem.Invalid, "", "--gpus names GPU %d; %s", s.opt.GPUs[0], why)
	}
	var lines []int
	for _, l := range s.file.Lines {
		if !l.Spec.CancelMarked && l.Spec.To != job.ToSlurm && (l.Spec.GPUs > 0 || l.Spec.Share > 0) {
			lines = append(lines, l.Number)
		}
	}
	need := "the job in line %s needs"
	switch {
	case len(lines) == 0:
		return nil
	case len(lines) > 1:
		need = "the jobs in lines %s need"
	}
	return problem.Newf(problem.Unable, "[gpus=0] before a command runs it without one; --sim 2 tries the file on simulated GPUs",
		why+", and "+need+" one", someLines(lines))
}

// maxLinesNamed bounds how many lines a message names.
const maxLinesNamed = 10

func someLines(lines []int) string {
	if more := len(lines) - maxLinesNamed; more > 0 {
		return fmt.Sprintf("%s and %d more", text.Numbers(lines[:maxLinesNamed]), more)
	}
	return text.Numbers(lines)
}

// chooseCards checks the ids that the user gave or inherited against the cards of
// this machine.
func (s *session) chooseCards(sample gpu.Sample) error {
	have := make([]string, 0, len(sample.Devices))
	for _, d := range sample.Devices {
		have = append(have, strconv.Itoa(d.Index))
		s.cards = append(s.cards, d.Index)
	}
	list := "this machine has " + strings.Join(have, ", ")
	if len(sample.Devices) == 0 {
		return problem.Newf(problem.Unable, "berth doctor says what is wrong with them", "no GPU of this machine can be read: %s", sample.Faults[0].Text)
	}
	if s.opt.GPUs != nil {
		if s.opt.AsGpusched { // it uses those that exist
			s.cards = slices.DeleteFunc(slices.Clone(s.opt.GPUs), func(index int) bool { return !slices.Contains(s.cards, index) })
			if len(s.cards) == 0 {
				return problem.Newf(problem.Unable, "correct --gpus", "every job is INFEASIBLE: --gpus names no GPU that exists; %s", list)
			}
			return nil
		}
		for _, index := range s.opt.GPUs {
			if !slices.Contains(s.cards, index) {
				return problem.Newf(problem.Invalid, "", "--gpus names GPU %d, %s", index, absent(sample, strconv.Itoa(index), list))
			}
		}
		s.cards = s.opt.GPUs
		return nil
	}
	if s.chooseAllocated(sample) {
		return nil
	}
	inherited, set := s.lookupEnv("CUDA_VISIBLE_DEVICES")
	if !set {
		return nil
	}
	return s.inheritCards(sample, inherited, list)
}

// inheritCards uses the cards of an inherited CUDA_VISIBLE_DEVICES.
func (s *session) inheritCards(sample gpu.Sample, inherited, list string) error {
	const hint = "unset it, or choose GPUs with --gpus"
	refuse := func(kind problem.Kind, format string, args ...any) error {
		return problem.Newf(kind, hint, "the inherited CUDA_VISIBLE_DEVICES "+format, args...)
	}
	s.cards = []int{}
	words := strings.FieldsFunc(inherited, func(r rune) bool { return r == ',' || r == ' ' })
	if len(words) == 0 {
		return refuse(problem.Unable, "is empty, so no GPU may be used")
	}
	if words[0] == "-1" { // the convention for no GPU
		return refuse(problem.Unable, "is %s, so no GPU may be used", inherited)
	}
	for _, word := range words {
		index, ok := findCard(sample, word)
		if !ok {
			return refuse(problem.Invalid, "names %q, %s", word, absent(sample, word, list))
		}
		if slices.Contains(s.cards, index) {
			return refuse(problem.Invalid, "names GPU %d twice: %s", index, inherited)
		}
		s.cards = append(s.cards, index)
	}
	return nil
}

// absent is why a word names no card: the card is partitioned, and its parts are
// cards of their own, or it does not exist.
func absent(sample gpu.Sample, word, list string) string {
	var parts []string
	for _, d := range sample.Devices {
		if d.Part != nil && word == strconv.Itoa(d.Part.Of) {
			parts = append(parts, strconv.Itoa(d.Index))
		}
	}
	if len(parts) > 0 {
		return "which is partitioned; its parts are " + strings.Join(parts, ", ")
	}
	return "which does not exist; " + list
}

// findCard reads one word of CUDA_VISIBLE_DEVICES as CUDA does: an index, a
// UUID, or a unique prefix of one.
func findCard(sample gpu.Sample, word string) (index int, ok bool) {
	matches := 0
	for _, d := range sample.Devices {
		if word == strconv.Itoa(d.Index) || word == d.UUID {
			return d.Index, true
		}
		if strings.HasPrefix(word, "GPU-") && strings.HasPrefix(d.UUID, word) {
			index = d.Index
			matches++
		}
	}
	return index, matches == 1
}

// openRecords opens what users and scripts read: journal, screen and board.
func (s *session) openRecords(context.Context) error {
	var err error
	fail := func(err error) error { return problem.Wrap(problem.Unable, "", err) }
	if err = s.layout.keepTheirs(); err != nil {
		return theirProblem(err)
	}
	if s.journal, err = openJournal(s.layout.journal()); err != nil {
		return fail(err)
	}
	if s.lastSeq, err = s.store.LastSeq(); err != nil {
		return fail(err)
	}
	if err := s.openCaps(); err != nil {
		return err
	}
	s.screen = s.newScreen()
	s.narrator = narrator{
		tolerance: s.opt.Tolerance, verbose: s.opt.Verbose, quiet: s.opt.Quiet, paint: painter(s.screen.colour),
		dir: s.opt.Dir, exists: isThere, tail: tailOfLog,
	}
	if s.opt.Terminal && !s.opt.AsGpusched {
		s.narrator.width = s.opt.Width
	}
	s.board = &board{path: s.layout.board(), render: renderBoard}
	if s.opt.AsGpusched {
		s.narrator.theirs = newTheirWords(s.opt, len(s.cards))
		s.board.render = s.narrator.theirs.board
	}
	s.account = newAccount(time.Now(), len(s.cards))
	return nil
}

func (s *session) newScreen() *screen {
	screen := &screen{
		out: s.opt.Out, live: s.opt.Terminal && !s.opt.JSON && !s.opt.Quiet, colour: s.opt.Colour && !s.opt.JSON,
		width: s.opt.Width, height: s.opt.Height, patience: linePatience,
	}
	if s.opt.JSON {
		screen.patience, screen.notice = eventPatience, missedEvents
	}
	return screen
}

// newEngine is separate from openMachine because --fresh forgets the jobs first.
func (s *session) newEngine() {
	cfg, launcher := s.engineConfig(), s.machine.Launcher
	cfg.Order, cfg.LogPath = launcher.Order, launcher.LogPath
	s.engine = s.machine.Engine(cfg, s.lastSeq)
	s.cluster = s.newCluster()
}

func (s *session) engineConfig() engine.Config {
	cfg := engine.Config{
		Settings: settings.Settings{
			Rules: s.opt.Rules, Limits: settings.Limits{Default: sched.Limit{Jobs: s.opt.Jobs, Flag: "-j"}}, Cards: s.cards, Poll: s.opt.Poll, Tolerance: s.opt.Tolerance,
			User: s.user(), Outer: outerBooking(s.getenv("BERTH_TOKEN")), TellQueued: s.opt.JSON, Wanted: s.queue.wanted,
			IdleAfter: settings.DefaultIdleAfter, KeepAll: s.opt.Preempt == machine.PreemptNever, Parking: machine.ParkingFor(s.opt.Preempt, s.opt.Parking),
		},
		Publish: s.publish, Away: s.wakeCluster,
	}
	if s.inAllocation() {
		cfg.Halted, cfg.LostBefore = s.halt.stopped, time.Now()
	}
	return cfg
}

// outerBooking is the key of the booking of the job that this berth runs in.
func outerBooking(token string) string {
	parts := strings.Split(token, ":")
	if len(parts) != 3 {
		return ""
	}
	return cards.BookingKey(parts[0], parts[1])
}

func (s *session) getenv(name string) string {
	value, _ := s.lookupEnv(name)
	return value
}

func (s *session) lookupEnv(name string) (string, bool) {
	for i := len(s.opt.Env) - 1; i >= 0; i-- {
		if value, ok := strings.CutPrefix(s.opt.Env[i], name+"="); ok {
			return value, true
		}
	}
	return "", false
}

func (s *session) user() string {
	if u, err := user.Current(); err == nil && u.Username != "" {
		return u.Username
	}
	if name := s.getenv("USER"); name != "" {
		return name
	}
	return strconv.Itoa(os.Getuid())
}
