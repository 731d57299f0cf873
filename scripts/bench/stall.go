package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"syscall"
	"time"

	"berth/internal/api"
)

// The load of stall: one user lists a long queue with reasons on many
// connections.
const (
	stallQueued = 10_000
	stallConns  = 16
)

// stall: on a shared daemon, another user's requests while one user lists a long
// queue without a pause, compared to the same requests without that.
func (b *bench) stall() {
	if os.Getuid() != 0 {
		b.row("another user's jobs while one user lists a long queue", "needs root", "", true)
		return
	}
	s := b.serveShared("stall")
	defer s.stop()
	lister := s.lister()
	defer lister.end()
	alone := s.served("alone")
	cpu := cpuOf(s.cmd.Process.Pid)
	lister.begin()
	began := time.Now()
	busy := s.served("busy")
	span := time.Since(began)
	cpu = cpuOf(s.cmd.Process.Pid) - cpu
	lists := lister.lists()
	p99 := func(times []time.Duration) float64 { slices.Sort(times); return times[(len(times)-1)*99/100].Seconds() }
	start, startAlone := p99(busy.starts), p99(alone.starts)
	answer, answerAlone := p99(busy.answers), p99(alone.answers)
	b.row(fmt.Sprintf("%d connections list %d jobs, lists per second", stallConns, stallQueued), fmt.Sprintf("%.1f/s", float64(lists)/span.Seconds()), "", true)
	b.row("the daemon's CPU time meanwhile, cores", fmt.Sprintf("%.2f", cpu.Seconds()/span.Seconds()), "", true)
	b.row(fmt.Sprintf("another user's submit to start, p99 (median %.3f s), to alone", median(busy.starts).Seconds()),
		fmt.Sprintf("%.3f s, %.1f x", start, start/startAlone), "<= 0.5 s", start <= 0.5)
	b.row(fmt.Sprintf("another user's status, p99 (median %.1f ms), to alone", 1000*median(busy.answers).Seconds()),
		fmt.Sprintf("%.3f s, %.1f x", answer, answer/answerAlone), "<= 0.2 s", answer <= 0.2)
}

// serveShared starts a daemon for all users, as root.
func (b *bench) serveShared(name string) *service {
	check(os.Chmod(".", 0o755))
	check(os.Mkdir(name, 0o755))
	dir, err := filepath.Abs(name)
	check(err)
	config := filepath.Join(dir, "config.toml")
	check(os.WriteFile(config, []byte("[limits]\nqueued_jobs = 200000\ngpus = 2\n"), 0o644))
	s := &service{b: b, socket: filepath.Join(dir, "run", "s")}
	s.cmd = b.command("serve", "--sim", "2", "--state-dir", filepath.Join(dir, "state"), "--socket", s.socket, "--config", config)
	check(s.cmd.Start())
	s.client = api.Dial(s.socket)
	s.answers()
	return s
}

// times are those of one user's requests.
type times struct{ starts, answers []time.Duration }

// served submits jobs that need no GPU, one after another, and asks for the
// status in between, for a hundred times or a minute.
func (s *service) served(name string) times {
	var t times
	for began := time.Now(); len(t.starts) < 100 && time.Since(began) < time.Minute; {
		t.starts = append(t.starts, untilThere(fmt.Sprintf("%s-%d", name, len(t.starts)), func(path string) {
			s.submit(api.Spec{Command: api.Command{Argv: []string{"/usr/bin/touch", path}}, GPUs: "0"})
		}))
		for range 5 {
			t.answers = append(t.answers, took(func() { _, err := s.client.Status(context.Background()); check(err) }))
		}
	}
	return t
}

// lister is another user in a process of its own.
type lister struct {
	cmd *exec.Cmd
	in  io.WriteCloser
	out *bufio.Reader
}

const listWord = "__list"

