package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"berth/internal/api"
)

// verbs: what a command costs by itself.
func (b *bench) verbs() {
	b.against("berth --version, of a bare Go program", 60, b.bareGo, func() time.Duration {
		return took(func() { check(b.command("--version").Run()) })
	}, 1, 1.5)
	s := b.serve("verbs")
	defer s.stop()
	b.against("berth submit, of a bare Go program", 60, b.bareGo, s.timed("submit", "-q", "--hold", "--", "true"), 1, 2.5)
	b.against("berth gpus, of a bare Go program", 60, b.bareGo, s.timed("gpus"), 1, 3)
}

// start: from the request to the running command on an idle machine.
func (b *bench) start() {
	s := b.serve("start")
	defer s.stop()
	n := 0
	there := func(do func(path string)) func() time.Duration {
		return func() time.Duration {
			n++
			defer s.drained()
			return untilThere(fmt.Sprint("there-", n), do)
		}
	}
	bare := there(func(path string) { check(exec.Command("/usr/bin/touch", path).Run()) })
	b.against("idle submit to running, open connection, of fork and exec", 60, bare, there(func(path string) {
		s.submit(api.Spec{Command: api.Command{Argv: []string{"/usr/bin/touch", path}}})
	}), 1, 2)
	b.against("idle submit to running, berth submit, of fork and exec", 60, bare, there(func(path string) {
		check(s.command("submit", "-q", "--", "/usr/bin/touch", path).Run())
	}), 1, 5)
}

