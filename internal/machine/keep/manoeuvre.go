package keep

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"time"
)

// What a driver says of a process.
const (
	cudaNone    = "none"    // it does not use CUDA
	cudaRunning = "running" // it does
	cudaLocked  = "locked"  // its calls wait
	cudaParked  = "parked"  // its memory is on the host, and the card is free
	cudaFailed  = "failed"  // it can never go on
	cudaGone    = "gone"
)

// Deadlines for the driver's calls. A copy takes seconds per 10 GiB, and nobody
// knows how slow a host can be.
const (
	stateBudget   = 10 * time.Second
	copyBudget    = 30 * time.Minute
	unlockBudget  = time.Minute
	lockMargin    = 5 * time.Second // beyond the patience that the driver is given
	freezeBudget  = 5 * time.Second
	freezePause   = 5 * time.Millisecond
	maxLooks      = 16 // for CUDA processes that a job keeps starting
	maxNewDrivers = 3
	startBudget   = time.Minute // for a program that is just being replaced
	startPause    = 100 * time.Millisecond
	endBudget     = 2 * time.Second // for a process to end that is just ending
	endPause      = 10 * time.Millisecond
)

// manoeuvre parks or resumes one job. It runs beside the supervisor's loop and
// reports once. It reads of the job only what stays the same while it runs.
type manoeuvre struct {
	argv     []string
	cgroup   string
	patience time.Duration   // for kernels that run when the job is to be locked
	cancel   <-chan struct{} // closed: release the job and give up
	started  func(*driver)   // tells the loop about a new program

	driver *driver
	stood  time.Time          // when the job stopped working
	saved  int64              // bytes by which its processes grew when they were saved
	locked map[[2]uint64]bool // the processes that may be; nil: not known, every one
}

// manoeuvred is the outcome.
type manoeuvred struct {
	parked bool // what the job is now
	broken bool // it is neither: it can never go on
	err    error
	took   time.Duration // 0: there was no process to park
	stood  time.Time
	saved  int64   // bytes that moved to the host
	driver *driver // to be used again
}

var errCancelled = errors.New("the job is being stopped")

// errNoProgram means that the program that calls the driver did not start.
var errNoProgram = errors.New("the program that calls the driver cannot be started")

// errNoRoom means that the card has too little free memory. Restoring a job
// there would destroy it, so nothing was tried.
var errNoRoom = errors.New("not enough free memory")

// park moves a job off its cards: it locks every CUDA process, then saves them
// side by side, then freezes the tree. The order matters: the driver cannot
// lock a frozen process. If one refuses, the others are released.
func (m *manoeuvre) park() manoeuvred {
	begun := time.Now()
	m.locked = map[[2]uint64]bool{}
	err := m.saveAll()
	if err == nil {
		fault("park saved")
		err = m.freeze()
	}
	r := manoeuvred{parked: err == nil, err: err, stood: m.stood, saved: m.saved}
	if err != nil && len(m.locked) > 0 {
		m.thaw()
		if worse := m.release(); worse != nil {
			r.broken, r.err = true, fmt.Errorf("%w; then it could not be released: %w", err, worse)
		}
	}
	fault("park done")
	r.driver = m.driver
	if len(m.locked) > 0 {
		r.took = time.Since(begun)
	}
	return r
}

// saveAll locks and saves processes until none is left that runs.
func (m *manoeuvre) saveAll() error {
	for range maxLooks {
		found, err := m.look(true)
		if err != nil {
			return err
		}
		if len(found[cudaFailed]) > 0 {
			return fmt.Errorf("process %d can never go on", found[cudaFailed][0].PID)
		}
		running, locked := found[cudaRunning], found[cudaLocked]
		for _, p := range slices.Concat(running, locked, found[cudaParked]) {
			m.locked[p.id()] = true
		}
		if len(running) > 0 {
			if err := m.each(running, m.patience+lockMargin, "lock", strconv.FormatInt(m.patience.Milliseconds(), 10)); err != nil {
				return err
			}
			fault("park locked")
			if m.stood.IsZero() {
				m.stood = time.Now()
			}
			continue // a process may have started another meanwhile
		}
		if len(locked) == 0 {
			if len(found[cudaParked]) == 0 {
				return errors.New("it uses no CUDA")
			}
			return nil
		}
		before := anonymous(locked)
		if err := m.each(locked, copyBudget, "checkpoint"); err != nil {
			return err
		}
		m.saved += max(0, anonymous(locked)-before)
	}
	return errors.New("it keeps starting CUDA processes")
}

