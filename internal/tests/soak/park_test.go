package soak

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"berth/internal/api"
	"berth/internal/job"
	"berth/internal/tests/testkit"
)

// parkedJob is a job that runs until the gate opens, and writes down that it
// does.
var parkedJob = line{number: 1, cards: 1, kind: "parked", block: "grace=0.2s"}

// newParkable is a host with such a job at work on its only card.
func newParkable(t *testing.T, plainUser bool) (h *host, b *berth, id string) {
	t.Helper()
	h = newHost(t, 1)
	if plainUser {
		h.asPlainUser()
	}
	h.mustBeFaulty()
	b = h.up()
	id = h.submit(parkedJob)[0]
	h.holdsCard()
	return h, b, id
}

// holdsCard waits until a job has its memory on the card.
func (h *host) holdsCard() {
	h.t.Helper()
	testkit.Eventually(h.t, "the job has its memory on the card", func() bool {
		cards, err := api.Call(h.ctx(), h.client, api.ListGPUs, api.None{})
		return err == nil && cards[0].UsedMiB >= 14000
	})
}

// order parks or unparks a job. The daemon may die of it.
func (h *host) order(action, id string) error {
	_, err := api.Call(h.ctx(), h.client, api.Act, api.ActRequest{Action: action, Select: api.Select{Words: []string{id}}})
	return err
}

// comesTo waits until a job is parked, or runs and is neither on its way out nor
// in.
func (h *host) comesTo(id string, state job.State) {
	h.t.Helper()
	testkit.Eventually(h.t, "job "+id+" is "+string(state), func() bool {
		v := h.job(id)
		return v.State == state && v.Parking == nil
	})
}

// beats reports whether a job's other process works.
func (h *host) beats(l line) bool {
	size := func() int64 {
		info, err := os.Stat(filepath.Join(h.dir, fmt.Sprintf("beat%d", l.number)))
		if err != nil {
			return 0
		}
		return info.Size()
	}
	before := size()
	<-time.After(150 * time.Millisecond)
	return size() != before
}

// mustBe checks by what its processes do that a job is parked or runs, and that
// the driver says the same.
func (h *host) mustBe(id string, state job.State) {
	h.t.Helper()
	h.comesTo(id, state)
	want := ""
	if state == job.Parked {
		want = "parked"
		if h.beats(parkedJob) {
			h.t.Errorf("job %s is parked, and one of its processes works", id)
		}
	} else {
		testkit.Eventually(h.t, "the job works", func() bool { return h.beats(parkedJob) })
	}
	if got := h.phases(); !slices.Equal(got, []string{want}) {
		h.t.Errorf("job %s is %s, and its CUDA processes are %q", id, state, got)
	}
	testkit.Eventually(h.t, "the card has what is on it", func() bool {
		cards, err := api.Call(h.ctx(), h.client, api.ListGPUs, api.None{})
		return err == nil && (cards[0].UsedMiB == 0) == (state == job.Parked) && len(cards[0].Parked) == map[bool]int{true: 1}[state == job.Parked]
	})
}

// phases is what the simulated driver says of each living process, without its
// own.
func (h *host) phases() (list []string) {
	files, _ := filepath.Glob(filepath.Join(h.logDir, "sim", "procs", "*"))
	drivers := h.drivers()
	for _, file := range files {
		pid, _, _ := strings.Cut(filepath.Base(file), ".")
		number, _ := strconv.Atoi(pid)
		text, err := os.ReadFile(file)
		if err != nil || slices.Contains(drivers, number) || syscall.Kill(number, 0) != nil {
			continue
		}
		_, phase, _ := strings.Cut(string(text), `"phase":"`)
		phase, _, _ = strings.Cut(phase, `"`)
		list = append(list, phase)
	}
	return list
}

