package siege

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"berth/internal/api"
	"berth/internal/job"
	"berth/internal/tests/testkit"
)

// Taking all there is, so that nothing is left for others.
var floodAttacks = []attack{
	{"a gigabyte in one request", func(t *testing.T, c *camp) {
		for path, head := range map[string]string{"/v1/jobs": `{"jobs":[{"command":"`, "/v1/jobs/act": `{"action":"`, "/v1/tokens": `{"name":"`} {
			body := &endless{head: head}
			body.left.Store(1 << 30)
			r, err := c.cat.ask("POST", path, body)
			if err == nil && r.status != http.StatusRequestEntityTooLarge {
				t.Errorf("%s: status %d: %.200s", path, r.status, r.body)
			}
			if taken := 1<<30 - body.left.Load(); taken > 80<<20 {
				t.Errorf("%s: %d MiB were taken", path, taken>>20)
			}
		}
	}},
	{"five thousand idle connections", func(t *testing.T, c *camp) {
		var conns []net.Conn
		defer func() {
			for _, conn := range conns {
				conn.Close()
			}
		}()
		before, most := c.openFiles(t), 0
		for i := range 5000 {
			conn, err := c.cat.dial()
			if err != nil {
				break
			}
			conns = append(conns, conn)
			if i%50 == 0 {
				most = max(most, c.openFiles(t)-before)
			}
		}
		// They are taken in turn: with the last of them, it has seen them all.
		last := conns[len(conns)-1]
		testkit.Eventually(t, "the last connection is hung up on", func() bool {
			most = max(most, c.openFiles(t)-before)
			testkit.Must(t, last.SetReadDeadline(time.Now().Add(time.Millisecond)))
			_, err := last.Read(make([]byte, 1))
			var late net.Error
			return !errors.As(err, &late) || !late.Timeout()
		})
		t.Logf("%d of %d connections were open at a time", most, len(conns))
		if most > 600 { // some 260 are allowed, and jobs need files, too
			t.Errorf("%d of %d connections were open at a time", most, len(conns))
		}
		c.othersAreServed(t)
	}},
	{"a thousand connections by TCP without a token", func(t *testing.T, c *camp) {
		token := c.token(t, c.ann, 0)
		before := c.openFiles(t)
		for range 1000 {
			conn, err := net.Dial("tcp", c.tcp)
			testkit.Must(t, err)
			defer conn.Close()
		}
		// Each of them was accepted before the next caller is.
		for range 3 {
			if r := c.remote(t, "GET", "/v1/status", token.Secret, nil); r.status != http.StatusOK {
				t.Errorf("status %d: %s", r.status, r.body)
			}
		}
		testkit.Eventually(t, "the oldest are closed", func() bool { return c.openFiles(t)-before < 600 })
	}},
	{"a thousand streams that nobody reads", func(t *testing.T, c *camp) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		began, refused, start := 0, 0, time.Now()
		for range 1000 {
			r, err := http.NewRequestWithContext(ctx, "GET", "http://berth/v1/events?since=0", nil)
			testkit.Must(t, err)
			answer, err := c.cat.http.Do(r)
			if err != nil {
				refused++
				continue
			}
			if answer.StatusCode != http.StatusOK {
				refused++
				answer.Body.Close()
				continue
			}
			defer answer.Body.Close()
			began++
		}
		// The daemon cuts off a stream that nobody has read for 30 seconds, so another may begin.
		if most := 64 * (1 + int(time.Since(start)/(30*time.Second))); began > most || refused < 1000-most {
			t.Errorf("%d began, %d were refused", began, refused)
		}
		c.othersAreServed(t)
	}},
	{"logs followed and never read", func(t *testing.T, c *camp) {
		id := c.cat.submit(t, shell("yes | head -c 50000000; sleep 1000"))[0]
		defer c.cat.cancel(t, id)
		c.cat.running(t, id)
		for range 100 {
			conn, err := c.cat.dial()
			testkit.Must(t, err)
			defer conn.Close()
			fmt.Fprintf(conn, "GET /v1/jobs/%s/log?follow=1 HTTP/1.1\r\nHost: berth\r\n\r\n", id)
		}
		c.othersAreServed(t)
	}},
	{"waits for everything", func(t *testing.T, c *camp) {
		var group sync.WaitGroup
		for range 200 {
			group.Go(func() {
				_, _ = c.cat.ask("POST", "/v1/jobs/wait", spec{"select": spec{"ids": []string{"0-999999999999999"}, "user": "*"}, "timeout_s": 2}) // most are refused
			})
		}
		c.othersAreServed(t)
		group.Wait()
	}},
	{"the queue, up to the user's limit", func(t *testing.T, c *camp) {
		hold := make([]spec, 500)
		for i := range hold {
			hold[i] = shell("true").with("hold", "yes").with("priority", 100)
		}
		taken := 0
		for range 10 {
			r := c.cat.mustAsk(t, "POST", "/v1/jobs", spec{"jobs": hold})
			if r.status == http.StatusOK {
				taken += len(hold)
			} else if r.status != http.StatusTooManyRequests && r.status != http.StatusRequestEntityTooLarge {
				t.Errorf("status %d: %s", r.status, r.body)
			}
		}
		if taken > queuedJobs {
			t.Errorf("%d jobs were taken", taken)
		}
		c.othersAreServed(t)
		c.mustBeDenied(t, c.cat, "submit", "")
		c.cat.act(t, "cancel", map[string]any{"all": true})
	}},
	{"lists of a long queue with every reason, without end", func(t *testing.T, c *camp) {
		all := map[string]any{"all": true}
		busy := c.cat.submit(t, spec{"command": "sleep 1000", "gpus": "2"})[0]
		defer c.cat.act(t, "cancel", all)
		c.cat.running(t, busy)
		waits := make([]spec, queuedJobs-100)
		for i := range waits {
			waits[i] = spec{"command": fmt.Sprintf("true %d", i), "gpus": "1", "vram": fmt.Sprintf("%dM", 5000+i%300), "timeout": fmt.Sprintf("%dm", 10+i%50)}
		}
		c.cat.submit(t, waits...)
		alone := c.ann.begins(t, 10)
		lists, end := c.cat.listsWithoutEnd(t, "/v1/jobs?limit=10000&reasons=true&order=true")
		flooded := c.ann.begins(t, 10)
		end()
		t.Logf("submit to start: median %s, most %s; meanwhile %d lists: median %s, most %s", alone[5], alone[9], lists.Load(), flooded[5], flooded[9])
	}},
	{"lists of a long history, without end", func(t *testing.T, c *camp) {
		waits := make([]spec, queuedJobs-100)
		for i := range waits {
			waits[i] = shell(fmt.Sprintf("true %d", i)).with("hold", "yes")
		}
		c.cat.submit(t, waits...)
		c.cat.act(t, "cancel", map[string]any{"all": true})
		id := c.ann.submit(t, spec{"command": "true", "gpus": "0"})[0]
		c.ann.ended(t, id)
		lists, end := c.cat.listsWithoutEnd(t, "/v1/jobs?limit=10000&over=true&reasons=true&order=true")
		defer end()
		const rounds = 20
		before := lists.Load()
		for range rounds {
			var waited api.WaitReply
			c.ann.mustAsk(t, "POST", "/v1/jobs/wait", spec{"select": spec{"ids": []string{id}}, "timeout_s": 60}).into(t, &waited)
			var page api.JobPage
			c.ann.mustAsk(t, "GET", "/v1/jobs?reasons=true&user="+c.ann.name, nil).into(t, &page)
			if !waited.Done {
				t.Errorf("job %s has not ended", id)
			}
		}
		meanwhile := lists.Load() - before
		t.Logf("%d waits and lists; meanwhile %d lists of the history", rounds, meanwhile)
		if meanwhile > rounds { // in a line with them, each round would wait for three
			t.Errorf("%d lists of the history were made before %d short reads were answered", meanwhile, 2*rounds)
		}
	}},
	{"changes to one large job, without end", func(t *testing.T, c *camp) {
		id := c.cat.submit(t, spec{"command": strings.Split("/bin/true"+strings.Repeat(" "+strings.Repeat("a", 100_000), 9), " "), "gpus": "0.004", "hold": "yes"})[0]
		before := c.stored(t)
		for i := range 50 {
			c.cat.act(t, []string{"release", "hold"}[i%2], map[string]any{"ids": []string{id}})
		}
		grown := c.stored(t) - before
		t.Logf("50 changes: the store grew by %d KiB", grown>>10)
		if grown > 64<<20 {
			t.Errorf("50 changes of one job made the store grow by %d MiB", grown>>20)
		}
		c.cat.cancel(t, id)
	}},
	{"hold and release of many large jobs, without end", func(t *testing.T, c *camp) {
		all := map[string]any{"all": true}
		defer c.cat.act(t, "cancel", all)
		bytes := 0
		for i := range 60 { // as many as the daemon takes
			r := c.cat.mustAsk(t, "POST", "/v1/jobs", spec{"jobs": []spec{large(i)}, "dir": "/"})
			if r.status == http.StatusTooManyRequests {
				break
			}
			if bytes += largeBytes; r.status != http.StatusOK {
				t.Fatalf("status %d: %.200s", r.status, r.body)
			}
		}
		if bytes < 16<<20 || bytes > 32<<20 {
			t.Errorf("%d MiB of text were taken", bytes>>20)
		}
		before := c.stored(t)
		var acts atomic.Int64
		var group sync.WaitGroup
		over := make(chan struct{})
		group.Go(func() {
			for {
				for _, action := range []string{"release", "hold"} {
					select {
					case <-over:
						return
					default:
					}
					c.cat.act(t, action, all)
					acts.Add(1)
				}
			}
		})
		c.othersAreServed(t)
		testkit.Eventually(t, "all jobs were changed twenty times", func() bool { return acts.Load() >= 20 })
		c.othersAreServed(t)
		close(over)
		group.Wait()
		grown := c.stored(t) - before
		t.Logf("%d changes of %d MiB: the store grew by %d KiB", acts.Load(), bytes>>20, grown>>10)
		if grown > 32<<20 {
			t.Errorf("%d changes of %d MiB made the store grow by %d MiB", acts.Load(), bytes>>20, grown>>20)
		}
	}},
	{"connections that vanish in the middle", func(t *testing.T, c *camp) {
		for i := range 300 {
			conn, err := c.cat.dial()
			testkit.Must(t, err)
			request := "POST /v1/jobs HTTP/1.1\r\nHost: berth\r\nContent-Length: 100\r\n\r\n" + `{"jobs":[{"command":"true"`
			_, _ = io.WriteString(conn, request[:i%len(request)]) // it vanishes anyway
			conn.Close()
		}
		c.othersAreServed(t)
	}},
	{"tokens", func(t *testing.T, c *camp) {
		made := 0
		for range 60 {
			if r := c.cat.mustAsk(t, "POST", "/v1/tokens", spec{}); r.status == http.StatusOK {
				made++
			}
		}
		if made > 20 {
			t.Errorf("%d tokens", made)
		}
	}},
}