// untilThere is the time from the request until the command has created its file.
func untilThere(name string, do func(path string)) time.Duration {
	path := absolute(name)
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

// submits: separate calls by one caller, until the jobs have ended.
func (b *bench) submits() {
	s := b.serve("submits")
	defer s.stop()
	const n = 200
	file, err := os.Create("synced")
	check(err)
	defer file.Close()
	b.against("a job of separate berth submit calls, drained, of fork, exec and fsync", 3, func() time.Duration {
		return took(func() {
			for range n {
				check(exec.Command("/bin/true").Run())
				_, err := file.WriteAt([]byte("done"), 0)
				check(err)
				check(file.Sync())
			}
		}) / n
	}, func() time.Duration {
		return took(func() {
			for range n {
				check(s.command("submit", "-q", "--", "true").Run())
			}
			s.drained()
		})
	}, n, 2)
}

// bulk: ten thousand jobs in one request, and the list of them.
func (b *bench) bulk() {
	const n = 10_000
	specs := make([]map[string]any, n)
	for i := range specs {
		specs[i] = map[string]any{"command": "python train.py --seed " + strconv.Itoa(i), "vram": strconv.Itoa(4+16*(i%2)) + "G", "hold": i%2 == 0, "name": fmt.Sprintf("run-%d", i), "gpus": 1}
	}
	data, err := json.Marshal(specs)
	check(err)
	check(os.WriteFile("bulk.json", data, 0o644))
	var s *service
	served := 0
	b.against("100 of 10,000 jobs in one berth submit -f, of a bare Go program", 3, b.bareGo, func() time.Duration {
		if s != nil {
			s.stop()
		}
		served++
		s = b.serve(fmt.Sprint("bulk", served))
		check(s.command("submit", "-q", "-g", "2", "--", "sleep", "600").Run()) // the others wait
		return s.timed("submit", "-q", "-f", "bulk.json")()
	}, n/100, 0.7)
	defer s.stop()
	b.against("berth list --json of 10,000 jobs, of a bare Go program", 8, b.bareGo, s.timed("list", "--json"), 1, 30)
	check(s.command("cancel", "1").Run())
}

// drain: short jobs two at a time, by xargs, by berth run, and by a daemon, alone
// and with 50,000 other jobs queued.
func (b *bench) drain() {
	const n, others, rounds = 1000, 50_000, 2
	busy := b.serve("crowded")
	defer busy.stop()
	var waiting []api.Spec
	for i := range others {
		waiting = append(waiting, api.Spec{Command: api.Command{Shell: "true # " + strconv.Itoa(i)}, GPUs: "1", Priority: "-1", After: "1:fail"})
	}
	busy.submit(api.Spec{Command: api.Command{Argv: []string{"sleep", "100000"}}, GPUs: "0"})
	busy.submit(waiting...)
	var bare, run, served, crowded time.Duration
	for round := range rounds {
		var lines strings.Builder
		var specs []api.Spec
		for i := range n {
			line := fmt.Sprintf("touch %s-%d-%d", absolute("drained"), round, i)
			fmt.Fprintln(&lines, line)
			specs = append(specs, api.Spec{Command: api.Command{Shell: line}})
		}
		check(os.WriteFile("lines.txt", []byte(lines.String()), 0o644))
		bare += took(func() { check(exec.Command("sh", "-c", "xargs -P2 -I{} sh -c {} <lines.txt").Run()) })
		// A directory of its own each time: a file system that has just deleted
		// thousands of files is slow to create new ones.
		run += took(func() {
			check(b.command("run", "lines.txt", "--sim", "2", "--jobs-per-gpu", "1", "--log-dir", fmt.Sprint("logs", round)).Run())
		})
		quiet := b.serve(fmt.Sprint("quiet", round))
		served += quiet.drain(specs, 0)
		quiet.stop()
		crowded += busy.drain(specs, others)
	}
	check(busy.command("cancel", "1").Run())
	rate := func(took time.Duration) string { return fmt.Sprintf("(%.0f/s)", rounds*n/took.Seconds()) }
	b.more("1,000 touch by berth run, of xargs -P2", rate(run), bare.Seconds()/run.Seconds(), 0.6)
	b.more("1,000 touch by a daemon, of xargs -P2", rate(served), bare.Seconds()/served.Seconds(), 0.6)
	b.more("the same with 50,000 queued, of the daemon alone", rate(crowded), served.Seconds()/crowded.Seconds(), 0.9)
}

// mixed: a hundred clients that list, wait and follow while two submit.
func (b *bench) mixed() {
	alone := b.drainBy(2, 0)
	busy := b.drainBy(2, 100)
	b.less("p99 of all requests of 100 clients while 2 submit, in ms", "", 1000*busy.p99, 20)
	b.more("the drain meanwhile, of the same without them", fmt.Sprintf("(%.1f s)", busy.took.Seconds()), alone.took.Seconds()/busy.took.Seconds(), 0.8)
}

type load struct {
	took time.Duration
	p99  float64 // in seconds
}

func (b *bench) drainBy(submitters, clients int) load {
	const each = 500
	s := b.serve(fmt.Sprint("mixed", clients))
	defer s.stop()
	last := s.submit(api.Spec{Command: api.Command{Shell: "true"}, Hold: "yes"})
	ctx, cancel := context.WithCancel(context.Background())
	var mu sync.Mutex
	var times []time.Duration
	var asking, submitting sync.WaitGroup
	timed := func(f func() error) {
		start := time.Now()
		if err := f(); err == nil {
			mu.Lock()
			times = append(times, time.Since(start))
			mu.Unlock()
		}
	}
	for i := range clients {
		asking.Go(func() {
			own := api.Dial(s.socket)
			defer own.Close()
			switch i % 3 {
			case 0:
				for ctx.Err() == nil {
					timed(func() error {
						_, err := api.Call(ctx, own, api.ListJobs, api.Query{Limit: 50, Reasons: true})
						return err
					})
					time.Sleep(100 * time.Millisecond)
				}
			case 1:
				_, _ = api.Call(ctx, own, api.WaitForJobs, api.WaitRequest{Select: api.Select{Words: []string{last}}, TimeoutS: 60}) // cut off at the end
			default:
				_ = own.Events(ctx, api.EventQuery{Since: -1}, func(api.Event) error { return nil }) // likewise
			}
		})
	}
	start := time.Now()
	for range submitters {
		submitting.Go(func() {
			for range each {
				timed(func() error { s.submit(api.Spec{Command: api.Command{Shell: "true"}}); return nil })
			}
		})
	}
	submitting.Wait()
	s.leftAtMost(1)
	l := load{took: time.Since(start)}
	cancel()
	asking.Wait()
	slices.Sort(times)
	l.p99 = times[len(times)*99/100].Seconds()
	return l
}

// growth: the cost of a job must not depend on the number of finished jobs.
func (b *bench) growth() {
	const n = 4000
	check(os.WriteFile("grow.txt", []byte(strings.Repeat("true\n", n)), 0o644))
	check(b.command("run", "grow.txt", "--sim", "2", "--log-dir", "grow").Run())
	text, err := os.ReadFile("grow/journal.jsonl")
	check(err)
	var ends []time.Time
	for line := range strings.Lines(string(text)) {
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
	stretch := func(ends []time.Time) float64 {
		const size = 200
		var took []time.Duration
		for at := size; at < len(ends); at += size {
			took = append(took, ends[at].Sub(ends[at-size]))
		}
		return median(took).Seconds()
	}
	half := len(ends) / 2
	b.less(fmt.Sprintf("time per job, second half of %d, of the first", n), "", stretch(ends[half:])/stretch(ends[:half]), 1.25)
}

// decide: what a decision costs with 10,000 queued jobs, of sorting as many numbers.
func (b *bench) decide() {
	numbers := make([]float64, 10_000)
	var sorts []time.Duration
	for range 50 {
		for i := range numbers {
			numbers[i] = float64((i * 7919) % len(numbers))
		}
		sorts = append(sorts, took(func() { slices.Sort(numbers) }))
	}
	out, err := exec.Command("go", "test", "berth/internal/sched/sim", "-run", "^$", "-bench", "Decision", "-benchtime", "1x").Output()
	check(err)
	for line := range strings.Lines(string(out)) {
		fields := strings.Fields(line)
		at := slices.Index(fields, "ms-p99")
		if at < 1 {
			continue
		}
		p99, err := strconv.ParseFloat(fields[at-1], 64)
		check(err)
		name, _, _ := strings.Cut(strings.TrimPrefix(fields[0], "Benchmark"), "-")
		b.less("p99 of "+name+", of sorting 10,000 numbers", fmt.Sprintf("(%.2f ms)", p99), p99/1000/quarter(sorts).Seconds(), 10)
	}
}

// peers: task-spooler does the same, where it is installed (apt-get install
// task-spooler).
func (b *bench) peers() {
	tsp, err := exec.LookPath("tsp")
	if err != nil {
		return
	}
	ask := func(args ...string) {
		cmd := exec.Command(tsp, args...)
		cmd.Env = append(os.Environ(), "TS_SOCKET="+absolute("tsp"), "TMPDIR="+absolute("."))
		check(cmd.Run())
	}
	defer ask("-K")
	ask("-S", "2")
	var bare, calls, starts []time.Duration
	for i := range 60 {
		bare = append(bare, b.bareGo())
		calls = append(calls, took(func() { ask("true") }))
		starts = append(starts, untilThere(fmt.Sprint("tsp-", i), func(path string) { ask("touch", path) }))
	}
	const n = 300
	drained := took(func() {
		for range n {
			ask("true")
		}
		ask("-w")
	})
	of := func(times []time.Duration) string {
		return fmt.Sprintf("%.2f", quarter(times).Seconds()/quarter(bare).Seconds())
	}
	b.row("task-spooler: a submit, of a bare Go program", of(calls), "", true)
	b.row("task-spooler: idle submit to running, of a bare Go program", of(starts), "", true)
	b.row("task-spooler: separate submits, drained", fmt.Sprintf("%.0f/s", n/drained.Seconds()), "", true)
}
