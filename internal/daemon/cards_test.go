package daemon

import (
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"berth/internal/gpu"
	"berth/internal/keep"
	"berth/internal/site"
	"berth/internal/store"
)

// cardless is a daemon with a store and an environment, and nothing else.
func cardless(t *testing.T, seen ...seenCard) *Daemon {
	t.Helper()
	st, err := store.Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	d := &Daemon{
		store: st, log: slog.New(slog.DiscardHandler),
		opt: Options{Places: site.Places{}, Env: []string{gpu.HelperVariable + "=none"}},
	}
	cfg := DefaultConfig(false)
	d.cfg.Store(&cfg)
	t.Cleanup(func() {
		if d.source != nil {
			d.source.Close()
		}
		st.Close()
	})
	if len(seen) > 0 {
		d.saveCards(seen)
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
			if err := d.openCards(t.Context()); err != nil {
				t.Fatal(err)
			}
			if got := indices(d.devices); got != test.want {
				t.Errorf("cards %s, want %s", got, test.want)
			}
			for _, s := range d.seenCards() {
				if s.Boot != keep.BootID() {
					t.Errorf("remembered with boot %q", s.Boot)
				}
			}
		})
	}
}

func TestADaemonWaitsForADriverThatIsLate(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	if err := cardless(t).openCards(t.Context()); err == nil || !strings.Contains(err.Error(), "no NVIDIA GPU can be read") {
		t.Errorf("a machine that never had a card: %v", err)
	}
	dev := gpu.Unknown(0, "GPU-a", "Card")
	dev.TotalMiB = 1000
	d := cardless(t, seenCard{Device: dev, Seen: time.Now().Add(-time.Hour), Boot: "another"})
	if err := d.openCards(t.Context()); err != nil {
		t.Fatalf("a machine that had one: %v", err)
	}
	if len(d.devices) != 1 || d.devices[0].UUID != "GPU-a" {
		t.Errorf("%+v", d.devices)
	}
	if _, err := d.source.Sample(t.Context()); err == nil {
		t.Error("there is a driver after all")
	}
	old := seenCard{Device: dev, Seen: time.Now().Add(-2 * cardsFor)}
	if err := cardless(t, old).openCards(t.Context()); err == nil {
		t.Error("a machine that had one long ago waits for it")
	}
}
