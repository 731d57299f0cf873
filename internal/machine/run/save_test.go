package run

import (
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"berth/internal/tests/testkit"
)

// TestACheckpointFileSaysWhenItWasSaved: at the end of an attempt that may be followed
// by another.
func TestACheckpointFileSaysWhenItWasSaved(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	for _, test := range []struct {
		name, line string
		saved      bool
	}{
		{"a file", "touch ckpt; exit 1", true},
		{"a directory", "mkdir ckpt; exit 3", true},
		{"the link to the last of several", "touch step-5; ln -s step-5 ckpt; kill -9 $$", true},
		{"nothing", "exit 1", false},
		{"a job that does not go on", "touch ckpt", false},
	} {
		o := b.order("1", test.line)
		o.Dir = t.TempDir()
		o.SavesTo = filepath.Join(o.Dir, "ckpt")
		r := b.finish(o)
		stat, err := os.Stat(o.SavesTo)
		switch {
		case test.saved && (err != nil || !r.Saved.Equal(stat.ModTime()) || r.Saved.Before(r.StartedAt.Add(-time.Second))):
			t.Errorf("%s: saved at %v, want %v %v", test.name, r.Saved, stat, err)
		case !test.saved && !r.Saved.IsZero():
			t.Errorf("%s: saved at %v", test.name, r.Saved)
		}
	}
	o := b.order("2", "trap 'touch ckpt; exit 0' TERM; echo > ready; while :; do sleep 0.01; done")
	o.SavesTo = filepath.Join(b.work, "ckpt")
	token := b.start(o)
	b.next(Started)
	testkit.Eventually(t, "it handles TERM", func() bool {
		_, err := os.Stat(filepath.Join(b.work, "ready"))
		return err == nil
	})
	testkit.Must(t, b.Stop(token, "preempt", time.Minute))
	if r := b.next(Ended).Record; r.ExitCode != 0 || r.Saved.IsZero() {
		t.Errorf("told to stop: %+v", r)
	}
}

// TestOnlyTheJobSavesToItsDirectory: that berth has made it is no save.
func TestOnlyTheJobSavesToItsDirectory(t *testing.T) {
	t.Parallel()
	b := newLab(t)
	for i, line := range []string{"exit 1", "touch kept/in/n; exit 1"} {
		o := b.ordered(strconv.Itoa(i), line)
		o.SavesTo = filepath.Join(o.Dir, "kept", "in")
		o.Env = append(o.Env, "BERTH_CHECKPOINT_DIR="+o.SavesTo)
		if r := b.finish(o); r.Saved.IsZero() || r.Saved.After(r.StartedAt) != (i == 1) {
			t.Errorf("%s: started at %v, saved at %v", line, r.StartedAt, r.Saved)
		}
	}
}

// TestACheckpointFileIsLookedAtAsItsUser: root does not look where a user may not.
func TestACheckpointFileIsLookedAtAsItsUser(t *testing.T) {
	t.Parallel()
	b := newLab(t)
	secret := t.TempDir()
	testkit.Must(t, os.Chmod(secret, 0o700), os.WriteFile(filepath.Join(secret, "ckpt"), nil, 0o644))
	o := b.ordered("1", "exit 1")
	o.SavesTo = filepath.Join(secret, "ckpt")
	if r := b.finish(o); !r.Saved.IsZero() {
		t.Errorf("it saw what its user may not: %v", r.Saved)
	}
	o = b.ordered("2", "mkdir -m 700 own; touch own/ckpt; exit 1")
	o.SavesTo = filepath.Join(o.Dir, "own", "ckpt")
	if r := b.finish(o); r.Saved.IsZero() {
		t.Error("it did not see what its user may")
	}
}

// TestACheckpointFileThatDoesNotAnswer holds up neither the end of the job nor the next
// one, which gets another supervisor.
func TestACheckpointFileThatDoesNotAnswer(t *testing.T) {
	t.Parallel()
	silent := filepath.Join(t.TempDir(), "silent")
	testkit.Write(t, silent, "")
	b := newBench(t, func(o *Options) {
		o.KeepCommand = []string{"env", "BERTH_KEEP_FAULT=fail look " + silent, faultyKeep}
	})
	o := b.order("1", "exit 1")
	o.SavesTo, o.Grace = filepath.Join(b.work, "ckpt"), 0 // it is over: nothing of it is killed
	token := b.start(o)
	b.next(Started)
	keeper := b.keepOf(token)
	r := b.next(Ended).Record
	if r.ExitCode != 1 || !r.Saved.IsZero() || r.Note != "the checkpoint file could not be looked at in time" {
		t.Errorf("got %+v", r)
	}
	b.Ack(token)
	testkit.Eventually(t, "that supervisor ends", func() bool { return !lives(keeper) })
	testkit.Must(t, os.Remove(silent))
	o.Job = "2"
	b.start(o)
	e := <-b.Events()
	if e.Kind == NeverRan { // it was leased before its end was noticed
		b.start(o)
		e = b.next(Started)
	}
	if r := b.next(Ended).Record; e.Kind != Started || r.KeepPID == keeper.PID || r.Note != "" {
		t.Errorf("got %s, %+v", e.Kind, r)
	}
}
