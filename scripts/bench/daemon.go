package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
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
		if _, err := s.client.Status(context.Background()); err == nil {
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

func (s *service) submit(specs ...api.Spec) {
	_, err := s.client.Submit(context.Background(), api.SubmitRequest{Jobs: specs, Dir: "/tmp", Environ: []string{"PATH=/usr/bin:/bin"}})
	check(err)
}

// drained waits until nothing is queued or running.
func (s *service) drained() {
	for {
		status, err := s.client.Status(context.Background())
		check(err)
		if status.Counts["running"] == 0 && status.Counts["queued"] == 0 {
			return
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// daemon measures the second way to use berth.
func (b *bench) daemon(jobs int) {
	b.latency()
	b.cards()
	b.callers()
	b.bulk()
	b.endToEnd(jobs)
	b.why()
	b.scrape()
	b.stall()
	b.hundredThousand()
	b.top()
	b.idleDaemon()
}

// latency: from the request to the running command, compared to a bare fork
// and exec of the same command.
func (b *bench) latency() {
	s := b.serve("latency")
	defer s.stop()
	const rounds = 60
	var bare, open, cli []time.Duration
	for i := range rounds {
		bare = append(bare, untilThere(fmt.Sprintf("bare-%d", i), func(path string) { check(exec.Command("/usr/bin/touch", path).Run()) }))
		open = append(open, untilThere(fmt.Sprintf("open-%d", i), func(path string) {
			s.submit(api.Spec{Command: api.Command{Argv: []string{"/usr/bin/touch", path}}})
		}))
		s.drained()
		cli = append(cli, untilThere(fmt.Sprintf("cli-%d", i), func(path string) {
			check(s.command("submit", "-q", "--", "/usr/bin/touch", path).Run())
		}))
		s.drained()
	}
	base := median(bare)
	ratio := func(took []time.Duration) float64 { return median(took).Seconds() / base.Seconds() }
	b.row("a bare fork and exec, median", fmt.Sprintf("%.2f ms", 1000*base.Seconds()), "", true)
	b.row(fmt.Sprintf("idle submit to running, open connection (%.1f ms), ratio", 1000*median(open).Seconds()), fmt.Sprintf("%.1f x", ratio(open)), "<= 5 x", ratio(open) <= 5)
	b.row(fmt.Sprintf("idle submit to running, berth submit (%.1f ms), ratio", 1000*median(cli).Seconds()), fmt.Sprintf("%.1f x", ratio(cli)), "<= 15 x", ratio(cli) <= 15)
}

// cards: `berth gpus`, over an open connection and as a command, compared to a
// bare fork and exec.
func (b *bench) cards() {
	s := b.serve("cards")
	defer s.stop()
	const rounds = 100
	var bare, open, cli []time.Duration
	timed := func(do func() error) time.Duration {
		start := time.Now()
		check(do())
		return time.Since(start)
	}
	for range rounds {
		bare = append(bare, timed(exec.Command("/bin/true").Run))
		open = append(open, timed(func() error { _, err := s.client.GPUs(context.Background()); return err }))
		cli = append(cli, timed(s.command("gpus").Run))
	}
	base := median(bare).Seconds()
	ratio := median(cli).Seconds() / base
	b.row(fmt.Sprintf("berth gpus (%.1f ms, %.2f ms of it the daemon's), ratio", 1000*median(cli).Seconds(), 1000*median(open).Seconds()),
		fmt.Sprintf("%.1f x", ratio), "<= 20 x", ratio <= 20)
}

// untilThere is the time from the request until the command has created its
// file.
func untilThere(name string, do func(path string)) time.Duration {
	path, err := filepath.Abs(name)
	check(err)
	done := make(chan time.Time, 1)
	go func() {
		for {
			if _, err := os.Stat(path); err == nil {
				done <- time.Now()
				return
			}
			time.Sleep(50 * time.Microsecond)
		}
	}()
	start := time.Now()
	do(path)
	return (<-done).Sub(start)
}

func median(took []time.Duration) time.Duration {
	slices.Sort(took)
	return took[len(took)/2]
}

// callers: separate `berth submit` calls, four at a time.
func (b *bench) callers() {
	s := b.serve("callers")
	defer s.stop()
	const each, many = 100, 4
	start := time.Now()
	var group sync.WaitGroup
	for range many {
		group.Go(func() {
			for range each {
				check(s.command("submit", "-q", "--hold", "--", "true").Run())
			}
		})
	}
	group.Wait()
	rate := each * many / time.Since(start).Seconds()
	b.row("separate berth submit calls, 4 callers", fmt.Sprintf("%.0f/s", rate), ">= 300/s", rate >= 300)
}

// bulk: ten thousand jobs in one request, and the list of them.
func (b *bench) bulk() {
	s := b.serve("bulk")
	defer s.stop()
	const n = 10_000
	specs := make([]map[string]any, n)
	for i := range specs {
		specs[i] = map[string]any{"command": "python train.py --seed " + strconv.Itoa(i), "vram": "40000M", "hold": i%2 == 0, "name": fmt.Sprintf("run-%d", i), "gpus": 1}
		if i%2 == 1 {
			specs[i]["vram"] = "20G"
		} else {
			specs[i]["vram"] = "4G"
		}
	}
	data, err := json.Marshal(specs)
	check(err)
	check(os.WriteFile("bulk.json", data, 0o644))
	// The two GPUs are kept busy, so that the other jobs wait.
	check(s.command("submit", "-q", "-g", "2", "--", "sleep", "600").Run())
	start := time.Now()
	check(s.command("submit", "-q", "-f", "bulk.json").Run())
	rate := n / time.Since(start).Seconds()
	b.row("10,000 jobs in one berth submit -f, durable", fmt.Sprintf("%.0f/s", rate), ">= 20000/s", rate >= 20000)
	var took []time.Duration
	for range 5 {
		var out bytes.Buffer
		cmd := s.command("list", "--json")
		cmd.Stdout = &out
		start = time.Now()
		check(cmd.Run())
		took = append(took, time.Since(start))
	}
	b.row("berth list --json of 10,000 jobs", fmt.Sprintf("%.2f s", median(took).Seconds()), "<= 0.3 s", median(took) <= 300*time.Millisecond)
	check(s.command("cancel", "1").Run())
}

// endToEnd: `true` jobs two at a time through the daemon, compared to
// fork/exec plus one fsync, alone and with 50,000 other jobs queued.
func (b *bench) endToEnd(n int) {
	var bare, ours, crowded time.Duration
	const rounds = 3
	busy := b.serve("crowded")
	defer busy.stop()
	var waiting []api.Spec
	for i := range 50_000 {
		waiting = append(waiting, api.Spec{Command: api.Command{Shell: "true # " + strconv.Itoa(i)}, GPUs: "1", Priority: "-1", After: "1:fail"})
	}
	busy.submit(api.Spec{Command: api.Command{Argv: []string{"sleep", "100000"}}, GPUs: "0"})
	busy.submit(waiting...)
	for round := range rounds {
		bare += bareRun(n)
		quiet := b.serve(fmt.Sprintf("quiet%d", round))
		ours += drainThrough(quiet, n, 0)
		quiet.stop()
		crowded += drainThrough(busy, n, 50_000)
	}
	check(busy.command("cancel", "1").Run())
	bareRate := rounds * float64(n) / bare.Seconds()
	rate, crowdedRate := rounds*float64(n)/ours.Seconds(), rounds*float64(n)/crowded.Seconds()
	b.row(fmt.Sprintf("end to end, `true`, two at a time (%.0f/s), ratio", rate), fmt.Sprintf("%.2f", rate/bareRate), ">= 0.30", rate/bareRate >= 0.30)
	b.row("the same with 50,000 queued, relative to none", fmt.Sprintf("%.2f", crowdedRate/rate), ">= 0.9", crowdedRate/rate >= 0.9)
}

// drainThrough submits n jobs at once and waits until they have finished.
func drainThrough(s *service, n, others int) time.Duration {
	specs := make([]api.Spec, n)
	for i := range specs {
		specs[i] = api.Spec{Command: api.Command{Shell: "true"}}
	}
	start := time.Now()
	s.submit(specs...)
	for {
		status, err := s.client.Status(context.Background())
		check(err)
		if status.Counts["running"]+status.Counts["queued"] <= others+min(others, 1) {
			return time.Since(start)
		}
		time.Sleep(20 * time.Millisecond) // polling is not what is measured
	}
}

// hundredThousand: the daemon's memory with a very long queue.
func (b *bench) hundredThousand() {
	s := b.serve("hundred")
	defer s.stop()
	check(s.command("submit", "-q", "-g", "2", "--", "sleep", "600").Run())
	for i := range 10 {
		specs := make([]api.Spec, 10_000)
		for k := range specs {
			specs[k] = api.Spec{Command: api.Command{Shell: fmt.Sprintf("python train.py --seed %d-%d", i, k)}, VRAM: "18G", Name: api.Text(fmt.Sprintf("run-%d-%d", i, k))}
		}
		s.submit(specs...)
	}
	rss := peakRSS(s.cmd.Process.Pid)
	b.row("100,000 queued: the daemon's peak memory", fmt.Sprintf("%.0f MB", rss), "<= 250 MB", rss <= 250)
	check(s.cmd.Process.Kill())
	s.cmd.Wait()
	s.cmd = b.command("serve", "--private", "--sim", "2", "--state-dir", filepath.Dir(s.socket), "--socket", s.socket)
	start := time.Now()
	check(s.cmd.Start())
	for {
		if _, err := s.client.Status(context.Background()); err == nil {
			break
		}
		time.Sleep(5 * time.Millisecond)
	}
	b.row("100,000 queued: answering again after kill -9", fmt.Sprintf("%.2f s", time.Since(start).Seconds()), "", true)
	check(s.command("cancel", "1").Run())
}

// idleDaemon: the cost of a daemon with nothing to do.
func (b *bench) idleDaemon() {
	s := b.serve("resting")
	defer s.stop()
	check(s.command("submit", "--wait", "-q", "--", "true").Run())
	time.Sleep(time.Second) // let it settle
	before := cpuOf(s.cmd.Process.Pid)
	const span = 10 * time.Second
	time.Sleep(span)
	share := 100 * (cpuOf(s.cmd.Process.Pid) - before).Seconds() / span.Seconds()
	rss, _ := memoryOf(s.cmd.Process.Pid)
	b.row("idle daemon, of one core", fmt.Sprintf("%.2f %%", share), "<= 0.5 %", share <= 0.5)
	b.row("idle daemon, memory", fmt.Sprintf("%.0f MB", rss), "<= 40 MB", rss <= 40)
}
