package engine

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"time"

	"berth/internal/gpu"
	"berth/internal/job"
	"berth/internal/keep"
	"berth/internal/run"
	"berth/internal/sched"
	"berth/internal/store"
)

// world is a machine that can go wrong, in virtual time. What is in it
// outlives the engine: the store, the supervisors, the processes, the cards.
// It knows the truth that the engine has to find out.
type world struct {
	rng    *rand.Rand
	now    time.Time
	storm  bool // faults are on
	bootID string

	rows   map[string]*job.Job // what is on disk
	events int64
	keeps  map[string]*fakeKeep
	nextID int
	inbox  []run.Event // from supervisors to the engine that lives now
	later  []delayed

	history []*execution // every command that ever ran
	total   int64        // MiB of each card
	cards   int
	wrongs  []string

	others  []gpu.Entry
	holders []run.Holder
	steps   int

	boots     int             // how many berths there were; what one was told dies with it
	stopping  bool            // the engine that lives now was interrupted
	givenUp   map[string]bool // jobs whose cancellation is on disk
	outOfLuck map[string]bool // placed when the power went, before a word was written
}

type delayed struct {
	at time.Time
	do func()
}

// fakeKeep is a supervisor: a lock, two record blocks and perhaps a job.
type fakeKeep struct {
	token   string
	alive   bool
	leased  bool
	removed bool
	started *keep.Record // the block written before the fork
	ended   *keep.Record
	order   *keep.Order
	running *execution
	oom     bool
	before  bool // it is from before the last power cut
}

// execution is a command that really ran.
type execution struct {
	job     string
	attempt int
	token   string
	cards   []int
	useMiB  int64
	alone   bool
	alive   bool
	code    int
	oom     bool
	stopped string
	ended   bool // by itself or stopped, with a status that was recorded
	lost    bool
	cut     bool // the machine went down under it
	pid     int
	realMiB int64 // what it really uses on each of its cards

	declaredMiB int64
}

// crash is the panic that stands for kill -9 of berth.
type crash struct{}

var errFull = fmt.Errorf("commit: %w", store.ErrFull)

func newWorld(seed uint64, cards int) *world {
	return &world{
		rng: rand.New(rand.NewPCG(seed, 7)), now: time.Unix(1_700_000_000, 0), storm: true, bootID: keep.BootID(),
		rows: map[string]*job.Job{}, keeps: map[string]*fakeKeep{}, total: 24576, cards: cards,
		givenUp: map[string]bool{}, outOfLuck: map[string]bool{},
	}
}

// chance is one in n, in a storm.
func (w *world) chance(n int) bool { return w.storm && w.rng.IntN(n) == 0 }

// mayCrash is called around every step that leaves a trace.
func (w *world) mayCrash() {
	if w.chance(60) {
		panic(crash{})
	}
}

func (w *world) wrong(format string, args ...any) {
	w.wrongs = append(w.wrongs, fmt.Sprintf(format, args...))
}

// Commit is the store: all or nothing, and a crash may come on either side.
func (w *world) Commit(tx store.Tx) error {
	w.mayCrash()
	if w.chance(40) {
		return errFull
	}
	for _, j := range tx.Put {
		w.checkRow(j)
		w.rows[j.ID] = j.Clone()
	}
	for _, id := range tx.Delete {
		delete(w.rows, id)
	}
	for _, ev := range tx.Events {
		w.events++
		ev.Seq = w.events
	}
	w.mayCrash()
	return nil
}

func (w *world) Job(id string) (*job.Job, error) {
	if j, ok := w.rows[id]; ok {
		return j.Clone(), nil
	}
	return nil, store.ErrNotFound
}

// checkRow holds a row against the truth when it is written.
func (w *world) checkRow(j *job.Job) {
	for _, x := range w.history {
		if x.alive && x.job == j.ID && (j.State != job.Running || j.Keep != x.token || j.Attempt != x.attempt) {
			w.wrong("job %s was written down as %s, attempt %d under %q, while attempt %d ran under %s",
				j.ID, j.State, j.Attempt, j.Keep, x.attempt, x.token)
		}
	}
	if j.RetriesUsed > j.Spec.Retries {
		w.wrong("job %s used %d retries of %d", j.ID, j.RetriesUsed, j.Spec.Retries)
	}
	if j.Stop == job.StopCancel {
		w.givenUp[j.ID] = true
	}
}