// listsWithoutEnd asks for a list on 16 connections, and again when it comes.
// Every one of them has come once.
func (p *person) listsWithoutEnd(t *testing.T, path string) (lists *atomic.Int64, end func()) {
	t.Helper()
	lists = new(atomic.Int64)
	var group sync.WaitGroup
	over := make(chan struct{})
	for range 16 {
		group.Go(func() {
			for {
				select {
				case <-over:
					return
				default:
				}
				if r, err := p.ask("GET", path, nil); err != nil || r.status != http.StatusOK {
					t.Errorf("status %d: %v", r.status, err)
					return
				}
				lists.Add(1)
			}
		})
	}
	testkit.Eventually(t, "every connection lists", func() bool { return lists.Load() >= 16 })
	return lists, func() { close(over); group.Wait() }
}

// large is a held job with as much text as one may have, unlike any other.
func large(n int) spec {
	words := []string{"/bin/true", fmt.Sprint(n)}
	for range 7 {
		words = append(words, strings.Repeat("a", largeBytes/7))
	}
	return spec{"command": words, "gpus": "0", "hold": "yes"}
}

const largeBytes = 7 * 124_000

// begins submits jobs that need no card, one after another, and returns how long
// each took to start, the shortest first.
func (p *person) begins(t *testing.T, jobs int) []time.Duration {
	t.Helper()
	took := make([]time.Duration, jobs)
	for i := range took {
		asked := time.Now()
		v := p.ended(t, p.submit(t, spec{"command": "true", "gpus": "0"})[0])
		if v.Outcome == nil || *v.Outcome != job.OK || v.StartedAt == nil {
			t.Fatalf("job %s ended %s", v.ID, text(v.Outcome))
		}
		took[i] = v.StartedAt.Sub(asked).Round(time.Millisecond)
	}
	slices.Sort(took)
	return took
}

