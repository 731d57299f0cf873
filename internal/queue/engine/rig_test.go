package engine

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"berth/internal/job"
	"berth/internal/machine/gpu"
	"berth/internal/machine/keep"
	"berth/internal/machine/run"
	"berth/internal/queue/engine/launch"
	"berth/internal/queue/engine/settings"
	"berth/internal/queue/store"
	"berth/internal/sched"
)

// rig is a machine on which nothing happens by itself: a test says what
// happens, and reads afterwards what the engine did and in which order. It
// objects at once when the engine acts on something that is not on disk.
type rig struct {
	t   testing.TB
	e   *Engine
	now time.Time

	removed error // why the store is gone
	reserve bool  // it has room for facts when it is full
	rows    map[string]*job.Job
	seq     int64
	did     []string // every act in order, as in "commit 1:running", "go 1 t1"
	told    []job.Event
	losing  []run.Event           // what Lose is about to report
	orders  map[string]keep.Order // by supervisor
	idle    []string
	tokens  int
	strange map[string]bool // supervisors the store knows nothing of

	devices   []gpu.Device
	owners    map[int]string
	peaks     map[string]int64 // what commands used before
	booked    []gpu.Entry
	others    []gpu.Entry
	locked    bool
	commitErr error
	refuse    func(store.Tx) error // of one commit
	meta      map[string]string
	blobs     map[string][]byte
	asked     int // how often the store was asked for a job
	leaseErr  error
	lockErr   error
	othersErr error
	bookErr   error
	goErr     error
	readErr   error
}

var start0 = time.Date(2026, 3, 14, 15, 9, 26, 0, time.UTC)

// newRig has cards of 24576 MiB and an engine that has looked at them.
func newRig(t testing.TB, cards int, change ...func(*Config)) *rig {
	r := &rig{
		t: t, now: start0, rows: map[string]*job.Job{}, orders: map[string]keep.Order{},
		owners: map[int]string{}, peaks: map[string]int64{}, strange: map[string]bool{},
		meta: map[string]string{}, blobs: map[string][]byte{},
	}
	for i := range cards {
		r.devices = append(r.devices, gpu.Device{
			Index: i, UUID: "GPU-" + strconv.Itoa(i), Name: "Fake", TotalMiB: 24576, ProcessesKnown: true, NUMA: -1, UtilPct: -1,
		})
	}
	r.boot(nil, nil, change...)
	r.look()
	return r
}

// boot starts an engine over what is on disk.
func (r *rig) boot(live []*job.Job, found []run.Found, change ...func(*Config)) {
	cfg := Config{
		Settings: settings.Settings{Rules: sched.DefaultRules(), Poll: time.Second, Tolerance: 0.1, User: "ann", TellQueued: true},
		Order: func(j *job.Job, _ launch.CardOf) (keep.Order, error) {
			return keep.Order{Job: j.ID, Attempt: j.Attempt.Number}, nil
		},
		LogPath: func(j *job.Job) string { return fmt.Sprintf("%s/%d.log", j.ID, j.Attempt.Number) },
		Publish: func(events []job.Event) { r.told = append(r.told, events...) },
	}
	for _, f := range change {
		f(&cfg)
	}
	var last int64
	for _, row := range r.rows {
		last = max(last, row.Seq)
	}
	r.e = New(cfg, r, r, nil, r, r, last)
	meta := func(key string) (string, error) { return r.meta[key], nil }
	if err := r.at().recovery.Health(meta); err != nil {
		r.t.Fatal(err)
	}
	r.at().recovery.Restore(live, found)
	for _, ev := range r.losing {
		r.at().observer.absorb(ev)
	}
	r.losing = nil
}

// again is kill -9 of berth and a new one that finds these supervisors.
func (r *rig) again(found ...run.Found) {
	var live []*job.Job
	for _, id := range slices.Sorted(maps.Keys(r.rows)) {
		if row := r.rows[id]; !row.State.Terminal() {
			live = append(live, row.Clone())
		}
	}
	for _, f := range found {
		if r.heldBy(f.Token) == nil {
			r.strange[f.Token] = true
		}
	}
	r.boot(live, found)
}

func (r *rig) do(format string, args ...any) { r.did = append(r.did, fmt.Sprintf(format, args...)) }

// at is a turn at this moment.
func (r *rig) at() *Turn { return r.e.at(r.now) }

// submit takes jobs in and runs a round.
func (r *rig) submit(specs ...job.Spec) []*job.Job {
	r.t.Helper()
	var jobs []*job.Job
	for i, spec := range specs {
		jobs = append(jobs, &job.Job{Spec: spec, Rank: int64(i)})
	}
	r.at().queue.Number(jobs)
	r.at().queue.Submit(jobs)
	r.step()
	return jobs
}

// step is a round that has to succeed.
func (r *rig) step() {
	r.t.Helper()
	if err := r.e.Step(r.now); err != nil {
		r.t.Fatalf("round failed: %v", err)
	}
}

// pass lets time go by, with a look at the cards and a round at its end.
func (r *rig) pass(d time.Duration) {
	r.t.Helper()
	r.now = r.now.Add(d)
	r.look()
	r.step()
}

