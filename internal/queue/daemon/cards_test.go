package daemon

import (
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"berth/internal/job"
	"berth/internal/machine/gpu"
	"berth/internal/machine/keep"
	"berth/internal/machine/site"
	"berth/internal/queue"
	"berth/internal/queue/config"
	"berth/internal/queue/store"
)

// cardless is a daemon that has opened nothing yet, and remembers these cards.
func cardless(t *testing.T, seen ...seenCard) *Daemon {
	t.Helper()
	dir := t.TempDir()
	d := newDaemon(Options{Places: site.Places{StateDir: dir}, Env: []string{gpu.HelperVariable + "=none"}})
	cfg := config.Default(false)
	d.svc.cfg.Store(&cfg)
	t.Cleanup(d.close)
	if len(seen) > 0 {
		st, err := store.Open(queue.StoreDir(dir))
		if err != nil {
			t.Fatal(err)
		}
		saveCards(&queue.Queue{Store: st}, seen)
		st.Close()
	}
	return d
}

// twoCards puts an nvidia-smi into PATH that shows two.
func twoCards(t *testing.T) {
	t.Helper()
	dir := t.TempDir()
	const script = `#!/bin/sh
case "$*" in
--query-gpu=index*) echo "0, GPU-a, Card, 1000, 0, 0, 0"; echo "1, GPU-b, Card, 1000, 0, 0, 0" ;;
--query-compute-apps*) ;;
*) exit 2 ;;
esac
`
	if err := os.WriteFile(filepath.Join(dir, "nvidia-smi"), []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
}

func TestCardsKeepTheirNumbersUntilTheMachineIsRestarted(t *testing.T) {
	twoCards(t)
	for name, test := range map[string]struct {
		boot string
		want string
	}{
		"the daemon was restarted":    {keep.BootID(), "0, 5"},
		"the machine was restarted":   {"another", "0, 1"},
		"an older berth remembered":   {"", "0, 1"},
		"nothing of it is remembered": {"-", "0, 1"},
	} {
		t.Run(name, func(t *testing.T) {
			var seen []seenCard
			if test.boot != "-" {
				dev := gpu.Unknown(5, "GPU-b", "Card")
				seen = []seenCard{{Device: dev, Seen: time.Now(), Boot: test.boot}}
			}
			d := cardless(t, seen...)
			if err := d.openMachine(t.Context()); err != nil {
				t.Fatal(err)
			}
			if got := indices(d.svc.queue.Devices); got != test.want {
				t.Errorf("cards %s, want %s", got, test.want)
			}
			for _, s := range d.record.seenCards(d.svc.queue) {
				if s.Boot != keep.BootID() {
					t.Errorf("remembered with boot %q", s.Boot)
				}
			}
		})
	}
}

func TestADaemonWaitsForADriverThatIsLate(t *testing.T) {
	broken := t.TempDir()
	if err := os.WriteFile(filepath.Join(broken, "nvidia-smi"), []byte("#!/bin/sh\nexit 9\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", broken)
	if err := cardless(t).openMachine(t.Context()); err == nil || !strings.Contains(err.Error(), "no NVIDIA GPU can be read") {
		t.Errorf("a machine that never had a card: %v", err)
	}
	dev := gpu.Unknown(0, "GPU-a", "Card")
	dev.TotalMiB = 1000
	d := cardless(t, seenCard{Device: dev, Seen: time.Now().Add(-time.Hour), Boot: "another"})
	if err := d.openMachine(t.Context()); err != nil {
		t.Fatalf("a machine that had one: %v", err)
	}
	if len(d.svc.queue.Devices) != 1 || d.svc.queue.Devices[0].UUID != "GPU-a" {
		t.Errorf("%+v", d.svc.queue.Devices)
	}
	if _, err := d.svc.queue.Source.Sample(t.Context()); err == nil {
		t.Error("there is a driver after all")
	}
	old := seenCard{Device: dev, Seen: time.Now().Add(-2 * cardsFor)}
	if err := cardless(t, old).openMachine(t.Context()); err == nil {
		t.Error("a machine that had one long ago waits for it")
	}
}

func TestADaemonDoesWithoutGPUsUnlessJobsNeedThem(t *testing.T) {
	t.Parallel()
	st, err := store.Open(queue.StoreDir(t.TempDir()))
	if err != nil {
		t.Fatal(err)
	}
	defer st.Close()
	m := &queue.Queue{Store: st, Log: slog.New(slog.DiscardHandler), NoGPUs: true}
	d := cardless(t)
	if devices, err := d.record.chooseCards(m, gpu.Sample{}, nil); err != nil || len(devices) > 0 {
		t.Errorf("without jobs: %v, %v", devices, err)
	}
	d.record.needed = true
	if _, err := d.record.chooseCards(m, gpu.Sample{}, nil); err == nil || !strings.Contains(err.Error(), "this machine has no GPU") {
		t.Errorf("where it needs them: %v", err)
	}
	d.record.needed = false
	queue := func(id string, gpus int) {
		t.Helper()
		j := &job.Job{ID: id, Seq: int64(gpus) + 1, State: job.Queued, Spec: job.Spec{Shell: "true", GPUs: gpus}}
		if err := st.Commit(store.Tx{Put: []*job.Job{j}}); err != nil {
			t.Fatal(err)
		}
	}
	queue("1", 0)
	if _, err := d.record.chooseCards(m, gpu.Sample{}, nil); err != nil {
		t.Errorf("with a job that needs none: %v", err)
	}
	queue("2", 1)
	if _, err := d.record.chooseCards(m, gpu.Sample{}, nil); err == nil || !strings.Contains(err.Error(), "1 queued job needs one") {
		t.Errorf("with a job that needs one: %v", err)
	}
	// Cards that were there recently are waited for.
	dev := gpu.Unknown(0, "GPU-a", "Card")
	saveCards(m, []seenCard{{Device: dev, Seen: time.Now(), Boot: keep.BootID()}})
	if devices, err := d.record.chooseCards(m, gpu.Sample{}, nil); err != nil || len(devices) != 1 {
		t.Errorf("with a card that was there: %v, %v", devices, err)
	}
}
