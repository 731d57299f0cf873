package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"berth/internal/api"
)

// daemon is the berth serve of one check, with directories of its own.
type daemon struct {
	t      *trial
	socket string
	state  string
	env    []string
	flags  []string
	client *api.Client
	raw    *http.Client

	cmd    *exec.Cmd
	exited chan struct{}
}

// serve starts a daemon for this check: shared if we are root, otherwise
// private. It uses only the GPU of this run.
func (t *trial) serve(ctx context.Context, env []string, flags ...string) (*daemon, error) {
	name := "d" + strconv.Itoa(len(t.daemons))
	d := &daemon{
		t: t, socket: filepath.Join(t.dir, name+".sock"), state: filepath.Join(t.dir, name), env: env,
		flags: append([]string{"serve", "--idle-exit", "2m"}, flags...),
	}
	config := filepath.Join(t.dir, name+".toml")
	if err := os.WriteFile(config, nil, 0o644); err != nil {
		return nil, fmt.Errorf("write a config: %w", err)
	}
	d.flags = append(d.flags, "--config", config, "--state-dir", d.state, "--socket", d.socket)
	if t.Sim {
		d.flags = append(d.flags, "--sim", "1", "--sim-vram", strconv.Itoa(simTotalMiB), "--poll", "0.1")
	}
	d.client = api.Dial(d.socket)
	d.raw = &http.Client{Timeout: 30 * time.Second, Transport: &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "unix", d.socket)
		},
	}}
	t.daemons = append(t.daemons, d)
	t.later(d.stop)
	return d, d.start(ctx)
}

// onCard is a daemon that uses only the GPU of this run.
func (t *trial) onCard(ctx context.Context, flags ...string) (*daemon, error) {
	if !t.Sim {
		flags = append(flags, "--gpus", strconv.Itoa(t.Card.Index))
	}
	return t.serve(ctx, nil, flags...)
}

// start runs it, for the first time or again, and waits until it answers and
// has read its GPUs.
func (d *daemon) start(ctx context.Context) error {
	out, err := os.OpenFile(d.state+".out", os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return fmt.Errorf("save the daemon's output: %w", err)
	}
	defer out.Close()
	d.cmd = exec.Command(d.t.program("berth"), d.flags...)
	d.cmd.Dir, d.cmd.Stdout, d.cmd.Stderr = d.t.dir, out, out
	d.cmd.Env = append(d.t.environ(), d.env...)
	d.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // Ctrl-C is for this program alone
	if err := d.cmd.Start(); err != nil {
		return fmt.Errorf("start the daemon: %w", err)
	}
	exited := make(chan struct{})
	d.exited = exited
	cmd := d.cmd
	go func() {
		_ = cmd.Wait()
		close(exited)
	}()
	return pollFor(ctx, 30*time.Second, "the daemon to read its GPUs", func() (bool, error) {
		select {
		case <-exited:
			return false, errors.New("the daemon ended at once: " + d.lastWords())
		default:
		}
		cards, err := d.cards(ctx)
		return err == nil && len(cards) > 0 && !cards[0].Stale, nil
	})
}

func (d *daemon) pid() int { return d.cmd.Process.Pid }

// kill kills the daemon with SIGKILL.
func (d *daemon) kill() {
	_ = syscall.Kill(d.pid(), syscall.SIGKILL)
	<-d.exited
}

// stop cancels all jobs and stops the daemon, with a context of its own,
// because the check's may have ended.
func (d *daemon) stop() {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	now := 0.0
	all := api.Select{All: true}
	if d.t.credential != nil {
		all.User = d.t.User // all are one's own, unless one says whose
	}
	if _, err := api.Call(ctx, d.client, api.Act, api.ActRequest{Action: api.ActCancel, Select: all, GraceS: &now}); err == nil {
		_ = poll(ctx, 50*time.Millisecond, "the jobs to end", func() (bool, error) {
			status, err := api.Call(ctx, d.client, api.GetStatus, api.None{})
			return err != nil || status.Counts["running"]+status.Counts["queued"] == 0, nil
		})
	}
	d.client.Close()
	d.raw.CloseIdleConnections()
	if d.cmd.Process == nil {
		return
	}
	_ = d.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-d.exited:
	case <-time.After(10 * time.Second):
		d.kill()
	}
}

// berth runs a berth command with this daemon, as the jobs' user.
func (d *daemon) berth(ctx context.Context, args ...string) (string, error) {
	cmd := d.t.command(ctx, d.t.program("berth"), args...)
	cmd.Env = append(cmd.Env, "BERTH_SOCKET="+d.socket)
	var errText strings.Builder
	cmd.Stderr = &errText
	text, err := cmd.Output()
	if err != nil {
		said := strings.TrimSpace(errText.String())
		return string(text), &refusal{what: strings.Join(args[:min(len(args), 2)], " "), said: strings.ReplaceAll(said, "\n", "; "), err: err}
	}
	return string(text), nil
}

// refusal is a command of berth that did not exit 0.
type refusal struct {
	what, said string
	err        error
}

func (r *refusal) Error() string { return fmt.Sprintf("berth %s: %v: %s", r.what, r.err, r.said) }

func (r *refusal) Unwrap() error { return r.err }

// unknown turns the refusal of a flag, value or command that this berth does
// not have into a skip.
func unknown(err error) error {
	var r *refusal
	if errors.As(err, &r) && (strings.Contains(r.said, "unknown flag") || strings.Contains(r.said, "unknown command") || strings.Contains(r.said, ": expected ")) {
		return skipf("not supported by this berth: %s", r.said)
	}
	return err
}

// known is must for what not every berth has.
func known[T any](value T, err error) T {
	need(unknown(err))
	return value
}

// get sends an API request, as any program would.
func (d *daemon) get(ctx context.Context, path string, value any) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://berth"+path, nil)
	if err != nil {
		return err
	}
	reply, err := d.raw.Do(request)
	if err != nil {
		return fmt.Errorf("get %s: %w", path, err)
	}
	defer reply.Body.Close()
	data, err := io.ReadAll(io.LimitReader(reply.Body, 64<<20))
	if err != nil || reply.StatusCode != http.StatusOK {
		return fmt.Errorf("get %s: status %d, %.200s, %w", path, reply.StatusCode, data, err)
	}
	return json.Unmarshal(data, value)
}

// lastWords is the end of the daemon's output.
func (d *daemon) lastWords() string {
	text, _ := os.ReadFile(d.state + ".out")
	return strings.ReplaceAll(strings.TrimSpace(string(text[max(0, len(text)-400):])), "\n", "; ")
}

// logTail is the end of the daemons' logs of this check.
func (t *trial) logTail() string {
	var b strings.Builder
	for _, d := range t.daemons {
		for _, path := range []string{d.state + ".out", filepath.Join(d.state, "berth.log")} {
			text, _ := os.ReadFile(path)
			text = text[max(0, len(text)-4000):]
			if len(text) > 0 {
				fmt.Fprintf(&b, "%s:\n%s\n", path, text)
			}
		}
	}
	return b.String()
}