// endless is a body that goes on and on.
type endless struct {
	head string
	left atomic.Int64 // a request may be over before its body is
}

// length is announced, and sent as long as somebody takes it.
func (e *endless) length() int64 { return int64(len(e.head)) + e.left.Load() }

func (e *endless) Read(p []byte) (int, error) {
	if e.head != "" {
		n := copy(p, e.head)
		e.head = e.head[n:]
		return n, nil
	}
	if e.left.Load() <= 0 {
		return 0, io.EOF
	}
	n := int(min(int64(len(p)), e.left.Load()))
	for i := range n {
		p[i] = 'a'
	}
	e.left.Add(-int64(n))
	return n, nil
}

// othersAreServed checks that a flood is its user's own trouble: others
// submit, run and read.
func (c *camp) othersAreServed(t *testing.T) {
	t.Helper()
	for _, p := range []*person{c.ann, c.bob} {
		id := p.submit(t, shell("echo served"))[0]
		if v := p.ended(t, id); v.Outcome == nil || *v.Outcome != job.OK || p.log(t, id).body != "served\n" {
			t.Errorf("%s's job ended %s", p.name, text(v.Outcome))
		}
	}
}

// openFiles counts the files and connections that the daemon has open.
func (c *camp) openFiles(t *testing.T) int {
	t.Helper()
	files, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", c.daemon.cmd.Process.Pid))
	testkit.Must(t, err)
	return len(files)
}

