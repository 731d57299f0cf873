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
func (b *bench) serve(name string, flags ...string) *service {
	dir, err := filepath.Abs(name)
	check(err)
	s := &service{b: b, socket: filepath.Join(dir, "s")}
	s.cmd = b.command(append([]string{"serve", "--private", "--sim", "2", "--state-dir", dir, "--socket", s.socket}, flags...)...)
	check(s.cmd.Start())
	s.client = api.Dial(s.socket)
	s.answersWithin(10 * time.Second)
	return s
}

// answersWithin waits until the daemon answers.
func (s *service) answersWithin(most time.Duration) {
	for begun := time.Now(); time.Since(begun) < most; {
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

// long: a queue of 100,000, and of as many as a queue may have, but for the single
// submits.
func (b *bench) long()    { b.queueOf(100_000, b.less) }
func (b *bench) million() { b.queueOf(990_000, b.plain) }

// queueOf is the daemon's memory with a very long queue, what requests cost beside
// those with 1,000 queued, and how soon it answers again.
func (b *bench) queueOf(n int, add func(what, note string, value, goal float64)) {
	const few, at = 1000, 10_000
	check(os.WriteFile("config.toml", []byte("[limits]\nqueue = 1000000\ntext = \"1G\"\n"), 0o644))
	flags := []string{"--config", absolute("config.toml")}
	short, s := b.serve("short", flags...), b.serve("long", flags...)
	defer short.stop()
	defer s.stop()
	short.submit(waiting(few)...)
	empty, _ := memoryOf(s.cmd.Process.Pid)
	for range n / at {
		s.submit(waiting(at)...)
	}
	time.Sleep(time.Second) // let it give back what the requests took
	rss, _ := memoryOf(s.cmd.Process.Pid)
	add(fmt.Sprintf("%d queued: memory of a job in kB", n), fmt.Sprintf("(%.0f MB)", rss), 1000*(rss-empty)/float64(n), 1)
	ctx, middle := context.Background(), 0
	for _, ask := range []struct {
		what string
		do   func(s *service, id string) error
	}{
		{"submit", func(s *service, _ string) error { s.submit(waiting(1)...); return nil }},
		{"a page of list", func(s *service, _ string) error {
			_, err := api.Call(ctx, s.client, api.ListJobs, api.Query{Limit: 50, Reasons: true})
			return err
		}},
		{"why", func(s *service, id string) error {
			_, err := api.Call(ctx, s.client, api.GetWhy, api.JobID{ID: id})
			return err
		}},
		{"cancel", func(s *service, id string) error {
			_, err := api.Call(ctx, s.client, api.Act, api.ActRequest{Action: api.ActCancel, Select: api.Select{Words: []string{id}}})
			return err
		}},
	} {
		timed := func(s *service, jobs int) func() time.Duration {
			return func() time.Duration { return took(func() { check(ask.do(s, strconv.Itoa(jobs/2+middle))) }) }
		}
		var theirs, own []time.Duration
		for range 40 {
			middle++
			theirs, own = append(theirs, timed(short, few)()), append(own, timed(s, n)())
		}
		took := quarter(own).Seconds()
		add(fmt.Sprintf("%d queued: %s, of the same with 1,000", n, ask.what), fmt.Sprintf("(%.2f ms)", 1000*took), took/quarter(theirs).Seconds(), 1.25)
	}
	check(s.cmd.Process.Kill())
	s.cmd.Wait()
	s.cmd = b.command(s.cmd.Args[1:]...)
	again := took(func() { check(s.cmd.Start()); s.answersWithin(2 * time.Minute) })
	add(fmt.Sprintf("%d queued: seconds until it answers again after kill -9", n), "", again.Seconds(), 1)
}

// sustained: short jobs, 500 at a time for a minute and a half, with the past
// bounded. Neither their rate nor the memory nor the store may depend on how many
// there were.
func (b *bench) sustained() {
	const span, each, past, tidies = 90 * time.Second, 500, 1000, 4
	check(os.WriteFile("config.toml", fmt.Appendf(nil, "[retention]\nhistory_jobs = %d\nevents = %d\n", past, past), 0o644))
	s := b.serve("sustained", "--config", absolute("config.toml"))
	defer s.stop()
	specs := make([]api.Spec, each)
	for i := range specs {
		specs[i] = api.Spec{Command: api.Command{Shell: "true"}}
	}
	var times []time.Duration
	var memory, sizes []float64
	for begun := time.Now(); time.Since(begun) < span; {
		if len(times)%tidies == 0 { // a daemon does so once an hour, and after it has read its config again
			check(s.cmd.Process.Signal(syscall.SIGHUP))
		}
		times = append(times, s.drain(specs, 0))
		rss, _ := memoryOf(s.cmd.Process.Pid)
		file, err := os.Stat(filepath.Join(filepath.Dir(s.socket), "store", "berth.db"))
		check(err)
		memory, sizes = append(memory, rss), append(sizes, float64(file.Size()))
	}
	n, tenth := each*len(times), len(times)/10
	if tenth*each < past {
		fail(fmt.Sprintf("only %d jobs: what is kept of the past should be full after a tenth", n))
	}
	late, early := median(times[len(times)-tenth:]).Seconds(), median(times[tenth:2*tenth]).Seconds()
	b.plain(fmt.Sprintf("%d short jobs: time of the last tenth, of the second", n), fmt.Sprintf("(%.0f/s)", each/late), late/early, 1.05)
	b.plain(fmt.Sprintf("%d short jobs: memory at the end, of that after a fifth", n), fmt.Sprintf("(%.0f MB)", memory[len(memory)-1]), memory[len(memory)-1]/memory[2*tenth-1], 1.05)
	b.plain(fmt.Sprintf("%d short jobs: the store at the end, of that after a fifth", n), fmt.Sprintf("(%.1f MB)", sizes[len(sizes)-1]/1e6), sizes[len(sizes)-1]/sizes[2*tenth-1], 1.05)
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
			if strings.Contains(target, "/"+logDir+"/keep/") && len(childrenOf(pid)) > 0 {
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