// drivers are the programs that make the driver's calls.
func (h *host) drivers() (pids []int) {
	for _, file := range must(filepath.Glob("/proc/[0-9]*/cmdline")) {
		text, _ := os.ReadFile(file)
		words := strings.Split(string(text), "\x00")
		if len(words) > 2 && words[1] == "__park" && strings.HasPrefix(words[2], h.dir+"/") {
			pid, _ := strconv.Atoi(filepath.Base(filepath.Dir(file)))
			pids = append(pids, pid)
		}
	}
	return pids
}

func must[T any](value T, err error) T {
	if err != nil {
		panic(err)
	}
	return value
}

// finish lets the job end, and checks that it ran once and to its end, and that
// nothing is held for it any more.
func (h *host) finish(b *berth, id string, parkings int) {
	h.t.Helper()
	testkit.Write(h.t, filepath.Join(h.dir, "gate"), "")
	testkit.Eventually(h.t, "the job is over", func() bool { return h.job(id).State.Terminal() })
	if v := h.job(id); outcome(v) != "ok" || v.Attempt != 1 || v.Parkings < parkings {
		h.t.Errorf("it ended %q in attempt %d, parked %d times (at least %d were said)", outcome(v), v.Attempt, v.Parkings, parkings)
	}
	if r := h.mustBeSound([]line{parkedJob}).runs[[2]int{1, 1}]; r == nil || r.ends != 1 {
		h.t.Errorf("itself it says %+v", r)
	}
	h.mustHoldNothing(b)
}

// mustHoldNothing checks that cards, bookings and processes are free, and stops
// the daemon.
func (h *host) mustHoldNothing(b *berth) {
	h.t.Helper()
	testkit.Eventually(h.t, "the cards are free", func() bool {
		cards, err := api.Call(h.ctx(), h.client, api.ListGPUs, api.None{})
		return err == nil && !slices.ContainsFunc(cards, func(g api.GPU) bool {
			return g.UsedMiB > 0 || g.BudgetMiB > 0 || len(g.Jobs) > 0 || len(g.Parked) > 0
		})
	})
	testkit.Eventually(h.t, "the driver's programs have ended", func() bool { return len(h.drivers()) == 0 })
	h.down(b)
	h.mustBeClean()
}

// TestKillAtEachStepOfParking kills each of those that take part in parking, at
// each step of parking a job and of resuming it.
func TestKillAtEachStepOfParking(t *testing.T) {
	for _, who := range []string{"", " of a plain user"} { // who has no cgroup to freeze
		t.Run("the daemon"+who, func(t *testing.T) { killDaemonParking(t, who != "") })
		t.Run("the driver program"+who, func(t *testing.T) { killDriverParking(t, who != "") })
		t.Run("the job"+who, func(t *testing.T) { killJobParking(t, who != "") })
	}
	for _, step := range []string{"park locked", "park saved", "park done", "resume thawed", "resume restored", "resume done"} {
		t.Run("the supervisor/"+step, func(t *testing.T) { killSupervisorParking(t, step) })
	}
}

// killDaemonParking has daemons die before and after a decision is on disk, after
// the order, and when they hear the outcome. The next one finds out what is.
func killDaemonParking(t *testing.T, plainUser bool) {
	h, b, id := newParkable(t, plainUser)
	parkings := 0
	for _, step := range []string{"park decided", "before park", "park asked", "park heard"} {
		for _, order := range []struct {
			action      string
			from, state job.State
		}{{api.ActPark, job.Running, job.Parked}, {api.ActUnpark, job.Parked, job.Running}} {
			b.kill()
			cmd := h.serving()
			cmd.Env = append(cmd.Env, "BERTH_FAULT="+step+":1")
			b = h.launch(cmd, nil)
			h.awaitAnswer(b)
			err := h.order(order.action, id)
			h.mustHaveDied(b)
			b = h.up()
			if step == "park decided" {
				if err == nil {
					t.Errorf("%s at %q: acknowledged, and not on disk", order.action, step)
				}
				h.mustBe(id, order.from)
				testkit.Must(t, h.order(order.action, id))
			}
			h.mustBe(id, order.state)
		}
		parkings++
	}
	h.finish(b, id, parkings)
}

