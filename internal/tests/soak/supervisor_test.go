package soak

import (
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"berth/internal/tests/testkit"
)

// held finds the supervisor that holds a line's job, once the job has grown
// its tree.
func (s *site) held(n int) (keep process, id string) {
	s.t.Helper()
	testkit.Eventually(s.t, "the job of line "+strconv.Itoa(n)+" runs", func() bool { return s.wrote("grown", strconv.Itoa(n)) })
	for _, p := range s.processes() {
		words := strings.Split(p.token, ":")
		if len(words) == 3 && slices.Contains(p.words, s.dir+"/job.sh") && p.words[2] == strconv.Itoa(n) {
			keep, living := s.keeps()[words[0]]
			if !living {
				s.t.Fatalf("line %d runs without a supervisor", n)
			}
			return keep, words[1]
		}
	}
	s.t.Fatalf("no process of line %d", n)
	return process{}, ""
}

// mustLose waits until a line's job is over, which must be lost, and checks
// that nothing of it is left by then.
func (s *site) mustLose(n int, id string) {
	s.t.Helper()
	testkit.Eventually(s.t, "line "+strconv.Itoa(n)+" is over", func() bool {
		for _, e := range s.journal() {
			if e.Event == "ended" && e.line() == n {
				return true
			}
		}
		return false
	})
	for _, p := range s.jobProcesses(id) {
		s.t.Errorf("line %d is over, but there is %s", n, p)
	}
	if got := s.endings()[n].outcome(); got != "lost" {
		s.t.Errorf("line %d ended %q, not lost", n, got)
	}
}

// victims are jobs that would run for minutes, with processes in sessions of
// their own, followed by short ones that need their cards.
func victims(n int) []line {
	lines := make([]line, 2*n)
	for i := range lines {
		lines[i] = line{number: i + 1, cards: 1, alone: true, kind: "tree", hold: 5 * time.Minute}
		if i >= n {
			lines[i].kind, lines[i].hold = "plain", 20*time.Millisecond
		}
	}
	return lines
}

func TestKillSupervisor(t *testing.T) {
	for _, who := range []string{"", " of a plain user"} {
		prepare := func(t *testing.T) (*site, []line) {
			lines := victims(3)
			s := newSite(t, 3, lines)
			if who != "" {
				s.asPlainUser()
			}
			return s, lines
		}
		t.Run("while berth"+who+" looks on", func(t *testing.T) { killLookedOn(prepare(t)) })
		t.Run("together with berth"+who, func(t *testing.T) { killTogether(prepare(t)) })
	}
	t.Run("at any moment", func(t *testing.T) {
		rng, begun, n := chance(t), time.Now(), &toll{}
		for wanted := kills(t, 10); n.kills < wanted && !t.Failed(); {
			supervisorRound(t, rng, n)
		}
		n.log(t, begun, "; the jobs of killed supervisors ended as lost")
	})
}

func killLookedOn(s *site, lines []line) {
	b := s.start()
	for n := 1; n <= 3; n++ {
		keep, id := s.held(n)
		syscall.Kill(keep.pid, syscall.SIGKILL)
		s.mustLose(n, id)
	}
	b.mustEnd(1)
	s.mustHaveLost(lines, 3)
}

func killTogether(s *site, lines []line) {
	b := s.start()
	ids := map[int]string{}
	var doomed []process
	for n := 1; n <= 3; n++ {
		keep, id := s.held(n)
		ids[n], doomed = id, append(doomed, keep)
	}
	for _, p := range s.queues() {
		syscall.Kill(p.pid, syscall.SIGSTOP) // it is not to see them die
	}
	for _, keep := range doomed {
		syscall.Kill(keep.pid, syscall.SIGKILL)
	}
	s.killAll(b)
	b = s.start()
	for n := 1; n <= 3; n++ {
		s.mustLose(n, ids[n])
	}
	b.mustEnd(1)
	s.mustHaveLost(lines, 3)
}

// mustHaveLost checks a site whose first lines were lost and whose others ran.
func (s *site) mustHaveLost(lines []line, lost int) {
	s.t.Helper()
	s.mustBeSound(lines)
	ended := s.endings()
	for _, l := range lines[lost:] {
		if got := ended[l.number].outcome(); got != "ok" {
			s.t.Errorf("line %d ended %q, not ok", l.number, got)
		}
	}
	s.mustBeClean()
}

// supervisorRound kills supervisors at random while a mixed file runs, and
// now and then berth with them.
func supervisorRound(t *testing.T, rng *rand.Rand, n *toll) {
	lines, killed := mixture(rng, 40, 280*time.Millisecond), 0
	s := newSite(t, 3, lines)
	s.toll = n
	b := s.start()
	for b.running() {
		if killed < 15 {
			killed += s.killOne(rng)
			if rng.IntN(4) == 0 {
				s.strike(b, killable[rng.IntN(len(killable))])
				b.wait()
				b = s.start()
			}
		}
		pause(b, upTo(rng, 200*time.Millisecond))
	}
	n.kills, n.jobs = n.kills+killed, n.jobs+len(lines)
	s.mustBeHonest(lines, b, killed)
	s.mustBeClean()
}

// pause lets berth work for some time, unless it ends first.
func pause(b *berth, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-b.done:
	case <-timer.C:
	}
}

func (s *site) killOne(rng *rand.Rand) int {
	var pids []int
	for _, p := range s.keeps() {
		pids = append(pids, p.pid)
	}
	if len(pids) == 0 {
		return 0
	}
	slices.Sort(pids)
	syscall.Kill(pids[rng.IntN(len(pids))], syscall.SIGKILL)
	return 1
}

// mustBeHonest checks that only killed supervisors lost a job, and that what
// is reported as done was done.
func (s *site) mustBeHonest(lines []line, b *berth, killed int) {
	s.t.Helper()
	books := s.mustBeSound(lines)
	lost, worst := 0, 0
	for n, e := range s.endings() {
		l := lines[n-1]
		r := books.runs[[2]int{n, e.Job.Attempt}]
		switch {
		case e.outcome() == "lost":
			lost++
			worst = max(worst, 1)
			continue
		case e.outcome() != l.outcome():
			s.t.Errorf("line %d ended %s, not %s or lost; itself says %+v", n, e.outcome(), l.outcome(), r)
		case r == nil || r.ends != 1 || r.code != l.code:
			s.t.Errorf("line %d is said to have ended %s in attempt %d, but itself says %+v", n, e.outcome(), e.Job.Attempt, r)
		}
		worst = max(worst, l.status())
	}
	s.toll.lost += len(lines) - len(s.endings())
	if len(s.endings()) != len(lines) || lost > killed {
		s.t.Errorf("%d of %d lines are over; %d are lost, with %d supervisors killed", len(s.endings()), len(lines), lost, killed)
	}
	if got := b.wait(); got != worst {
		s.t.Errorf("berth ended with %d, not %d", got, worst)
	}
}