// anonymous is how much memory of their own processes have, in bytes. What a driver
// saves of a process is there, to the byte, while a measurement of the card may be
// older than its last allocation.
func anonymous(processes []Process) (bytes int64) {
	for _, p := range processes {
		var size, resident, shared int64
		text, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(p.PID), "statm"))
		if err != nil {
			continue // it is gone, which the driver will say
		}
		if _, err := fmt.Sscan(string(text), &size, &resident, &shared); err == nil {
			bytes += (resident - shared) * int64(os.Getpagesize())
		}
	}
	return bytes
}

// resume brings a parked job back. hold is what it needs on each card: it is
// taken first, and let go of at the last moment, because a restore without
// enough memory destroys the job.
func (m *manoeuvre) resume(hold []Room) manoeuvred {
	begun := time.Now()
	m.thaw() // every call about a frozen process hangs
	fault("resume thawed")
	r := manoeuvred{parked: true}
	if err := m.hold(hold); err != nil {
		r.err = err
		if err := m.freeze(); err != nil {
			r.err = fmt.Errorf("%w; %w", r.err, err)
		}
	} else if err := m.release(); err != nil {
		r.err, r.broken = err, true
	} else {
		r.parked = false
	}
	fault("resume done")
	r.took, r.driver = time.Since(begun), m.driver
	return r
}

// hold takes the memory, on all cards or on none.
func (m *manoeuvre) hold(rooms []Room) error {
	for _, room := range rooms {
		if _, err := m.ask(stateBudget, "hold", room.UUID, strconv.FormatInt(room.MiB, 10)); err != nil {
			if !errors.Is(err, errDriverGone) && !errors.Is(err, errCancelled) {
				err = fmt.Errorf("%w: %v MiB: %w", errNoRoom, room, err)
			}
			_, _ = m.ask(stateBudget, "free")
			return err
		}
	}
	return nil
}

// release makes every process run again, whatever state it is in. It is never
// cut short. If the program that calls the driver dies on the way, another
// continues: the driver finishes what was begun. A job that is not released is
// lost, so a program that cannot be started, or dies at once, is tried for some
// time.
func (m *manoeuvre) release() error {
	m.cancel = nil
	until := time.Now().Add(startBudget)
	for tries := 1; ; tries++ {
		err := m.releaseOnce()
		lost := errors.Is(err, errDriverGone) || errors.Is(err, errNoProgram)
		if !lost || tries >= maxNewDrivers && time.Now().After(until) {
			return err
		}
		if tries > 1 {
			time.Sleep(startPause)
		}
	}
}

func (m *manoeuvre) releaseOnce() error {
	for range maxLooks {
		found, err := m.look(false)
		switch {
		case err != nil:
			return err
		case len(found[cudaFailed]) > 0:
			return fmt.Errorf("process %d can never go on", found[cudaFailed][0].PID)
		case len(found[cudaParked]) > 0:
			// Nothing is between letting go of the memory and the restore.
			if _, err := m.ask(stateBudget, "free"); err != nil {
				return err
			}
			err = m.each(found[cudaParked], copyBudget, "restore")
			fault("resume restored")
		case len(found[cudaLocked]) > 0:
			err = m.each(found[cudaLocked], unlockBudget, "unlock")
		default:
			return nil
		}
		if err != nil {
			return err
		}
	}
	return errors.New("it does not become free")
}

// look asks for the state of every process of the job; unless all of them have to
// be known, without those that do not tell it because they cannot be locked or are
// just ending.
func (m *manoeuvre) look(all bool) (map[string][]Process, error) {
	found := map[string][]Process{}
	for _, p := range m.processes() {
		state, err := m.ask(stateBudget, "state", strconv.Itoa(p.PID))
		switch lost := errors.Is(err, errDriverGone) || errors.Is(err, errNoProgram) || errors.Is(err, errCancelled); {
		case err != nil && !lost && !all && (m.locked != nil && !m.locked[p.id()] || p.endsSoon()):
			continue
		case err != nil:
			return nil, err
		}
		if p.exists() {
			found[state] = append(found[state], p)
		}
	}
	return found, nil
}

