// Command bench measures berth relative to the bare operations it is built on,
// in one run on one machine, and prints ratios: seconds differ between
// machines, ratios much less. It must not be part of the tests: it would fail
// on a loaded machine although the code is right.
package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

func main() {
	if len(os.Args) == 3 && os.Args[1] == listWord {
		listMain(os.Args[2])
		return
	}
	berth := flag.String("berth", "bin/berth", "the program to measure")
	jobs := flag.Int("jobs", 2000, "jobs to drain")
	lines := flag.Int("lines", 100000, "lines of the large jobs file")
	only := flag.Bool("daemon", false, "measure only the daemon")
	code := flag.Bool("snapshot", false, "measure only snapshots of code")
	scrape := flag.Bool("scrape", false, "measure only a scrape of the metrics")
	view := flag.Bool("top", false, "measure only berth top")
	past := flag.Bool("samples", false, "measure only the samples of the past")
	stall := flag.Bool("stall", false, "measure only the daemon under one user's lists")
	cluster := flag.Bool("slurm", false, "measure only handing jobs over to the Slurm that SLURM_CONF names; it must be one for tests")
	flag.Parse()
	path, err := filepath.Abs(*berth)
	check(err)
	dir, err := os.MkdirTemp(".", ".bench-")
	check(err)
	dir, err = filepath.Abs(dir)
	check(err)
	check(os.Chdir(dir))
	b := bench{berth: path}
	fmt.Printf("%-58s %14s %14s\n", "what", "measured", "target")
	switch {
	case *cluster:
		b.slurm()
	case *code:
		b.snapshot()
	case *past:
		b.samples()
	case !*only && !*stall && !*scrape && !*view:
		b.drain(*jobs)
		b.growth(4 * *jobs)
		b.supervisor()
		b.large(*lines)
		b.idle()
		b.snapshot()
		b.samples()
	}
	switch {
	case *stall:
		b.stall()
	case *scrape:
		b.scrape()
	case *view:
		b.top()
	case !*code && !*past && !*cluster:
		b.daemon(*jobs)
	}
	check(os.RemoveAll(dir))
	if b.missed > 0 {
		os.Exit(1)
	}
}

type bench struct {
	berth  string
	missed int
}

func (b *bench) row(what, measured, target string, ok bool) {
	mark := ""
	if !ok {
		mark = "  MISSED"
		b.missed++
	}
	fmt.Printf("%-58s %14s %14s%s\n", what, measured, target, mark)
}

// drain: `true` jobs two at a time, compared to fork/exec plus one fsync from
// Go two at a time. The three are interleaved so that other load affects all
// alike.
func (b *bench) drain(n int) {
	var bare, ours, cold time.Duration
	const rounds = 3
	for round := range rounds {
		bare += bareRun(n)
		ours += b.drainOnce(n, fmt.Sprintf("drain%d", round))
		cold += supervisorPerJob(b.berth, n/10) * 10
	}
	bareRate := rounds * float64(n) / bare.Seconds()
	rate := rounds * float64(n) / ours.Seconds()
	b.row("bare fork/exec + fsync, two at a time", fmt.Sprintf("%.0f/s", bareRate), "", true)
	b.row("a fresh supervisor process per job, for comparison", fmt.Sprintf("%.2f", rounds*float64(n)/cold.Seconds()/bareRate), "", true)
	b.row(fmt.Sprintf("draining %d `true` jobs, two at a time (%.0f/s), ratio", n, rate), fmt.Sprintf("%.2f", rate/bareRate), ">= 0.30", rate/bareRate >= 0.30)
}

func bareRun(n int) time.Duration {
	start := time.Now()
	var group sync.WaitGroup
	for worker := range 2 {
		group.Go(func() {
			file, err := os.Create(fmt.Sprintf("bare%d", worker))
			check(err)
			defer file.Close()
			for range n / 2 {
				check(exec.Command("/bin/sh", "-c", "true").Run())
				_, err := file.WriteAt([]byte("done"), 0)
				check(err)
				check(file.Sync())
			}
		})
	}
	group.Wait()
	return time.Since(start)
}

