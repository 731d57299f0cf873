package node

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"
	"time"

	"berth/internal/job"
	"berth/internal/slurm/handover"
	"berth/internal/tests/testkit"
)

// programs is the directory of the berth and berth-keep under test.
var programs string

func TestMain(m *testing.M) {
	os.Exit(testkit.RunWith(m, func(dir string) { programs = dir }, "cmd/berth", "cmd/berth-keep"))
}

// world is a batch, and the node that runs it.
type world struct {
	t     *testing.T
	batch string // its directory
	place string // TMPDIR of the node
	home  string
	env   []string
}

func newWorld(t *testing.T, orders ...handover.Order) *world {
	t.Helper()
	root := t.TempDir()
	w := &world{t: t, batch: filepath.Join(root, "queue", "batch"), place: filepath.Join(root, "tmp"), home: filepath.Join(root, "home")}
	testkit.Must(t, os.Mkdir(w.place, 0o700), os.Mkdir(w.home, 0o700))
	for i := range orders {
		o := &orders[i]
		if o.Log == "" {
			o.Log = handover.Log(w.batch, i)
		}
		if o.Job.Spec.Dir == "" {
			o.Job.Spec.Dir = w.home
		}
	}
	testkit.Must(t, handover.Create(w.batch, orders, []byte("#!/bin/sh\n")))
	w.env = []string{
		"PATH=" + os.Getenv("PATH"), "HOME=" + w.home, "USER=ann", "TMPDIR=" + w.place, "SLURM_JOB_ID=120", "SLURMD_NODENAME=n7",
		"BERTH_GPU_HELPER=none",
	}
	t.Cleanup(func() { w.nothingLeft() })
	return w
}

// order is a job that runs a shell line without a GPU.
func order(shell string, change ...func(*job.Spec)) handover.Order {
	spec := job.Defaults()
	spec.GPUs, spec.Shell = 0, shell
	for _, f := range change {
		f(&spec)
	}
	return handover.Order{
		Job:     job.Job{ID: "17", User: "ann", UID: os.Getuid(), Umask: -1, Spec: spec, VRAMMiB: spec.VRAMMiB, Attempt: job.Attempt{Number: 1}},
		Environ: []string{"PATH=" + os.Getenv("PATH"), "FROM=submission"},
	}
}

// wrapper is one `berth __node`.
type wrapper struct {
	*exec.Cmd
	w    *world
	out  *testkit.Buffer
	done chan struct{}
}

func (w *world) start(index int, env ...string) *wrapper {
	w.t.Helper()
	return w.startProgram(programs, index, env...)
}

func (w *world) startProgram(dir string, index int, env ...string) *wrapper {
	w.t.Helper()
	r := &wrapper{Cmd: exec.Command(filepath.Join(dir, "berth"), Word, w.batch, strconv.Itoa(index)), w: w, out: &testkit.Buffer{}, done: make(chan struct{})}
	r.Env, r.Stdout, r.Stderr = append(w.env, env...), r.out, r.out
	testkit.Must(w.t, r.Start())
	go func() { _ = r.Wait(); close(r.done) }()
	return r
}

// status is its exit status, once it has ended.
func (r *wrapper) status() int {
	r.w.t.Helper()
	testkit.Eventually(r.w.t, "the wrapper has ended", func() bool {
		select {
		case <-r.done:
			return true
		default:
			return false
		}
	})
	return r.ProcessState.ExitCode()
}

// run is a whole run of a job that has to leave a record, and its exit status.
func (w *world) run(index int, env ...string) (handover.Record, int) {
	w.t.Helper()
	r := w.start(index, env...)
	status := r.status()
	return w.record(index, r), status
}

func (w *world) record(index int, r *wrapper) handover.Record {
	w.t.Helper()
	record, err := handover.ReadRecord(w.batch, index)
	if err != nil || record == nil {
		w.t.Fatalf("no record: %v\n%s", err, r.out)
	}
	return *record
}

func (w *world) log(index int) string { return testkit.Read(w.t, handover.Log(w.batch, index)) }

// file is a file of the cluster's home directory.
func (w *world) file(name string) string { return filepath.Join(w.home, name) }

func (w *world) awaitFile(name string) string {
	w.t.Helper()
	testkit.Eventually(w.t, name+" is there", func() bool {
		text, err := os.ReadFile(w.file(name))
		return err == nil && len(text) > 0
	})
	return testkit.Read(w.t, w.file(name))
}

// nothingLeft fails the test if a wrapper left a directory or a process on its node.
func (w *world) nothingLeft() {
	var left []string
	if !testkit.Holds(testkit.Patience, func() bool {
		left, _ = filepath.Glob(filepath.Join(w.place, "*"))
		return len(left) == 0
	}) {
		w.t.Errorf("left on the node: %v", left)
	}
	if !testkit.Holds(testkit.Patience, func() bool { left = mentioning(w.batch); return len(left) == 0 }) {
		w.t.Errorf("processes left on the node: %v", left)
	}
}

// mentioning are the processes whose arguments or environment have a text.
func mentioning(text string) []string {
	var found []string
	dirs, _ := filepath.Glob("/proc/[0-9]*")
	for _, dir := range dirs {
		for _, name := range []string{"cmdline", "environ"} {
			raw, _ := os.ReadFile(filepath.Join(dir, name))
			if bytes.Contains(raw, []byte(text)) && filepath.Base(dir) != strconv.Itoa(os.Getpid()) {
				found = append(found, filepath.Base(dir)+" "+string(bytes.ReplaceAll(raw, []byte{0}, []byte{' '}))[:min(len(raw), 300)])
				break
			}
		}
	}
	return found
}

// alive reports whether a process exists.
func alive(pid string) bool {
	number, err := strconv.Atoi(pid)
	return err == nil && !errors.Is(syscall.Kill(number, 0), syscall.ESRCH)
}

const second = time.Second
