package run

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"berth/internal/job"
	"berth/internal/machine/keep"
	"berth/internal/tests/testkit"
)

// A berth that goes and one that comes change nothing for a job and its server.
func TestAnMPSServerOutlivesItsBerth(t *testing.T) {
	b, m := newBench(t), newMPS(t, "")
	b.start(m.on(b.order("1", "while [ ! -e go ]; do sleep 0.05; done; cat $CUDA_MPS_PIPE_DIRECTORY/limit0")))
	b.next(Started)
	server := m.process("server")
	b.Close()
	b.open()
	if f := b.scan()[0]; f.Kind != FoundRunning || f.Job != "1" {
		t.Fatalf("found %+v", f)
	}
	if !lives(server) {
		t.Error("its server is gone")
	}
	os.WriteFile(filepath.Join(b.work, "go"), nil, 0o644)
	if r := b.next(Ended).Record; r.ExitCode != 0 || r.Note != "" || b.logText("1") != "4096M\n" {
		t.Errorf("%+v, log %q", r, b.logText("1"))
	}
	b.gone(server)
	m.leftNothing()
}

// Whatever the server was at when the berth went, its job runs once or never.
func TestABerthGoesWhileAnMPSServerStarts(t *testing.T) {
	rows := []struct {
		name, mode string
		stop       bool
		check      func(t *testing.T, b *bench, e Event)
	}{
		{"and it becomes ready", "slow", false, func(t *testing.T, b *bench, e Event) {
			if text := b.logText("1"); e.Record.ExitCode != 0 || text != "it ran\n" {
				t.Errorf("%+v, log %q", e.Record, text)
			}
		}},
		{"and it never does", "never", false, func(t *testing.T, _ *bench, e Event) {
			if !strings.HasPrefix(e.Record.Launch, "CUDA MPS could not be started: not ready") {
				t.Errorf("%+v", e.Record)
			}
		}},
		{"and the next berth cancels it", "hangs", true, func(t *testing.T, _ *bench, e Event) {
			if e.Record.Stop != string(job.StopCancel) || e.Record.Launch == "" || strings.Contains(e.Record.Launch, "not ready") {
				t.Errorf("%+v", e.Record)
			}
		}},
	}
	for _, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			b, m := newBench(t), newMPS(t, row.mode)
			b.start(m.on(b.order("1", "echo it ran")))
			m.process("control")
			b.Close()
			b.open()
			f := b.scan()[0]
			if f.Kind != FoundRunning {
				t.Fatalf("found %+v", f)
			}
			if row.stop {
				if err := b.Stop(f.Token, job.StopCancel, time.Minute); err != nil {
					t.Fatal(err)
				}
			}
			var e Event
			testkit.Eventually(t, "it is over", func() bool { e = <-b.Events(); return e.Kind != Started })
			if e.Kind != Ended {
				t.Fatalf("%+v", e)
			}
			row.check(t, b, e)
			m.leftNothing()
		})
	}
}

func TestAUserCannotEndTheControlDaemonOfRoots(t *testing.T) {
	t.Parallel()
	b, m := newLab(t), newMPS(t, "")
	b.start(m.on(b.ordered("1", `while [ ! -e go ]; do sleep 0.05; done; kill -9 $(cat `+m.control+`.control) || echo no; rm -rf $CUDA_MPS_PIPE_DIRECTORY/* && echo removed; mkdir $CUDA_MPS_PIPE_DIRECTORY/x && echo made; kill -0 $PPID || echo no`)))
	b.next(Started)
	control := m.process("control")
	os.WriteFile(filepath.Join(b.work, "go"), nil, 0o644)
	r := b.next(Ended).Record
	if text := b.logText("1"); strings.Count(text, "no\n") != 2 || strings.Contains(text, "removed\n") || strings.Contains(text, "made\n") || r.Note != "" {
		t.Errorf("%+v, log %q", r, text)
	}
	b.gone(control)
	m.leftNothing()
}

// A host that is killed takes its control daemon along, and what that leaves is
// neither the job's nor there for long.
func TestAHostThatIsKilled(t *testing.T) {
	t.Parallel()
	b, m := newBench(t), newMPS(t, "")
	token := b.start(m.on(b.order("1", "while [ ! -e go ]; do sleep 0.05; done")))
	b.next(Started)
	control, server := m.process("control"), m.process("server")
	host, err := keep.ReadProcess(control.Parent)
	if err != nil {
		t.Fatal(err)
	}
	host.Signal(9)
	testkit.Eventually(t, "its control daemon is gone", func() bool { return !lives(control) })
	b.noted(token, endedEarly)
	os.WriteFile(filepath.Join(b.work, "go"), nil, 0o644)
	if r := b.next(Ended).Record; r.ExitCode != 0 || r.Stragglers != 0 || r.Note != endedEarly {
		t.Errorf("%+v", r)
	}
	b.gone(host, control, server)
	m.leftNothing()
}