// supervisorPerJob is the cost of starting a process like ours for every job,
// before any bookkeeping.
func supervisorPerJob(berth string, n int) time.Duration {
	keep := filepath.Join(filepath.Dir(berth), "berth-keep")
	start := time.Now()
	var group sync.WaitGroup
	for range 2 {
		group.Go(func() {
			for range n / 2 {
				_ = exec.Command(keep).Run() // it starts, and then refuses
				check(exec.Command("/bin/sh", "-c", "true").Run())
			}
		})
	}
	group.Wait()
	return time.Since(start)
}

// drainOnce uses a directory of its own each time: a file system that has just
// deleted thousands of files is slow to create new ones.
func (b *bench) drainOnce(n int, dir string) time.Duration {
	check(os.WriteFile("true.txt", []byte(strings.Repeat("true\n", n)), 0o644))
	start := time.Now()
	check(b.command("run", "true.txt", "--sim", "2", "--log-dir", dir).Run())
	return time.Since(start)
}

// growth: the cost of a job must not depend on the number of finished jobs.
func (b *bench) growth(n int) {
	check(os.WriteFile("grow.txt", []byte(strings.Repeat("true\n", n)), 0o644))
	check(b.command("run", "grow.txt", "--sim", "2", "--log-dir", "grow").Run())
	text, err := os.ReadFile("grow/journal.jsonl")
	check(err)
	var ends []time.Time
	for _, line := range strings.Split(strings.TrimSpace(string(text)), "\n") {
		var ev struct {
			Event string
			Time  time.Time
		}
		check(json.Unmarshal([]byte(line), &ev))
		if ev.Event == "ended" {
			ends = append(ends, ev.Time)
		}
	}
	// The median stretch of each half: other load comes and goes.
	stretches := func(ends []time.Time) time.Duration {
		const size = 200
		var took []time.Duration
		for at := size; at < len(ends); at += size {
			took = append(took, ends[at].Sub(ends[at-size]))
		}
		slices.Sort(took)
		return took[len(took)/2]
	}
	half := len(ends) / 2
	ratio := stretches(ends[half:]).Seconds() / stretches(ends[:half]).Seconds()
	b.row(fmt.Sprintf("time per job, second half of %d relative to the first", n), fmt.Sprintf("%.2f x", ratio), "<= 1.25 x", ratio <= 1.25)
}

func (b *bench) command(args ...string) *exec.Cmd {
	cmd := exec.Command(b.berth, args...)
	cmd.Stderr = os.Stderr
	ledger, err := filepath.Abs("ledger")
	check(err)
	cmd.Env = append(os.Environ(), "BERTH_LEDGER_DIR="+ledger)
	return cmd
}

// supervisor: memory of a supervisor while it and nineteen others hold jobs.
func (b *bench) supervisor() {
	const many = 20
	check(os.WriteFile("hold.txt", []byte(strings.Repeat("[gpus=0.01] sleep 60\n", many)), 0o644))
	cmd := b.command("run", "hold.txt", "--sim", "1", "--log-dir", "hold")
	check(cmd.Start())
	defer cmd.Wait()
	defer cmd.Process.Signal(syscall.SIGTERM)
	pids := waitForKeeps("hold", many)
	time.Sleep(2 * time.Second) // they tidy up once a job has run a second
	var rss, pss float64
	for _, pid := range pids {
		r, p := memoryOf(pid)
		rss, pss = max(rss, r), pss+p/many
	}
	b.row("a supervisor's memory, RSS, the largest of 20", fmt.Sprintf("%.1f MB", rss), "<= 4 MB", rss <= 4)
	b.row("a supervisor's memory, PSS, the mean of 20", fmt.Sprintf("%.1f MB", pss), "<= 1.5 MB", pss <= 1.5)
}

// waitForKeeps finds the supervisors that hold a job each.
func waitForKeeps(logDir string, n int) []int {
	for range 500 {
		records, _ := filepath.Glob("/proc/[0-9]*/fd/6")
		var pids []int
		for _, link := range records {
			target, _ := os.Readlink(link)
			pid, _ := strconv.Atoi(strings.Split(link, "/")[2])
			if strings.Contains(target, "/"+logDir+"/keep/") && hasChild(pid) {
				pids = append(pids, pid)
			}
		}
		if len(pids) == n {
			return pids
		}
		time.Sleep(20 * time.Millisecond)
	}
	fail("the supervisors did not start")
	return nil
}

