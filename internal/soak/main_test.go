package soak

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync"
	"testing"
	"time"
)

// programs is the directory of the berth and berth-keep under test.
var programs string

func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp("", "berth-soak")
	if err != nil {
		panic(err)
	}
	programs = dir
	if err := build(dir, ""); err != nil {
		os.RemoveAll(dir)
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	// Tests that run beside one another wait for a driver most of the time.
	if err := flag.Set("test.parallel", "6"); err != nil {
		panic(err)
	}
	code := m.Run()
	os.RemoveAll(dir)
	os.Exit(code)
}

// build makes berth and berth-keep, with build tags or as they are shipped.
func build(dir, tags string) error {
	build := exec.Command("go", "build", "-trimpath", "-tags", tags, "-o", dir+"/", "berth/cmd/berth", "berth/cmd/berth-keep")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		return fmt.Errorf("build berth: %w\n%s", err, out)
	}
	return nil
}

// faulty is the directory of programs that die where a test tells them to.
// They are built when the first test wants them.
var faulty = sync.OnceValues(func() (string, error) {
	dir := filepath.Join(programs, "faulty")
	return dir, build(dir, "berthfault keepfault")
})

// patience is how long a test waits for what must happen, on a slow machine
// under load. Nothing waits that long where all is well.
const patience = 60 * time.Second

// eventually waits until a condition holds.
func eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	within(t, patience, what, holds)
}

func within(t *testing.T, limit time.Duration, what string, holds func() bool) {
	t.Helper()
	deadline := time.NewTimer(limit)
	defer deadline.Stop()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for !holds() {
		select {
		case <-tick.C:
		case <-deadline.C:
			t.Fatalf("after %s still not: %s", limit, what)
		}
	}
}

// never watches for a while that a thing does not happen.
func never(t *testing.T, during time.Duration, what string, happens func() bool) {
	t.Helper()
	over := time.NewTimer(during)
	defer over.Stop()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for {
		if happens() {
			t.Fatalf("it happened: %s", what)
		}
		select {
		case <-tick.C:
		case <-over.C:
			return
		}
	}
}

// kills is how many kills a test makes: BERTH_KILLS, or so many.
func kills(t *testing.T, usual, short int) int {
	t.Helper()
	if text := os.Getenv("BERTH_KILLS"); text != "" {
		n, err := strconv.Atoi(text)
		if err != nil || n < 1 {
			t.Fatalf("BERTH_KILLS=%s: want a number", text)
		}
		return n
	}
	if testing.Short() {
		return short
	}
	return usual
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

func writeFile(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

// writeProgram writes a script that can be run.
func writeProgram(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o755); err != nil {
		t.Fatal(err)
	}
}

// copyProgram puts a program elsewhere.
func copyProgram(t *testing.T, from, to string) {
	t.Helper()
	writeProgram(t, to, readFile(t, from))
}

func readFile(t *testing.T, path string) string {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

func berthProgram() string { return filepath.Join(programs, "berth") }