// PeakFor is the most this command was seen to use.
func (w *world) PeakFor(command string) (peak int64, ok bool, err error) {
	for _, row := range w.rows {
		if row.Outcome == job.OK && row.Spec.Command() == command {
			for _, mib := range row.PeakMiB {
				peak, ok = max(peak, mib), true
			}
		}
	}
	return peak, ok, nil
}

// The runner.

func (w *world) Lease() (string, error) {
	w.mayCrash()
	if w.stopping {
		w.wrong("a supervisor was taken after the engine was told to stop")
	}
	if w.chance(50) {
		return "", errors.New("fork: resource temporarily unavailable")
	}
	for _, k := range w.sortedKeeps() {
		if k.alive && !k.leased && k.order == nil {
			k.leased = true
			return k.token, nil
		}
	}
	w.nextID++
	k := &fakeKeep{token: "t" + strconv.Itoa(w.nextID), alive: true, leased: true}
	w.keeps[k.token] = k
	w.mayCrash()
	return k.token, nil
}

func (w *world) sortedKeeps() []*fakeKeep {
	list := make([]*fakeKeep, 0, len(w.keeps))
	for _, k := range w.keeps {
		list = append(list, k)
	}
	slices.SortFunc(list, func(a, b *fakeKeep) int {
		x, _ := strconv.Atoi(a.token[1:])
		y, _ := strconv.Atoi(b.token[1:])
		return x - y
	})
	return list
}

func (w *world) Release(token string) { w.keeps[token].leased = false }

// Go hands over the order. The frame may reach the supervisor after berth is
// gone; it then runs the job all the same.
func (w *world) Go(token string, o keep.Order) error {
	w.mayCrash()
	k := w.keeps[token]
	if !k.alive {
		w.report(run.Event{Kind: run.NeverRan, Token: token, Job: o.Job, Attempt: o.Attempt})
		return errors.New("broken pipe")
	}
	k.leased, k.order = false, &o
	if w.chance(30) {
		// Killed with the order in its hands, before it wrote a word.
		k.alive, k.order = false, nil
		w.report(run.Event{Kind: run.NeverRan, Token: token, Job: o.Job, Attempt: o.Attempt})
		return nil
	}
	w.begin(k)
	w.mayCrash()
	return nil
}

func (w *world) begin(k *fakeKeep) {
	o := k.order
	k.started = &keep.Record{Token: k.token, Job: o.Job, Attempt: o.Attempt, BootID: w.bootID}
	k.ended = nil
	row := w.rows[o.Job]
	if row == nil || row.State != job.Running || row.Attempt != o.Attempt || row.Keep != k.token {
		w.wrong("job %s attempt %d ran before its placement was on disk", o.Job, o.Attempt)
		return
	}
	x := &execution{
		job: o.Job, attempt: o.Attempt, token: k.token, cards: row.Grant.GPUs, useMiB: row.Grant.BudgetMiB,
		alone: row.Grant.Alone, alive: true, pid: 1000 + len(w.history), declaredMiB: row.VRAMMiB,
	}
	x.realMiB = max(1, x.useMiB*int64(30+w.rng.IntN(71))/100)
	if x.alone {
		x.realMiB = int64(1000 + w.rng.IntN(15000))
	}
	w.checkStart(x)
	w.checkMayRun(row, x)
	x.code, x.oom = w.fate()
	w.history = append(w.history, x)
	k.running = x
	w.report(run.Event{Kind: run.Started, Token: k.token, Job: o.Job, Attempt: o.Attempt})
	token := k.token
	w.at(time.Duration(1+w.rng.IntN(5000))*time.Millisecond, func() { w.exit(token, x, "") })
}