// killSupervisorParking has a supervisor die at a step of its own. Its job is
// lost, and its card serves another.
func killSupervisorParking(t *testing.T, step string) {
	h := newHost(t, 1)
	dir, err := faulty()
	testkit.Must(t, err)
	h.program = t.TempDir()
	copyProgram(t, filepath.Join(dir, "berth"), filepath.Join(h.program, "berth"))
	script := "#!/bin/sh\nBERTH_KEEP_FAULT='" + step + "' exec " + filepath.Join(dir, "berth-keep") + " \"$@\"\n"
	testkit.Write(t, filepath.Join(h.program, "berth-keep"), script, 0o755)
	b := h.up()
	id := h.submit(parkedJob)[0]
	h.holdsCard()
	testkit.Must(t, h.order(api.ActPark, id))
	if strings.HasPrefix(step, "resume") {
		h.mustBe(id, job.Parked)
		testkit.Must(t, h.order(api.ActUnpark, id))
	}
	h.mustLoseServed(1, id)
	if got := h.phases(); len(got) > 0 {
		t.Errorf("CUDA processes are left: %q", got)
	}
	next := line{number: 2, cards: 1, kind: "parks", hold: 50 * time.Millisecond}
	id = h.submit(next)[0]
	testkit.Eventually(t, "the next job is over", func() bool { return h.job(id).State.Terminal() })
	if got := outcome(h.job(id)); got != "ok" {
		t.Errorf("the next job on that card ended %q", got)
	}
	h.mustHoldNothing(b)
}

// hangAt makes the next call of that kind hang, orders, and waits until it does.
func (h *host) hangAt(verb, action, id string) {
	h.t.Helper()
	file := filepath.Join(h.logDir, "sim", "fault")
	testkit.Write(h.t, file, "park "+verb+" hang once\n")
	testkit.Must(h.t, h.order(action, id))
	testkit.Eventually(h.t, "the driver's "+verb+" hangs", func() bool { return testkit.Read(h.t, file) == "" })
}

// killDriverParking kills the program in the middle of each call. A job that was
// to be parked goes on, and can be parked; one that was to come back does.
func killDriverParking(t *testing.T, plainUser bool) {
	h, b, id := newParkable(t, plainUser)
	parkings := 0
	kill := func() {
		for _, pid := range h.drivers() {
			syscall.Kill(pid, syscall.SIGKILL)
		}
	}
	for _, verb := range []string{"state", "lock", "checkpoint"} {
		h.hangAt(verb, api.ActPark, id)
		kill()
		h.mustBe(id, job.Running)
		if v := h.job(id); v.ParkRefused == nil {
			t.Errorf("killed at %s, and nothing is said of it", verb)
		}
		testkit.Must(t, h.order(api.ActPark, id))
		h.mustBe(id, job.Parked)
		testkit.Must(t, h.order(api.ActUnpark, id))
		h.mustBe(id, job.Running)
		parkings++
	}
	for _, verb := range []string{"state", "hold", "free", "restore", "unlock"} {
		testkit.Must(t, h.order(api.ActPark, id))
		h.mustBe(id, job.Parked)
		h.hangAt(verb, api.ActUnpark, id)
		kill()
		h.mustBe(id, job.Running)
		parkings++
	}
	h.finish(b, id, parkings)
}

// killJobParking kills the job in the middle of each call: that is its end.
func killJobParking(t *testing.T, plainUser bool) {
	h, b, id := newParkable(t, plainUser)
	for _, verb := range []string{"lock", "checkpoint", "hold", "restore", "unlock"} {
		action := api.ActPark
		if verb == "hold" || verb == "restore" || verb == "unlock" {
			testkit.Must(t, h.order(api.ActPark, id))
			h.mustBe(id, job.Parked)
			action = api.ActUnpark
		}
		h.hangAt(verb, action, id)
		h.killMain(id)
		testkit.Eventually(t, "the job is over", func() bool { return h.job(id).State.Terminal() })
		if v := h.job(id); outcome(v) != "signal:KILL" || v.Attempt != 1 {
			t.Errorf("killed at %s, it ended %q in attempt %d", verb, outcome(v), v.Attempt)
		}
		for _, p := range h.jobProcesses(id) {
			t.Errorf("it is over, but there is %s", p)
		}
		id = h.submit(parkedJob)[0]
		h.holdsCard()
	}
	testkit.Must(t, h.order(api.ActCancel, id))
	testkit.Eventually(t, "the last job is over", func() bool { return h.job(id).State.Terminal() })
	h.mustHoldNothing(b)
}