// mustBeSmall bounds what all of it together made of the daemon.
func (c *camp) mustBeSmall(t *testing.T) {
	t.Helper()
	pid := c.daemon.cmd.Process.Pid
	var peakKiB int
	for line := range strings.Lines(procFile(pid, "status")) {
		if _, err := fmt.Sscanf(line, "VmHWM: %d kB", &peakKiB); err == nil {
			break
		}
	}
	t.Logf("the daemon had %d MiB at most; its store has %d MiB", peakKiB>>10, c.stored(t)>>20)
	if peakKiB > 700<<10 {
		t.Errorf("the daemon had %d MiB", peakKiB>>10)
	}
}

// Callers that take their time.
var slowAttacks = []linger{
	{"headers, a byte at a time", func(t *testing.T, c *camp) func(*testing.T) {
		return c.dribble(t, "GET /v1/status HTTP/1.1\r\nHost: berth\r\nX-A: ")
	}},
	{"a body, a byte at a time", func(t *testing.T, c *camp) func(*testing.T) {
		return c.dribble(t, "POST /v1/jobs HTTP/1.1\r\nHost: berth\r\nContent-Length: 100000\r\n\r\n{")
	}},
	{"a body for a request that takes none", func(t *testing.T, c *camp) func(*testing.T) {
		return c.dribble(t, "GET /v1/status HTTP/1.1\r\nHost: berth\r\nContent-Length: 100000\r\n\r\n{")
	}},
	{"half a frame for a terminal", func(t *testing.T, c *camp) func(*testing.T) {
		id := c.dan.submit(t, shell("sleep 25").with("pty", "yes"))[0]
		c.dan.running(t, id)
		conn := c.attach(t, c.dan, id)
		_, err := io.WriteString(conn, "\x01i\x00\x7f\xff\xff")
		testkit.Must(t, err)
		end := func(t *testing.T) {
			conn.Close()
			c.dan.cancel(t, id)
			if v := c.dan.ended(t, id); !v.State.Terminal() {
				t.Errorf("the job is %s", v.State)
			}
		}
		t.Cleanup(func() { end(t) }) // also where only some attacks are made
		return end
	}},
}

// dribble sends a beginning and then a byte now and then, for ever. The daemon
// has to give up on it.
func (c *camp) dribble(t *testing.T, beginning string) func(*testing.T) {
	t.Helper()
	conn, err := c.dan.dial()
	testkit.Must(t, err)
	begun, over := time.Now(), make(chan time.Duration, 1)
	_, err = io.WriteString(conn, beginning)
	testkit.Must(t, err)
	go func() {
		tick := time.NewTicker(500 * time.Millisecond)
		defer tick.Stop()
		for range tick.C {
			if _, err := conn.Write([]byte("a")); err != nil {
				over <- time.Since(begun)
				return
			}
		}
	}()
	go func() { _, _ = io.Copy(io.Discard, bufio.NewReader(conn)) }() // an answer is welcome
	return func(t *testing.T) {
		defer conn.Close()
		select {
		case took := <-over:
			t.Logf("the daemon listened for %s", took.Round(time.Millisecond))
		case <-time.After(testkit.Patience):
			t.Error("the daemon still listens")
		}
	}
}