func (r *rig) look() {
	r.at().observer.observe(gpu.Sample{At: r.now, Devices: slices.Clone(r.devices)}, nil)
}

// uses puts a process of a job on a card.
func (r *rig) uses(id string, card int, mib int64) {
	pid := 100 + card
	r.owners[pid] = id
	r.devices[card].UsedMiB = mib
	r.devices[card].Processes = []gpu.Process{{PID: pid, UsedMiB: mib}}
}

func (r *rig) clear(card int) { r.devices[card].UsedMiB, r.devices[card].Processes = 0, nil }

// hear gives the engine an event about the attempt that is running.
func (r *rig) hear(kind run.EventKind, id string, record keep.Record, oom bool) {
	r.t.Helper()
	j := r.at().line.Roster.Get(id)
	if j == nil {
		r.t.Fatalf("job %s is over already", id)
	}
	record.BootID = orElse(record.BootID, keep.BootID())
	r.at().observer.absorb(run.Event{Kind: kind, Token: j.Keep, Job: id, Attempt: j.Attempt.Number, Record: record, OOM: oom})
}

func orElse(text, other string) string {
	if text == "" {
		return other
	}
	return text
}

// end is hear, a fresh look and a round.
func (r *rig) end(id string, record keep.Record, oom bool) {
	r.t.Helper()
	r.hear(run.Ended, id, record, oom)
	r.pass(10 * time.Millisecond)
}

// row is the job on disk.
func (r *rig) row(id string) *job.Job {
	r.t.Helper()
	row := r.rows[id]
	if row == nil {
		r.t.Fatalf("job %s is not on disk", id)
	}
	return row
}

func (r *rig) wantRow(id string, state job.State, outcome job.Outcome) {
	r.t.Helper()
	if row := r.row(id); row.State != state || row.Outcome != outcome {
		r.t.Errorf("job %s on disk is %s %q (%s), want %s %q", id, row.State, row.Outcome, row.Detail, state, outcome)
	}
}

// wantDid compares what was done since the last call.
func (r *rig) wantDid(want ...string) {
	r.t.Helper()
	if !slices.Equal(r.did, want) {
		r.t.Errorf("the engine did\n\t%s\nwant\n\t%s", strings.Join(r.did, "\n\t"), strings.Join(want, "\n\t"))
	}
	r.did = nil
}

// kinds lists what was told since the last call, as in "started 1".
func (r *rig) kinds() []string {
	var list []string
	for _, ev := range r.told {
		text := string(ev.Kind)
		if ev.Job != nil {
			text += " " + ev.Job.ID
		}
		list = append(list, text)
	}
	r.told = nil
	return list
}

func (r *rig) wantTold(want ...string) {
	r.t.Helper()
	if got := r.kinds(); !slices.Equal(got, want) {
		r.t.Errorf("told %q, want %q", got, want)
	}
}

// The store.

func (r *rig) Commit(tx store.Tx) error {
	var words []string
	for _, j := range tx.Put {
		words = append(words, j.ID+":"+string(j.State))
	}
	for _, id := range tx.Delete {
		words = append(words, id+":deleted")
	}
	if r.commitErr != nil && tx.Reserved && !r.reserve {
		return r.commitErr
	}
	if r.commitErr != nil && !tx.Reserved {
		r.do("no room for %s", strings.Join(words, " "))
		return r.commitErr
	}
	if r.refuse != nil {
		if err := r.refuse(tx); err != nil {
			r.do("no room for %s", strings.Join(words, " "))
			return err
		}
	}
	maps.Copy(r.meta, tx.Meta)
	maps.Copy(r.blobs, tx.Blobs)
	r.do("commit %s", strings.Join(words, " "))
	for _, j := range tx.Put {
		r.rows[j.ID] = j.Clone()
	}
	for _, id := range tx.Delete {
		delete(r.rows, id)
	}
	for _, ev := range tx.Events {
		r.seq++
		ev.Seq = r.seq
	}
	return nil
}

func (r *rig) Job(id string) (*job.Job, error) {
	r.asked++
	if r.readErr != nil {
		return nil, r.readErr
	}
	if row, ok := r.rows[id]; ok {
		return row.Clone(), nil
	}
	return nil, store.ErrNotFound
}

func (r *rig) Present() error { return r.removed }

func (r *rig) PeakFor(_, command string) (mib int64, runs int, err error) {
	if mib = r.peaks[command]; mib > 0 {
		runs = 1
	}
	return mib, runs, nil
}

// The runner.

func (r *rig) Lease() (string, error) {
	if r.leaseErr != nil {
		return "", r.leaseErr
	}
	if len(r.idle) > 0 {
		token := r.idle[0]
		r.idle = r.idle[1:]
		return token, nil
	}
	r.tokens++
	return "t" + strconv.Itoa(r.tokens), nil
}

func (r *rig) Park(token string, _ time.Duration, hostMiB int64) error {
	if row := r.heldBy(token); row == nil || row.Parking.Phase != job.ParkOut {
		r.t.Errorf("supervisor %s is asked to park what is on disk as %+v", token, row)
	}
	r.do("park %s %d", token, hostMiB)
	return nil
}

