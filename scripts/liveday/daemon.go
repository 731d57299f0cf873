package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	"berth/internal/api"
	"berth/internal/job"
)

// users submit the jobs: every Linux has these two.
var users = [...]string{"daemon", "nobody"}

// credential is what a command of theirs runs with.
func credential(name string) (*syscall.Credential, error) {
	u, err := user.Lookup(name)
	if err != nil {
		return nil, err
	}
	uid, errUID := strconv.ParseUint(u.Uid, 10, 32)
	gid, errGID := strconv.ParseUint(u.Gid, 10, 32)
	return &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}, errors.Join(errUID, errGID)
}

// daemon is the berth serve of the day.
type daemon struct {
	berth, self, dir, socket string
	cmd                      *exec.Cmd
	client                   *api.Client
	gpus                     int
}

func serve(ctx context.Context, berth, dir string, gpus int) (*daemon, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	bin := filepath.Join(dir, "bin")
	d := &daemon{berth: filepath.Join(bin, "berth"), gpus: gpus, dir: dir, socket: filepath.Join(dir, "s"), self: filepath.Join(bin, "liveday")}
	// Two users run them, who may not be able to get at the originals.
	err = os.Mkdir(bin, 0o755)
	for to, from := range map[string]string{d.self: self, d.berth: berth, d.berth + "-main": berth + "-main", d.berth + "-keep": berth + "-keep"} {
		program, errRead := os.ReadFile(from)
		err = errors.Join(err, errRead, os.WriteFile(to, program, 0o755))
	}
	for _, name := range users { // checkpoints are in the directory of the job
		work := filepath.Join(dir, name)
		if err = errors.Join(err, os.Mkdir(work, 0o777), os.Chmod(work, 0o777)); err != nil {
			return nil, err
		}
	}
	config := filepath.Join(dir, "config.toml")
	// A replay knows no limits of users.
	text := fmt.Sprintf("[limits]\ngpus = 0\nrunning_jobs = 0\n[scheduling]\nmin_run = %q\npark_memory = \"%dG\"\n", minRun.String(), hostCards*cardGiB)
	if err = errors.Join(err, os.WriteFile(config, []byte(text), 0o644)); err != nil {
		return nil, err
	}
	out, err := os.Create(filepath.Join(dir, "serve.out"))
	if err != nil {
		return nil, err
	}
	defer out.Close()
	d.cmd = exec.Command(d.berth, "serve", "--sim", strconv.Itoa(gpus), "--sim-vram", fmt.Sprintf("%dG", cardGiB), "--poll", "0.1",
		"--config", config, "--state-dir", filepath.Join(dir, "state"), "--socket", d.socket)
	d.cmd.Stdout, d.cmd.Stderr = out, out
	d.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // Ctrl-C is for this program alone
	if err := d.cmd.Start(); err != nil {
		return nil, err
	}
	d.client = api.Dial(d.socket)
	for begun := time.Now(); ; time.Sleep(20 * time.Millisecond) {
		_, err := api.Call(ctx, d.client, api.GetStatus, api.None{})
		if err == nil {
			return d, nil
		}
		if time.Since(begun) > 20*time.Second || ctx.Err() != nil {
			d.stop()
			return nil, fmt.Errorf("the daemon does not answer: %w", err)
		}
	}
}

// stop ends the daemon and its jobs.
func (d *daemon) stop() {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	now := 0.0
	_, _ = api.Call(ctx, d.client, api.Act, api.ActRequest{Action: api.ActCancel, Select: api.Select{All: true, User: "*"}, GraceS: &now})
	for ctx.Err() == nil {
		if left, err := d.left(ctx); err != nil || left == 0 {
			break
		}
		time.Sleep(50 * time.Millisecond)
	}
	d.client.Close()
	_ = d.cmd.Process.Signal(syscall.SIGTERM)
	_ = d.cmd.Wait()
}

// warmUp parks a job some times: the daemon learns how fast that is here, and a replay
// plans with what it knew in the end.
func (d *daemon) warmUp(ctx context.Context) error {
	const moves = 12
	if err := d.run(ctx, "submit", "--quiet", "--preemptible=park", "--name", "warm-up", "--", d.berth, "simjob", "--vram", fmt.Sprintf("%dG", cardGiB-2), "--hold", "5"); err != nil {
		return err
	}
	for begun := time.Now(); ; time.Sleep(20 * time.Millisecond) {
		gpus, err := api.Call(ctx, d.client, api.ListGPUs, api.None{})
		if err != nil || time.Since(begun) > 20*time.Second {
			return fmt.Errorf("the first job has no memory: %w", err)
		}
		if gpus[0].UsedMiB > cardGiB<<9 {
			break
		}
	}
	for range moves {
		if err := errors.Join(d.run(ctx, "park", "1"), d.run(ctx, "unpark", "1")); err != nil {
			return err
		}
	}
	return d.drained(ctx)
}

// run runs a command of berth, as root.
func (d *daemon) run(ctx context.Context, args ...string) error {
	cmd := exec.CommandContext(ctx, d.berth, args...)
	cmd.Env = []string{"BERTH_SOCKET=" + d.socket, "PATH=/usr/bin:/bin", "HOME=/"}
	if text, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("berth %s: %w: %s", args[0], err, text)
	}
	return nil
}

// submit submits the jobs at their times.
func (d *daemon) submit(ctx context.Context, jobs []liveJob) error {
	begun := time.Now()
	for i := range jobs {
		j := &jobs[i]
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(time.Until(begun.Add(j.at))):
		}
		cmd := exec.CommandContext(ctx, d.berth, j.args(d.berth, d.self, fmt.Sprintf("j%d", i))...)
		cmd.Dir = filepath.Join(d.dir, users[j.user])
		cmd.Env = []string{"BERTH_SOCKET=" + d.socket, "PATH=/usr/bin:/bin", "HOME=/"}
		who, err := credential(users[j.user])
		if err != nil {
			return err
		}
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: who}
		var said bytes.Buffer
		cmd.Stderr = &said
		if err := cmd.Run(); err != nil {
			return fmt.Errorf("submit: %w: %s", err, said.String())
		}
	}
	return nil
}

// left is how many jobs have not ended.
func (d *daemon) left(ctx context.Context) (int, error) {
	s, err := api.Call(ctx, d.client, api.GetStatus, api.None{})
	if err != nil {
		return 0, err
	}
	return s.Counts[string(job.Queued)] + s.Counts[string(job.Running)] + s.Counts[string(job.Parked)], nil
}

func (d *daemon) drained(ctx context.Context) error {
	for {
		left, err := d.left(ctx)
		if err != nil || left == 0 {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(200 * time.Millisecond):
		}
	}
}

// output is what a command of berth prints, as JSON.
func (d *daemon) output(ctx context.Context, to any, args ...string) error {
	cmd := exec.CommandContext(ctx, d.berth, args...)
	cmd.Env = append(os.Environ(), "BERTH_SOCKET="+d.socket)
	cmd.Stderr = os.Stderr
	text, err := cmd.Output()
	if err != nil {
		return fmt.Errorf("berth %s: %w", args[0], err)
	}
	return json.Unmarshal(text, to)
}
