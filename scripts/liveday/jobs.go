package main

import (
	"fmt"
	"math/rand/v2"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// The settings that are shorter than a daemon's defaults.
const (
	minRun    = time.Second
	restart   = 2 * minRun // what berth then takes a restart to cost, and what it does
	grace     = 3 * time.Second
	saving    = time.Second // how long a program saves that is told to stop
	cardGiB   = 80
	hostCards = 2 // the host's memory for parked jobs, in cards
)

// liveJob is one job of the day.
type liveJob struct {
	at   time.Duration
	user int
	gpus int
	work time.Duration
	kind kind
}

// kind is how a job gives way.
type kind int

const (
	fixed kind = iota // not at all
	parks
	savesTold   // it saves its work when it is told to stop
	savesByTime // it saves every saveEvery
)

func (k kind) String() string {
	return [...]string{"fixed", "parks", "saves when told", "saves by the clock"}[k]
}

const saveEvery = 20 * time.Second

// theDay is the same for a seed on every machine: four fifths of the work is in jobs
// of minutes, and four fifths of the jobs take seconds. It is more than the GPUs can
// do in that time.
func theDay(seed uint64, gpus int, span time.Duration) []liveJob {
	rng := rand.New(rand.NewPCG(seed, 32))
	between := func(low, high time.Duration) time.Duration {
		return (low + time.Duration(rng.Int64N(int64(high-low)))).Round(100 * time.Millisecond)
	}
	var jobs []liveJob
	add := func(n int, kind kind, cards int, low, high, from, to time.Duration) {
		for range n {
			jobs = append(jobs, liveJob{between(from, to), rng.IntN(2), cards, between(low, high), kind})
		}
	}
	half := span / 2
	// For eight GPUs and seven minutes, which offer 3,360 GPU-seconds.
	times := max(1, int(float64(gpus)/8*span.Minutes()/7+0.5))
	add(3*times, parks, 1, 190*time.Second, 260*time.Second, 0, half)
	add(2*times, savesTold, 2, 190*time.Second, 240*time.Second, 0, half)
	add(1*times, savesByTime, 4, 190*time.Second, 220*time.Second, 0, half)
	add(1*times, savesTold, 4, 60*time.Second, 100*time.Second, 0, span)
	add(2*times, fixed, 2, 40*time.Second, 90*time.Second, 0, span)
	add(10*times, parks, 1, 10*time.Second, 60*time.Second, 0, span)
	add(10*times, fixed, 1, 10*time.Second, 40*time.Second, 0, span)
	add(8*times, savesTold, 2, 5*time.Second, 20*time.Second, 0, span)
	add(6*times, fixed, 4, 2*time.Second, 10*time.Second, 0, span)
	add(60*times, fixed, 1, 1*time.Second, 8*time.Second, 0, span)
	add(40*times, parks, 1, 1*time.Second, 8*time.Second, 0, span)
	slices.SortStableFunc(jobs, func(a, b liveJob) int { return int(a.at - b.at) })
	return jobs
}

// args are what berth submit is told.
func (j *liveJob) args(berth, self, name string) []string {
	args := []string{"submit", "--quiet", "--gpus", strconv.Itoa(j.gpus), "--name", name, "--grace", grace.String()}
	seconds := strconv.FormatFloat(j.work.Seconds(), 'f', -1, 64)
	switch j.kind {
	case savesTold:
		return append(args, "--preemptible=requeue", "--checkpoint", "term", "--", self, "job", "term", seconds)
	case savesByTime:
		return append(args, "--preemptible=requeue", "--checkpoint", saveEvery.String(), "--", self, "job", "clock", seconds)
	case parks:
		args = append(args, "--preemptible=park")
	}
	return append(args, "--", berth, "simjob", "--vram", fmt.Sprintf("%dG", cardGiB-2), "--hold", seconds)
}

// program is a job that saves its own work: "term" when it is told to stop, "clock"
// every saveEvery. What it did is in a file, in seconds.
func program(args []string) int {
	told := make(chan os.Signal, 1)
	if args[0] == "term" {
		signal.Notify(told, syscall.SIGTERM)
	}
	total, err := strconv.ParseFloat(args[1], 64)
	if err != nil {
		return 2
	}
	path := filepath.Join(os.Getenv("BERTH_CHECKPOINT_DIR"), "done")
	text, err := os.ReadFile(path)
	if err != nil && !os.IsNotExist(err) {
		fmt.Fprintln(os.Stderr, err)
		return 2
	}
	done, _ := strconv.ParseFloat(strings.TrimSpace(string(text)), 64)
	begun := time.Now()
	if err == nil {
		begun = begun.Add(restart) // it loads what it saved
	}
	save := func() error {
		return os.WriteFile(path, []byte(strconv.FormatFloat(done+max(0, time.Since(begun).Seconds()), 'f', 3, 64)), 0o600)
	}
	end := time.NewTimer(time.Until(begun.Add(time.Duration((total - done) * float64(time.Second)))))
	tick := time.NewTicker(time.Hour)
	if args[0] == "clock" {
		tick.Reset(saveEvery)
	}
	for {
		select {
		case <-end.C:
			return 0
		case <-told:
			if save() != nil {
				return 2
			}
			time.Sleep(saving)
			return 128 + int(syscall.SIGTERM)
		case <-tick.C:
			if save() != nil {
				return 2
			}
		}
	}
}
