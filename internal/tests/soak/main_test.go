package soak

import (
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"testing"
	"time"

	"berth/internal/tests/testkit"
)

// programs is the directory of the berth and berth-keep under test.
var programs string

func TestMain(m *testing.M) {
	if dir := os.Getenv(cutDiskEnv); dir != "" {
		os.Exit(serveCutDisk(dir))
	}
	if dir := os.Getenv(remoteDiskEnv); dir != "" {
		os.Exit(serveRemoteDisk(dir))
	}
	testkit.Parallel(6)
	os.Exit(testkit.RunWith(m, func(dir string) { programs = dir }, "cmd/berth", "cmd/berth-keep"))
}

// faulty is the directory of programs that die where a test tells them to.
// They are built when the first test wants them.
var faulty = sync.OnceValues(func() (string, error) {
	dir := filepath.Join(programs, "faulty")
	return dir, testkit.Build(dir, "berthfault keepfault", "cmd/berth", "cmd/berth-keep")
})

// usualKills are the tests that kill at random, and how many kills each makes.
var usualKills = map[string]int{
	"TestKillDaemon/of_one_user":                           300,
	"TestKillDaemon/of_all_users":                          60,
	"TestKillBerth":                                        100,
	"TestKillSupervisor/at_any_moment":                     60,
	"TestKillServedSupervisor/at_any_moment":               30,
	"TestKillWhileJobsMakeRoom/the_daemon":                 120,
	"TestKillWhileJobsMakeRoom/the_daemon_and_supervisors": 40,
	"TestKillWhileJobsAreParked/the_daemon":                60,
	"TestKillWhileJobsAreParked/everything":                60,
	"TestKillCSV":                                          30,
	"TestKillMgpu":                                         30,
}

// kills is how many kills a test makes. BERTH_KILLS asks for so many in all,
// which the tests share as they share the usual number.
func kills(t *testing.T, short int) int {
	t.Helper()
	usual, sum := usualKills[t.Name()], 0
	if usual == 0 {
		t.Fatalf("usualKills does not have %s", t.Name())
	}
	if text := os.Getenv("BERTH_KILLS"); text != "" {
		total, err := strconv.Atoi(text)
		if err != nil || total < 1 {
			t.Fatalf("BERTH_KILLS=%s: want a number", text)
		}
		for _, n := range usualKills {
			sum += n
		}
		return max(1, (total*usual+sum/2)/sum)
	}
	if testing.Short() {
		return short
	}
	return usual
}

// toll is what became of the acknowledged jobs of a test that kills.
type toll struct{ kills, jobs, lost, twice int }

func (n *toll) log(t *testing.T, begun time.Time, more string) {
	t.Helper()
	t.Logf("%d kills, %d jobs, %d lost, %d ran twice, %s%s", n.kills, n.jobs, n.lost, n.twice, since(begun), more)
}

// unbounded reports whether somebody asked for so many kills, however long
// they take.
func unbounded() bool { return os.Getenv("BERTH_KILLS") != "" }

// chance is a source of random numbers. Its seed is printed, and BERTH_SEED
// sets it: that repeats the jobs and the delays, though not what the kernel
// makes of them.
func chance(t *testing.T) *rand.Rand {
	t.Helper()
	seed := uint64(time.Now().UnixNano())
	if text := os.Getenv("BERTH_SEED"); text != "" {
		var err error
		if seed, err = strconv.ParseUint(text, 10, 64); err != nil {
			t.Fatalf("BERTH_SEED=%s: want a number", text)
		}
	}
	t.Logf("BERTH_SEED=%d", seed)
	return rand.New(rand.NewPCG(seed, 1))
}

func upTo(rng *rand.Rand, limit time.Duration) time.Duration {
	return time.Duration(rng.Int64N(int64(limit)))
}

// copyProgram puts a program elsewhere.
func copyProgram(t *testing.T, from, to string) {
	t.Helper()
	testkit.Write(t, to, testkit.Read(t, from), 0o755)
}

func berthProgram() string { return filepath.Join(programs, "berth") }