func hasChild(pid int) bool {
	tasks, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid))
	for _, t := range tasks {
		if text, _ := os.ReadFile(t); len(bytes.TrimSpace(text)) > 0 {
			return true
		}
	}
	return false
}

func memoryOf(pid int) (rss, pss float64) {
	file, err := os.Open(fmt.Sprintf("/proc/%d/smaps_rollup", pid))
	check(err)
	defer file.Close()
	for scan := bufio.NewScanner(file); scan.Scan(); {
		fields := strings.Fields(scan.Text())
		if len(fields) < 2 {
			continue
		}
		kib, _ := strconv.ParseFloat(fields[1], 64)
		switch fields[0] {
		case "Rss:":
			rss = kib / 1000
		case "Pss:":
			pss = kib / 1000
		}
	}
	return rss, pss
}

// large: a jobs file of 100,000 lines, from start to the first running job.
func (b *bench) large(n int) {
	var text strings.Builder
	for i := range n {
		fmt.Fprintf(&text, "[vram=%dM] touch began; sleep 60 # %d\n", 4000+i%1000, i)
	}
	check(os.WriteFile("large.txt", []byte(text.String()), 0o644))
	start := time.Now()
	cmd := b.command("run", "large.txt", "--sim", "8", "--log-dir", "large")
	check(cmd.Start())
	for {
		if _, err := os.Stat("began"); err == nil {
			break
		}
		if time.Since(start) > time.Minute {
			fail("the large file did not start")
		}
		time.Sleep(2 * time.Millisecond)
	}
	took := time.Since(start)
	rss := peakRSS(cmd.Process.Pid)
	check(cmd.Process.Signal(syscall.SIGTERM))
	cmd.Wait()
	b.row(fmt.Sprintf("%d lines: parsed, queued on disk, first job running", n), fmt.Sprintf("%.2f s", took.Seconds()), "< 2 s", took < 2*time.Second)
	b.row(fmt.Sprintf("%d lines: berth's peak memory", n), fmt.Sprintf("%.0f MB", rss), "< 300 MB", rss < 300)
}

func peakRSS(pid int) float64 {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	check(err)
	for _, line := range strings.Split(string(text), "\n") {
		if rest, ok := strings.CutPrefix(line, "VmHWM:"); ok {
			kib, _ := strconv.ParseFloat(strings.Fields(rest)[0], 64)
			return kib / 1000
		}
	}
	return 0
}

// idle: the CPU time of --watch with nothing to do.
func (b *bench) idle() {
	check(os.WriteFile("idle.txt", nil, 0o644))
	cmd := b.command("run", "idle.txt", "--sim", "2", "--watch", "--log-dir", "idle")
	check(cmd.Start())
	share := shareOf(cmd, time.Second, 10*time.Second)
	b.row("idle with --watch, of one core", fmt.Sprintf("%.2f %%", share), "< 0.5 %", share < 0.5)
}

// shareOf is how much of one core a program uses over a time, in percent, once it
// has settled. It ends the program.
func shareOf(cmd *exec.Cmd, settles, span time.Duration) float64 {
	time.Sleep(settles)
	before := cpuOf(cmd.Process.Pid)
	time.Sleep(span)
	used := cpuOf(cmd.Process.Pid) - before
	check(cmd.Process.Signal(syscall.SIGTERM))
	cmd.Wait()
	return 100 * used.Seconds() / span.Seconds()
}

func cpuOf(pid int) time.Duration {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	check(err)
	fields := strings.Fields(string(text[bytes.LastIndexByte(text, ')')+1:]))
	user, _ := strconv.Atoi(fields[11])
	system, _ := strconv.Atoi(fields[12])
	return time.Duration(user+system) * 10 * time.Millisecond
}

func check(err error) {
	if err != nil {
		fail(err.Error())
	}
}

func fail(text string) {
	fmt.Fprintln(os.Stderr, "bench:", text)
	os.Exit(2)
}