// killMain kills the main process of a job.
func (h *host) killMain(id string) (killed bool) {
	for _, p := range h.jobProcesses(id) {
		if len(p.words) > 1 && strings.HasSuffix(p.words[1], "/job.sh") {
			return syscall.Kill(p.pid, syscall.SIGKILL) == nil
		}
	}
	return false
}

// parkSteps are the steps of a daemon that parks and resumes jobs.
var parkSteps = map[string]int{
	"restored": 1, "before commit": 8, "committed": 8, "park decided": 4, "before park": 3, "park asked": 3, "park heard": 3,
	"before ack": 3, "before go": 3,
}

// TestKillWhileJobsAreParked kills the daemon, and also supervisors, driver
// programs and jobs, while several people park and unpark jobs and others are
// parked for jobs with a higher priority.
func TestKillWhileJobsAreParked(t *testing.T) {
	t.Run("the daemon", func(t *testing.T) { killParkings(t, kills(t, 12), false) })
	t.Run("everything", func(t *testing.T) { killParkings(t, kills(t, 12), true) })
}

func killParkings(t *testing.T, wanted int, everything bool) {
	rng, begun, died, n := chance(t), time.Now(), map[string]int{}, &toll{}
	parkings := 0
	for n.kills < wanted && !t.Failed() {
		parkings += parkRound(t, rng, n, wanted, everything, died)
	}
	n.log(t, begun, fmt.Sprintf("; parked %d times; died at %v", parkings, died))
	if parkings == 0 && !t.Failed() {
		t.Error("no job was parked: nothing was tested")
	}
}

// takingTurns are jobs that are parked, some only by people and some for others
// too, and those that they are parked for.
func takingTurns(rng *rand.Rand) []line {
	var lines []line
	add := func(keys string, hold time.Duration) {
		l := line{number: len(lines) + 1, cards: 1, kind: "parks", hold: hold, code: rng.IntN(2) * 7}
		lines = append(lines, l.but(keys, l.kind))
	}
	declared := func() string { return []string{"", "vram=14G "}[rng.IntN(2)] }
	for range 8 {
		add(declared()+[]string{"preemptible=park", "preemptible=park", ""}[rng.IntN(3)], time.Second+upTo(rng, 2*time.Second))
	}
	for at := range 10 {
		add(declared()+fmt.Sprintf("priority=%d begin=now+%ds", 1+rng.IntN(3), 1+at), 100*time.Millisecond+upTo(rng, 300*time.Millisecond))
	}
	return lines
}