// checkStart is where "never twice" and "never over-committed" are held
// against the truth.
func (w *world) checkStart(x *execution) {
	held := map[int]int64{}
	for _, y := range w.history {
		if y.job == x.job && y.attempt == x.attempt {
			w.wrong("job %s attempt %d ran twice", x.job, x.attempt)
		}
		if !y.alive {
			continue
		}
		if y.job == x.job {
			w.wrong("job %s started while its attempt %d still ran", x.job, y.attempt)
		}
		for _, card := range y.cards {
			held[card] += y.useMiB
			if slices.Contains(x.cards, card) && (x.alone || y.alone) {
				w.wrong("job %s joined job %s on gpu%d, where one of them must be alone", x.job, y.job, card)
			}
		}
	}
	for _, card := range x.cards {
		if held[card]+x.useMiB > w.total {
			w.wrong("gpu%d over-committed by job %s: %d + %d MiB", card, x.job, held[card], x.useMiB)
		}
	}
}

// checkMayRun: a job runs only when what it waits for came true, never after
// it was given up, and after an out-of-memory failure with a larger
// declaration, whatever happened to berth in between.
func (w *world) checkMayRun(row *job.Job, x *execution) {
	if w.givenUp[row.ID] {
		w.wrong("job %s ran after it was cancelled", row.ID)
	}
	for _, d := range row.Spec.After {
		if dep := w.rows[d.Job]; !dep.State.Terminal() || !cameTrue(d.On, dep.Outcome) {
			w.wrong("job %s ran after=%s:%s, but that one is %s %s", row.ID, d.Job, d.On, dep.State, dep.Outcome)
		}
	}
	for _, y := range slices.Backward(w.history) {
		if y.job != x.job {
			continue
		}
		if y.cut && !row.Spec.Requeue {
			w.wrong("job %s runs again though the machine went down under it", x.job)
		}
		atLeast := min(y.declaredMiB, w.total-512)
		if y.ended && y.oom && y.stopped == "" {
			atLeast = min((y.declaredMiB*5+3)/4, w.total-512)
		}
		if x.declaredMiB < atLeast || x.declaredMiB > w.total-512 {
			w.wrong("job %s declares %d MiB after an attempt (%+v) with %d", x.job, x.declaredMiB, *y, y.declaredMiB)
		}
		return
	}
}

// cameTrue is the truth about a condition, told apart from the engine's own.
func cameTrue(on job.Condition, outcome job.Outcome) bool {
	well := outcome == job.OK
	return on == job.AfterAny || (on == job.AfterOK && well) || (on == job.AfterFail && !well)
}

func (w *world) fate() (code int, oom bool) {
	switch w.rng.IntN(8) {
	case 0:
		return 1 + w.rng.IntN(5), false
	case 1:
		return 1, true
	}
	return 0, false
}

// exit is the end of a command under its supervisor.
func (w *world) exit(token string, x *execution, stop string) {
	k := w.keeps[token]
	if !x.alive || !k.alive || k.running != x {
		return
	}
	x.alive, x.ended, x.stopped = false, true, stop
	record := *k.started
	record.ExitCode, record.Stop = x.code, stop
	k.ended, k.oom, k.running = &record, x.oom, nil
	w.report(run.Event{Kind: run.Ended, Token: token, Job: x.job, Attempt: x.attempt, Record: record, OOM: x.oom})
}

func (w *world) Stop(token string, why job.Stop, _ time.Duration) error {
	w.mayCrash()
	k := w.keeps[token]
	if k.running == nil {
		return nil
	}
	x := k.running
	if row := w.rows[x.job]; row.State == job.Running && row.Keep == token && row.Stop != why {
		w.wrong("job %s was stopped (%s) before that was on disk", x.job, why)
	}
	w.at(time.Duration(w.rng.IntN(500))*time.Millisecond, func() { w.exit(token, x, string(why)) })
	return nil
}

