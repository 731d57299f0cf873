package main

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"berth/internal/api"
)

// service is a daemon under measurement.
type service struct {
	b      *bench
	cmd    *exec.Cmd
	socket string
	client *api.Client
}

// serve starts a private daemon with two simulated GPUs in a directory of its
// own.
func (b *bench) serve(name string) *service {
	dir, err := filepath.Abs(name)
	check(err)
	s := &service{b: b, socket: filepath.Join(dir, "s")}
	s.cmd = b.command("serve", "--private", "--sim", "2", "--state-dir", dir, "--socket", s.socket)
	check(s.cmd.Start())
	s.client = api.Dial(s.socket)
	s.answers()
	return s
}

// answers waits until the daemon does.
func (s *service) answers() {
	for range 1000 {
		if _, err := api.Call(context.Background(), s.client, api.GetStatus, api.None{}); err == nil {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	fail("the daemon did not start")
}

func (s *service) stop() {
	s.client.Close()
	check(s.cmd.Process.Signal(syscall.SIGTERM))
	s.cmd.Wait()
}

func (s *service) command(args ...string) *exec.Cmd {
	cmd := s.b.command(args...)
	cmd.Env = append(cmd.Env, "BERTH_SOCKET="+s.socket)
	return cmd
}

// timed runs a command.
func (s *service) timed(args ...string) func() time.Duration {
	return func() time.Duration { return took(func() { check(s.command(args...).Run()) }) }
}

// submit returns the last job's id.
func (s *service) submit(specs ...api.Spec) string {
	reply, err := api.Call(context.Background(), s.client, api.Submit, api.SubmitRequest{Jobs: specs, Dir: "/tmp", Environ: []string{"PATH=/usr/bin:/bin"}})
	check(err)
	return reply.Jobs[len(reply.Jobs)-1].ID
}

// drained waits until nothing is queued or running.
func (s *service) drained() { s.leftAtMost(0) }

func (s *service) leftAtMost(jobs int) {
	for {
		status, err := api.Call(context.Background(), s.client, api.GetStatus, api.None{})
		check(err)
		if status.Counts["running"]+status.Counts["queued"] <= jobs {
			return
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// drain submits jobs at once and waits until they have finished.
func (s *service) drain(specs []api.Spec, others int) time.Duration {
	return took(func() {
		s.submit(specs...)
		s.leftAtMost(others + min(others, 1))
	})
}

// memory: of the daemon, and its CPU time with nothing to do.
func (b *bench) memory() {
	s := b.serve("memory")
	defer s.stop()
	check(s.command("submit", "--wait", "-q", "--", "true").Run())
	time.Sleep(time.Second) // let it settle
	before := cpuOf(s.cmd.Process.Pid)
	const span = 10 * time.Second
	time.Sleep(span)
	share := 100 * (cpuOf(s.cmd.Process.Pid) - before).Seconds() / span.Seconds()
	b.row("idle daemon, of one core", fmt.Sprintf("%.2f %%", share), "<= 0.5 %", share <= 0.5)
	rss, _ := memoryOf(s.cmd.Process.Pid)
	b.less("idle daemon, memory in MB", "", rss, 40)
	s.submit(waiting(10_000)...)
	time.Sleep(time.Second)
	rss, _ = memoryOf(s.cmd.Process.Pid)
	b.less("daemon with 10,000 queued, memory in MB", "", rss, 60)
	check(s.command("cancel", "all").Run())
}

// waiting is a queue that stays.
func waiting(n int) []api.Spec {
	specs := make([]api.Spec, n)
	for i := range specs {
		specs[i] = api.Spec{Command: api.Command{Shell: fmt.Sprintf("python train.py --seed %d", i)}, VRAM: "18G", Name: api.Text(fmt.Sprintf("run-%d", i)), Hold: "yes"}
	}
	return specs
}

// long: the daemon's memory with a very long queue, and how soon it answers again.
func (b *bench) long() {
	const n = 100_000
	s := b.serve("long")
	defer s.stop()
	for range n / 10_000 {
		s.submit(waiting(10_000)...)
	}
	rss := peakRSS(s.cmd.Process.Pid)
	b.row("100,000 queued: the daemon's peak memory", fmt.Sprintf("%.0f MB", rss), "<= 250 MB", rss <= 250)
	check(s.cmd.Process.Kill())
	s.cmd.Wait()
	s.cmd = b.command("serve", "--private", "--sim", "2", "--state-dir", filepath.Dir(s.socket), "--socket", s.socket)
	again := took(func() { check(s.cmd.Start()); s.answers() })
	b.row("100,000 queued: answering again after kill -9", fmt.Sprintf("%.2f s", again.Seconds()), "<= 1 s", again <= time.Second)
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
	b.less("a supervisor's memory, RSS in MB, the largest of 20", "", rss, 4)
	b.less("a supervisor's memory, PSS in MB, the mean of 20", "", pss, 1.5)
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
func (b *bench) large() {
	const n = 100_000
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