// parkRound kills until there were so many kills, or the jobs are done.
func parkRound(t *testing.T, rng *rand.Rand, n *toll, most int, everything bool, died map[string]int) (parkings int) {
	h := newHost(t, 2)
	h.toll = n
	h.flags = append(h.flags, "--min-run", "0.2s")
	h.mustBeFaulty()
	lines := takingTurns(rng)
	b := h.up()
	ids := h.submit(lines...)
	var given sync.Map // ids of jobs that may have been cancelled, and whether the daemon said so
	enough, people := h.fidget(rng, ids[:8], &given)
	b.kill()
	lost, shot := 0, map[string]bool{}
	for begun := time.Now(); n.kills < most && h.count("end")+lost+len(shot)+said(&given) < len(lines) && !t.Failed() && time.Since(begun) < enoughTime; n.kills++ {
		if !everything || rng.IntN(4) == 0 {
			died[h.dieAt(rng, parkSteps, 900*time.Millisecond)]++
			continue
		}
		b := h.up()
		pause(b, upTo(rng, 400*time.Millisecond))
		switch rng.IntN(5) {
		case 0:
			lost += h.killOne(rng)
			died["a supervisor"]++
		case 1:
			if id := ids[rng.IntN(len(ids))]; h.killMain(id) {
				shot[id] = true
				died["a job"]++
			}
		default:
			if pids := h.drivers(); len(pids) > 0 {
				syscall.Kill(pids[rng.IntN(len(pids))], syscall.SIGKILL)
				died["a driver program"]++
			}
		}
		pause(b, upTo(rng, 200*time.Millisecond))
		b.kill()
	}
	enough()
	people.Wait()
	b = h.up()
	h.unparkAll()
	n.jobs += len(lines)
	books := h.mustBeSound(lines)
	for i, l := range lines {
		v := h.job(ids[i])
		parkings += v.Parkings
		r := books.runs[[2]int{l.number, 1}]
		_, up := given.Load(ids[i])
		switch {
		case up && outcome(v) == "cancelled":
		case v.Attempt != 1:
			t.Errorf("line %d had %d attempts: %s", l.number, v.Attempt, l.text())
		case outcome(v) == "lost":
			lost--
		case outcome(v) == "signal:KILL" && shot[ids[i]]:
		case outcome(v) != l.outcome():
			t.Errorf("line %d ended %q (%s), not %s; itself says %+v", l.number, outcome(v), text(v.Reason), l.outcome(), r)
		case r == nil || r.ends != 1 || r.code != l.code:
			t.Errorf("line %d is said to have ended %s, but itself says %+v", l.number, outcome(v), r)
		}
	}
	if lost < 0 {
		t.Errorf("%d more jobs are lost than supervisors were killed", -lost)
	}
	h.mustHoldNothing(b)
	return parkings
}

// fidget has people park and unpark jobs, and now and then cancel one, until they
// are told that it is enough.
func (h *host) fidget(rng *rand.Rand, ids []string, given *sync.Map) (enough func(), people *sync.WaitGroup) {
	ctx, enough := context.WithCancel(context.Background())
	h.t.Cleanup(enough)
	people = &sync.WaitGroup{}
	for range 3 {
		own := rand.New(rand.NewPCG(rng.Uint64(), 4))
		client := api.Dial(h.socket)
		h.t.Cleanup(client.Close)
		people.Go(func() {
			for ctx.Err() == nil {
				action, id := []string{api.ActPark, api.ActUnpark, api.ActUnpark}[own.IntN(3)], ids[own.IntN(len(ids))]
				if own.IntN(200) == 0 {
					action = api.ActCancel
					given.LoadOrStore(id, false)
				}
				// Most of it is refused, or no daemon is there.
				_, err := api.Call(h.ctx(), client, api.Act, api.ActRequest{Action: action, Select: api.Select{Words: []string{id}}})
				if action == api.ActCancel && err == nil {
					given.Store(id, true)
				}
				_ = api.Pause(ctx, upTo(own, 30*time.Millisecond))
			}
		})
	}
	return enough, people
}

// said is how many entries are true.
func said(m *sync.Map) (n int) {
	for _, value := range m.Range {
		if value == true {
			n++
		}
	}
	return n
}

// unparkAll waits until everything is over, and lets everything come back.
func (h *host) unparkAll() {
	h.t.Helper()
	testkit.Within(h.t, 2*testkit.Patience, "everything is over", func() bool {
		_, _ = api.Call(h.ctx(), h.client, api.Act, api.ActRequest{Action: api.ActUnpark, Select: api.Select{All: true, States: []string{string(job.Parked)}}})
		status, err := api.Call(h.ctx(), h.client, api.GetStatus, api.None{})
		return err == nil && status.Counts["queued"]+status.Counts["running"]+status.Counts["parked"] == 0
	})
}