func (w *world) Ack(token string) {
	w.mayCrash()
	k := w.keeps[token]
	for _, row := range w.rows {
		if row.State == job.Running && row.Keep == token {
			w.wrong("supervisor %s was acknowledged before the end of job %s was on disk", token, row.ID)
		}
	}
	k.order = nil
	if !k.alive {
		k.removed = true
	}
	w.mayCrash()
}

func (w *world) Identity(token string) (run.Identity, bool) {
	return run.Identity{Token: token, KeepPID: 1}, true
}

// report sends an event to the engine after a while; if that engine is gone
// by then, a later one has to scan.
func (w *world) report(ev run.Event) {
	boot := w.boots
	w.at(time.Duration(w.rng.IntN(20))*time.Millisecond, func() {
		if boot == w.boots {
			w.inbox = append(w.inbox, ev)
		}
	})
}

func (w *world) at(d time.Duration, do func()) {
	w.later = append(w.later, delayed{w.now.Add(d), do})
}

// killKeep is kill -9 of a supervisor. Its processes live on until the
// runner has ended them; only then is the job lost.
func (w *world) killKeep(k *fakeKeep) {
	k.alive = false
	if k.running == nil {
		if k.order != nil && k.ended != nil {
			w.report(run.Event{Kind: run.Ended, Token: k.token, Job: k.order.Job, Attempt: k.order.Attempt, Record: *k.ended, OOM: k.oom})
		}
		return
	}
	w.hunt(k)
}

func (w *world) hunt(k *fakeKeep) {
	x := k.running
	started := *k.started
	w.at(time.Duration(w.rng.IntN(2000))*time.Millisecond, func() {
		if x.alive {
			x.alive, x.lost = false, true
		}
		k.running = nil
		w.report(run.Event{Kind: run.Lost, Token: k.token, Job: x.job, Attempt: x.attempt, Record: started})
	})
}

// powerCut takes the machine down: every process is gone at once, and what
// was not written never will be.
func (w *world) powerCut() {
	w.later, w.inbox = nil, nil
	for _, k := range w.sortedKeeps() {
		k.alive, k.leased, k.before = false, false, true
		if k.running != nil {
			k.running.alive, k.running.lost, k.running.cut = false, true, true
			k.running = nil
		}
		for _, record := range []*keep.Record{k.started, k.ended} {
			if record != nil {
				record.BootID = "an earlier boot"
			}
		}
		if k.ended == nil && w.rng.IntN(2) == 0 {
			k.started = nil // its last words went with the power
		}
	}
}

// The rest of what an engine needs.

func (w *world) Lock(context.Context) error {
	if w.chance(100) {
		return context.DeadlineExceeded
	}
	return nil
}
func (w *world) Unlock()                      {}
func (w *world) Others() ([]gpu.Entry, error) { return w.others, nil }
func (w *world) Publish([]gpu.Entry) error    { w.mayCrash(); return nil }
func (w *world) Set(holders []run.Holder)     { w.holders = holders }

func (w *world) Owner(pid int) (key string, ok bool, known bool) {
	for _, x := range w.history {
		if x.pid != pid {
			continue
		}
		for _, h := range w.holders {
			if h.Token == x.token {
				return h.Key, true, true
			}
		}
	}
	return "", false, true
}

func (w *world) sample() (gpu.Sample, error) {
	if w.chance(25) {
		return gpu.Sample{}, errors.New("driver does not answer")
	}
	return gpu.Sample{At: w.now, Devices: w.devices()}, nil
}

func (w *world) devices() []gpu.Device {
	var devices []gpu.Device
	for i := range w.cards {
		d := gpu.Device{Index: i, UUID: "GPU-" + strconv.Itoa(i), Name: "Fake", TotalMiB: w.total, ProcessesKnown: true, NUMA: -1, UtilPct: -1}
		for _, x := range w.history {
			if x.alive && slices.Contains(x.cards, i) {
				d.UsedMiB += x.realMiB
				d.Processes = append(d.Processes, gpu.Process{PID: x.pid, UsedMiB: x.realMiB})
			}
		}
		devices = append(devices, d)
	}
	return devices
}

func (w *world) rules() sched.Rules { return sched.DefaultRules() }