func (r *rig) Resume(token string, hold []keep.Room) error {
	if row := r.heldBy(token); row == nil || row.Parking.Phase != job.ParkBack {
		r.t.Errorf("supervisor %s is asked to resume what is on disk as %+v", token, row)
	}
	words := []string{"resume", token}
	for _, room := range hold {
		words = append(words, room.String())
	}
	r.do("%s", strings.Join(words, " "))
	return nil
}

func (r *rig) Release(token string) {
	r.do("release %s", token)
	r.idle = append(r.idle, token)
}

func (r *rig) heldBy(token string) *job.Job {
	for _, row := range r.rows {
		if (row.State == job.Running || row.State == job.Parked) && row.Keep == token {
			return row
		}
	}
	return nil
}

func (r *rig) Go(token string, o keep.Order) error {
	if row := r.heldBy(token); row == nil || row.ID != o.Job || row.Attempt.Number != o.Attempt {
		r.t.Errorf("job %s was let go under %s, but disk says %+v", o.Job, token, row)
	}
	if r.locked {
		r.t.Errorf("job %s was let go while the ledger was locked", o.Job)
	}
	if r.goErr != nil {
		return r.goErr
	}
	r.do("go %s %s", o.Job, token)
	r.orders[token] = o
	return nil
}

func (r *rig) Stop(token string, why job.Stop, grace time.Duration) error {
	unsaved := why != job.StopPreempt && r.commitErr != nil // a stop does not wait for the disk
	if row := r.heldBy(token); row != nil && row.Stop != why && !unsaved {
		r.t.Errorf("job %s was stopped (%s), but disk says %q", row.ID, why, row.Stop)
	}
	r.do("stop %s %s %s", token, why, grace)
	return nil
}

func (r *rig) Warn(token, _ string) error {
	if row := r.heldBy(token); row == nil || row.Stop != job.StopPreempt {
		r.t.Errorf("a job under %s was warned, but disk says %+v", token, row)
	}
	r.do("warn %s", token)
	return nil
}

func (r *rig) Lose(token, id string, attempt int) {
	r.losing = append(r.losing, run.Event{Kind: run.Lost, Token: token, Job: id, Attempt: attempt})
}

func (r *rig) Ack(token string) {
	if row := r.heldBy(token); row != nil {
		r.t.Errorf("%s was acknowledged, but disk says that job %s runs there", token, row.ID)
	}
	r.do("ack %s", token)
	if r.orders[token].Job == "" && !r.strange[token] {
		return
	}
	delete(r.orders, token)
	r.idle = append(r.idle, token)
}

func (r *rig) Identity(token string) (run.Identity, bool) {
	return run.Identity{Token: token, KeepPID: len(token)}, true
}

// The ledger.

func (r *rig) Lock(context.Context) error {
	r.locked = r.lockErr == nil
	return r.lockErr
}
func (r *rig) Unlock()                      { r.locked = false }
func (r *rig) Others() ([]gpu.Entry, error) { return slices.Clone(r.others), r.othersErr }

func (r *rig) Notes() []string { return nil }

func (r *rig) Publish(own []gpu.Entry) error {
	if r.bookErr != nil {
		return r.bookErr
	}
	r.booked = own
	var words []string
	for _, entry := range own {
		words = append(words, entry.Job)
	}
	r.do("book %s", strings.Join(words, " "))
	return nil
}

// Whose a process is.

func (r *rig) Set([]run.Holder) {}

func (r *rig) Owner(pid int) (string, bool, bool) {
	id, ok := r.owners[pid]
	return id, ok, true
}

func (r *rig) Local(pid int) (string, bool) {
	id, ok := r.owners[pid]
	return id, ok
}

var errDisk = fmt.Errorf("commit: %w", store.ErrFull)

var errOther = errors.New("something else")

// spec is the default spec with a command and changes.
func spec(change ...func(*job.Spec)) job.Spec {
	s := job.Defaults()
	s.Shell = "python train.py"
	for _, f := range change {
		f(&s)
	}
	return s
}

func vram(mib int64) func(*job.Spec)   { return func(s *job.Spec) { s.VRAMMiB = mib } }
func retries(n int) func(*job.Spec)    { return func(s *job.Spec) { s.Retries = n } }
func gpus(n int) func(*job.Spec)       { return func(s *job.Spec) { s.GPUs = n } }
func onFail(s *job.Spec)               { s.RetryOn = job.RetryFail }
func requeue(s *job.Spec)              { s.Requeue = true }
func command(c string) func(*job.Spec) { return func(s *job.Spec) { s.Shell = c } }
func after(id string, on job.Condition) func(*job.Spec) {
	return func(s *job.Spec) { s.After = append(s.After, job.Dependency{Job: id, On: on}) }
}

func limited(onTimeout job.OnTimeout, most int) func(*job.Spec) {
	return func(s *job.Spec) { s.TimeLimit, s.OnTimeout, s.MaxRequeues = time.Hour, onTimeout, most }
}
