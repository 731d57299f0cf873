package soak

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"berth/internal/tests/testkit"
)

// csvSite is a site whose jobs file is gpu-scheduler's.
type csvSite struct {
	*site
	lines []line
}

func newCSVSite(t *testing.T, cards int) *csvSite {
	t.Helper()
	s := &csvSite{site: newSite(t, cards, nil)}
	s.logDir = filepath.Join(s.dir, "gpu_scheduler_state.json.d")
	// Its jobs are Python programs; here that is another word for a shell.
	bin := filepath.Join(s.dir, "bin")
	if err := os.Mkdir(bin, 0o755); err != nil {
		t.Fatal(err)
	}
	testkit.Write(t, filepath.Join(bin, "python"), "#!/bin/sh\nshift\nexec sh \"$@\"\n", 0o755)
	testkit.Write(t, filepath.Join(s.dir, "llm_config.json"), `{"default_requirement": 1.0, "models": {"half": 0.5, "pair": 2.0}}`)
	s.env = append(s.env, "HOME="+s.dir, "TMPDIR="+s.dir, "CONDA_EXE=", "PATH="+bin+":"+programs+":"+os.Getenv("PATH"))
	s.flags = []string{"--sim", fmt.Sprint(cards), "--monitor-interval", "1", "--state-interval", "0.1"}
	return s
}

func (s *csvSite) scheduler(args ...string) *exec.Cmd {
	cmd := exec.Command(berthProgram(), append([]string{"compat", "gpu-scheduler"}, args...)...)
	cmd.Dir, cmd.Env = s.dir, append(os.Environ(), s.env...)
	return cmd
}

func (s *csvSite) begin(onLine func(*berth, int)) *berth {
	s.t.Helper()
	return s.launch(s.scheduler(append([]string{"start"}, s.flags...)...), onLine)
}

// next is another line of the file.
func (s *csvSite) next(rng *rand.Rand) string {
	l := line{number: len(s.lines) + 1, cards: 1, alone: true, kind: "plain", hold: upTo(rng, 200*time.Millisecond)}
	model := "any"
	switch rng.IntN(4) {
	case 0:
		l.alone, l.needMiB, model = false, 11673, "half"
	case 1:
		l.cards, model = 2, "pair"
	}
	if rng.IntN(5) == 0 {
		l.code = 3
	}
	s.lines = append(s.lines, l)
	lock := map[bool]string{true: "-x", false: "-s"}[l.alone]
	return fmt.Sprintf("%d,job.sh,,%d %s %.3f %d %s --llm %s\n", rng.IntN(3), l.number, lock, l.hold.Seconds(), l.code, l.kind, model)
}

// append adds lines to the file, of which the last may be in two pieces.
func (s *csvSite) append(rng *rand.Rand, n int) {
	s.t.Helper()
	file, err := os.OpenFile(s.file, os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		s.t.Fatal(err)
	}
	defer file.Close()
	for range n {
		text := s.next(rng)
		cut := len(text)
		if rng.IntN(3) == 0 {
			cut = rng.IntN(len(text))
		}
		for _, piece := range []string{text[:cut], text[cut:]} {
			if _, err := file.WriteString(piece); err != nil {
				s.t.Fatal(err)
			}
		}
	}
}

// TestKillCSV kills gpu-scheduler again and again while lines are appended to
// its jobs file. Every line must run exactly once, and its end be known.
func TestKillCSV(t *testing.T) {
	rng, begun := chance(t), time.Now()
	s := newCSVSite(t, 3)
	for wanted := kills(t, 8); s.toll.kills < wanted && !t.Failed() && (unbounded() || time.Since(begun) < enoughTime); s.toll.kills++ {
		s.append(rng, rng.IntN(4))
		b := s.beginDoomed(rng)
		s.append(rng, rng.IntN(3))
		if b.wait(); !b.killed() {
			t.Errorf("it ended by itself: %s%s", b.said(), b.stderr.String())
		}
	}
	b := s.begin(nil)
	testkit.Eventually(t, "it heeds signals", func() bool { return strings.Contains(b.said(), "scheduler started") })
	testkit.Within(t, 2*testkit.Patience, "everything is over", func() bool { return s.count("end") >= len(s.lines) && s.over() })
	b.signal(syscall.SIGINT)
	b.mustEnd(130)
	s.mustHaveRunOnce()
	s.toll.log(t, begun, "")
	s.mustBeClean()
}

// beginDoomed starts a scheduler that is killed after a random time, or just
// as it says something.
func (s *csvSite) beginDoomed(rng *rand.Rand) *berth {
	s.t.Helper()
	at, delay := 1+rng.IntN(12), upTo(rng, 900*time.Millisecond)
	bySaying := rng.IntN(2) == 0
	b := s.begin(func(b *berth, n int) {
		if bySaying && n >= at {
			b.signal(syscall.SIGKILL)
		}
	})
	if bySaying {
		delay = 2 * time.Second // it may have less to say
	}
	timer := time.AfterFunc(delay, func() { b.signal(syscall.SIGKILL) })
	s.t.Cleanup(func() { timer.Stop() })
	return b
}

// csvJob is a job as the state file tells of it.
type csvJob struct {
	State    string `json:"state"`
	ExitCode *int   `json:"exit_code"`
	Command  string `json:"command"`
}

// told is what the state file says of each line, by its number.
func (s *csvSite) told() map[int][]csvJob {
	s.t.Helper()
	var doc struct{ Jobs []csvJob }
	if err := json.Unmarshal([]byte(testkit.Read(s.t, filepath.Join(s.dir, "gpu_scheduler_state.json"))), &doc); err != nil {
		s.t.Fatal(err)
	}
	found := map[int][]csvJob{}
	for _, j := range doc.Jobs {
		number := 0
		_, rest, _ := strings.Cut(j.Command, "job.sh ")
		fmt.Sscan(rest, &number)
		found[number] = append(found[number], j)
	}
	return found
}

func (s *csvSite) over() bool {
	told := s.told()
	for _, jobs := range told {
		for _, j := range jobs {
			if j.ExitCode == nil {
				return false
			}
		}
	}
	return len(told) == len(s.lines)
}

func (s *csvSite) mustHaveRunOnce() {
	s.t.Helper()
	b, told := s.mustBeSound(s.lines), s.told()
	s.toll.jobs = len(s.lines)
	for _, l := range s.lines {
		if r := b.runs[[2]int{l.number, 1}]; r == nil || r.ends != 1 {
			s.reportLost("line %d did not run to its end", l.number)
		}
		if b.runs[[2]int{l.number, 2}] != nil {
			s.toll.twice++
			s.t.Errorf("line %d ran twice", l.number)
		}
		state := map[bool]string{true: "finished", false: "failed"}[l.code == 0]
		if jobs := told[l.number]; len(jobs) != 1 || jobs[0].State != state || *jobs[0].ExitCode != l.code {
			s.t.Errorf("line %d ended with %d; the state file says %+v", l.number, l.code, jobs)
		}
	}
}
