package engine

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"time"

	"berth/internal/job"
	"berth/internal/machine/gpu"
	"berth/internal/machine/keep"
	"berth/internal/machine/run"
	"berth/internal/queue/store"
	"berth/internal/sched"
)

// world is a machine that can go wrong, in virtual time. What is in it
// outlives the engine: the store, the supervisors, the processes, the cards.
// It knows the truth that the engine has to find out.
type world struct {
	rng    *rand.Rand
	now    time.Time
	storm  bool          // faults are on
	pace   time.Duration // how much slower everything is than in a quick world
	bootID string

	rows   map[string]*job.Job // what is on disk
	events int64
	full   bool // the last commit found no room
	keeps  map[string]*fakeKeep
	nextID int
	inbox  []run.Event // from supervisors to the engine that lives now
	later  []delayed

	history  []*execution // every command that ever ran
	total    int64        // MiB of each card
	cards    int
	hardware hardware
	wrongs   []string

	others  []gpu.Entry
	holders []run.Holder
	steps   int

	warnings, setAsides, leftAlone int // how often
	parkings, resumes              int // likewise

	boots     int  // how many berths there were; what one was told dies with it
	stopping  bool // the engine that lives now was interrupted
	people    people
	givenUp   map[string]bool // jobs whose cancellation is on disk
	outOfLuck map[string]bool // placed when the power went, before a word was written
	placed    map[string]bool // jobs that count as started, even if their supervisor died before it could start them
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
	leaving bool // it was lost while it was being set aside
	pid     int
	realMiB int64 // what it really uses on each of its cards
	boot    int   // the berth that started it
	clean   bool  // nobody had left anything on its cards before it
	listed  int   // the last berth that was shown its process
	parked  bool  // it is off its cards
	busy    bool  // it is leaving them or coming back

	declaredMiB int64
}

// crash is the panic that stands for kill -9 of berth.
type crash struct{}

var errFull = fmt.Errorf("commit: %w", store.ErrFull)

func newWorld(seed uint64, cards int) *world {
	return &world{
		rng: rand.New(rand.NewPCG(seed, 7)), now: time.Unix(1_700_000_000, 0), storm: true, bootID: keep.BootID(),
		pace: 1, rows: map[string]*job.Job{}, keeps: map[string]*fakeKeep{}, total: 24576, cards: cards,
		givenUp: map[string]bool{}, outOfLuck: map[string]bool{}, placed: map[string]bool{}, people: newPeople(), hardware: newHardware(seed),
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
	if w.full = w.chance(40); w.full {
		return errFull
	}
	w.checkTx(tx)
	before := maps.Clone(w.rows)
	for _, j := range tx.Put {
		w.checkRow(j)
		w.rows[j.ID] = j.Clone()
		w.placed[j.ID] = w.placed[j.ID] || j.Attempt.Number > 0
		if j.State == job.Queued {
			w.outOfLuck[j.ID] = false // it has another chance
		}
	}
	for _, id := range tx.Delete {
		delete(w.rows, id)
	}
	for _, j := range tx.Put {
		w.checkAside(before[j.ID], j)
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
		if x.alive && x.job == j.ID && (j.State != job.Running && j.State != job.Parked || j.Keep != x.token || j.Attempt.Number != x.attempt) {
			w.wrong("job %s was written down as %s, attempt %d under %q, while attempt %d ran under %s",
				j.ID, j.State, j.Attempt.Number, j.Keep, x.attempt, x.token)
		}
	}
	if j.RetriesUsed > j.Spec.Retries {
		w.wrong("job %s used %d retries of %d", j.ID, j.RetriesUsed, j.Spec.Retries)
	}
	if j.Stop == job.StopCancel {
		w.givenUp[j.ID] = true
	}
}

// checkAside holds what becomes of a job that gives way to what was before:
// only one that allows it is told to, for one that waits, and it comes back to
// its place with nothing used up.
func (w *world) checkAside(was, is *job.Job) {
	if was == nil {
		return
	}
	switch {
	case is.Leaving() && !was.Leaving():
		other := w.rows[is.PreemptedFor]
		if !is.Spec.Preemptible.Requeues() || other == nil || other.State != job.Queued && other.State != job.Parked || other.Spec.Priority <= is.Spec.Priority {
			w.wrong("job %s is set aside for job %s (%+v)", is.ID, is.PreemptedFor, other)
		}
	case was.Leaving() && is.State == job.Running && is.Stop == job.NoStop && is.Attempt.Number == was.Attempt.Number:
		w.leftAlone++
		// A parked job that is being stopped does not wait any more.
		if other := w.rows[was.PreemptedFor]; (other.State == job.Queued || other.State == job.Parked && other.Stop == job.NoStop) && !other.Held && !other.NotBefore.After(w.now) {
			w.wrong("job %s is left alone, though job %s waits", is.ID, other.ID)
		}
	case is.Preemptions > was.Preemptions:
		w.setAsides++
		if is.State == job.Running && is.Attempt.Number == was.Attempt.Number || is.Outcome == job.OK || is.Rank != was.Rank || is.RetriesUsed != was.RetriesUsed || is.Requeues != was.Requeues || is.Preemptions != was.Preemptions+1 {
			w.wrong("job %s comes back from being set aside as %+v, and was %+v", is.ID, is, was)
		}
	}
}

// noteLeaving remembers of a job that is lost whether it was on its way out.
func (w *world) noteLeaving(x *execution) {
	row := w.rows[x.job]
	x.leaving = row != nil && row.Leaving() && row.Attempt.Number == x.attempt
}

func (w *world) Present() error { return nil }

// PeakFor is the most this command was seen to use.
func (w *world) PeakFor(user, command string) (peak int64, runs int, err error) {
	for _, row := range w.rows {
		if row.Outcome == job.OK && row.User == user && row.Spec.Command() == command && len(row.PeakMiB) > 0 {
			runs++
			for _, mib := range row.PeakMiB {
				peak = max(peak, mib)
			}
		}
	}
	return peak, runs, nil
}

// The rest of what an engine needs.

func (w *world) Lock(context.Context) error {
	if w.chance(100) {
		return context.DeadlineExceeded
	}
	return nil
}
func (w *world) Unlock()                      {}
func (w *world) Others() ([]gpu.Entry, error) { return slices.Clone(w.others), nil }
func (w *world) Publish([]gpu.Entry) error    { w.mayCrash(); return nil }
func (w *world) Notes() []string              { return nil }
func (w *world) Set(holders []run.Holder)     { w.holders = holders }

func (w *world) Local(pid int) (key string, ok bool) {
	key, ok, _ = w.Owner(pid)
	return key, ok
}

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
		return gpu.Sample{Xids: w.spoken()}, errors.New("driver does not answer")
	}
	w.ail()
	return w.ailing(w.devices()), nil
}

func (w *world) devices() []gpu.Device {
	var devices []gpu.Device
	for i := range w.cards {
		d := gpu.Device{Index: i, UUID: "GPU-" + strconv.Itoa(i), Name: "Fake", TotalMiB: w.total, ProcessesKnown: true, NUMA: -1, UtilPct: -1}
		d.Condition.Recovery = gpu.RecoveryNone
		for _, x := range w.history {
			if x.alive && !x.parked && slices.Contains(x.cards, i) {
				d.UsedMiB += x.realMiB
				d.Processes = append(d.Processes, gpu.Process{PID: x.pid, UsedMiB: x.realMiB})
			}
		}
		w.addStrangers(&d)
		devices = append(devices, d)
	}
	return devices
}

func (w *world) rules() sched.Rules { return sched.DefaultRules() }