// lister submits the long queue as another user.
func (s *service) lister() *lister {
	nobody, err := user.Lookup("nobody")
	check(err)
	uid, _ := strconv.ParseUint(nobody.Uid, 10, 32)
	gid, _ := strconv.ParseUint(nobody.Gid, 10, 32)
	l := &lister{cmd: exec.Command("/proc/self/exe", listWord, s.socket)}
	l.cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}}
	l.cmd.Stderr = os.Stderr
	l.in, err = l.cmd.StdinPipe()
	check(err)
	out, err := l.cmd.StdoutPipe()
	check(err)
	l.out = bufio.NewReader(out)
	check(l.cmd.Start())
	l.heard()
	return l
}

func (l *lister) heard() string {
	line, err := l.out.ReadString('\n')
	check(err)
	return line[:len(line)-1]
}

func (l *lister) begin() { check(l.tell()); l.heard() }

// lists ends the lists and returns how many there were.
func (l *lister) lists() int {
	check(l.tell())
	n, err := strconv.Atoi(l.heard())
	check(err)
	return n
}

func (l *lister) tell() error {
	_, err := io.WriteString(l.in, "\n")
	return err
}

func (l *lister) end() {
	check(l.in.Close())
	check(l.cmd.Wait())
}

// listMain is the other user: it submits, lists between two lines of its input,
// and cancels what it submitted.
func listMain(socket string) {
	ctx, client, in := context.Background(), api.Dial(socket), bufio.NewReader(os.Stdin)
	submit := func(specs ...api.Spec) {
		_, err := client.Submit(ctx, api.SubmitRequest{Jobs: specs, Dir: "/tmp", Environ: []string{"PATH=/usr/bin:/bin"}})
		check(err)
	}
	next := func() error { _, err := in.ReadString('\n'); return err }
	submit(api.Spec{Command: api.Command{Argv: []string{"sleep", "6000"}}, GPUs: "2"})
	specs := make([]api.Spec, stallQueued)
	for i := range specs {
		specs[i] = api.Spec{
			Command: api.Command{Shell: fmt.Sprintf("python train.py --model m%d --seed %d", i%100, i)},
			VRAM:    api.Text(fmt.Sprintf("%dM", 15000+i%300)), Timeout: api.Text(fmt.Sprintf("%dm", 10+i%50)),
		}
	}
	submit(specs...)
	fmt.Println("queued")
	check(next())
	listing, stop := context.WithCancel(ctx)
	var lists sync.WaitGroup
	counts := make([]int, stallConns)
	first := make(chan struct{}, stallConns)
	for i := range counts {
		lists.Go(func() {
			own := &http.Transport{DialContext: func(context.Context, string, string) (net.Conn, error) { return net.Dial("unix", socket) }}
			defer own.CloseIdleConnections()
			for listing.Err() == nil {
				if err := list(listing, own); listing.Err() == nil {
					check(err)
					counts[i]++
				}
				select {
				case first <- struct{}{}:
				default:
				}
			}
		})
	}
	<-first
	fmt.Println("listing")
	check(next())
	stop()
	lists.Wait()
	sum := 0
	for _, n := range counts {
		sum += n
	}
	fmt.Println(sum)
	for next() == nil {
	}
	none := 0.0
	_, err := client.Act(ctx, api.ActRequest{Action: api.ActCancel, Select: api.Select{All: true}, GraceS: &none})
	check(err)
}

// list reads a page and throws it away: parsing it would slow the load down.
func list(ctx context.Context, over *http.Transport) error {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, fmt.Sprintf("http://berth/v1/jobs?limit=%d&reasons=true&order=true", stallQueued), nil)
	if err != nil {
		return err
	}
	reply, err := over.RoundTrip(r)
	if err != nil {
		return err
	}
	defer reply.Body.Close()
	if reply.StatusCode != http.StatusOK {
		return fmt.Errorf("list: %s", reply.Status)
	}
	_, err = io.Copy(io.Discard, reply.Body)
	return err
}