// endsSoon reports whether the process is just ending, and waits for that for some
// time: no call about it is answered any more, and it must not be taken for one that
// can never go on.
func (p Process) endsSoon() bool {
	for until := time.Now().Add(endBudget); ; time.Sleep(endPause) {
		if now, err := ReadProcess(p.PID); err != nil || now.Start != p.Start || now.Dead() {
			return true
		}
		if time.Now().After(until) {
			return false
		}
	}
}

// processes are those of the job.
func (m *manoeuvre) processes() []Process {
	living, _ := remains(m.cgroup, m.driver.apart)
	return living
}

// each makes a call for several processes side by side. A process that ended is
// no failure.
func (m *manoeuvre) each(processes []Process, most time.Duration, verb string, words ...string) error {
	d, err := m.program()
	if err != nil {
		return err
	}
	failed := make([]error, len(processes))
	var all sync.WaitGroup
	for i, p := range processes {
		all.Go(func() {
			pid := strconv.Itoa(p.PID)
			_, err := d.askAbout(p, m.cancel, most, append([]string{verb, pid}, words...)...)
			if err == nil && verb == "lock" && !p.exists() {
				// It ended meanwhile, and its number may be another's by now, which
				// must not stay locked.
				_, err = d.ask(nil, unlockBudget, "unlock", pid)
			}
			if err != nil && err.Error() != cudaGone && !(verb == "unlock" && p.endsSoon()) {
				failed[i] = fmt.Errorf("%s: %w", verb, err)
			}
		})
	}
	all.Wait()
	if i := slices.IndexFunc(failed, func(err error) bool { return errors.Is(err, errDriverGone) }); i >= 0 {
		return failed[i]
	}
	if i := slices.IndexFunc(failed, func(err error) bool { return err != nil }); i >= 0 {
		return failed[i]
	}
	return nil
}

// ask sends a request to the driver program, which it starts if necessary.
func (m *manoeuvre) ask(most time.Duration, words ...string) (string, error) {
	d, err := m.program()
	if err != nil {
		return "", err
	}
	return d.ask(m.cancel, most, words...)
}

func (m *manoeuvre) program() (*driver, error) {
	if m.driver != nil && !m.driver.gone() {
		return m.driver, nil
	}
	d, err := startDriver(m.argv)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errNoProgram, err)
	}
	m.driver = d
	m.started(d)
	return d, nil
}

// freeze stops every process of the job, so that data loaders do not spin
// while their program waits.
func (m *manoeuvre) freeze() error {
	if m.cgroup == "" || setting(m.cgroup, "cgroup.freeze", "1") != nil {
		return m.stopAll()
	}
	for until := time.Now().Add(freezeBudget); time.Now().Before(until); time.Sleep(freezePause) {
		events, err := os.ReadFile(filepath.Join(m.cgroup, "cgroup.events"))
		if err != nil || bytes.Contains(events, []byte("frozen 1")) {
			return nil
		}
	}
	return nil // a process in the kernel freezes when it leaves it
}

// stopAll is for hosts without a freezer.
func (m *manoeuvre) stopAll() error {
	seen := make(map[[2]uint64]bool)
	calm := 0
	for until := time.Now().Add(freezeBudget); calm < 2 && time.Now().Before(until); time.Sleep(freezePause) {
		calm++
		for _, p := range m.processes() {
			if !seen[p.id()] {
				seen[p.id()] = true
				_ = p.Signal(sigSTOP)
				calm = 0
			}
		}
	}
	return nil
}

// thaw undoes freeze, and does nothing to a job that is not frozen.
func (m *manoeuvre) thaw() {
	if m.cgroup != "" && setting(m.cgroup, "cgroup.freeze", "0") == nil {
		return
	}
	// Children continue before their parents, which might exit otherwise.
	for _, p := range slices.Backward(m.processes()) {
		_ = p.Signal(sigCONT)
	}
}
