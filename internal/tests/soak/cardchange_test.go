package soak

import (
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"berth/internal/api"
	"berth/internal/tests/fakenvml"
	"berth/internal/tests/testkit"
)

// cardChanges are what may have become of the cards when the daemon looks again,
// now or after a restart. Jobs hold cards 0 and 1 meanwhile.
var cardChanges = []struct {
	name         string
	change, mend func(r *rack)
}{
	{"all cards vanish", func(r *rack) {
		for i := range 4 {
			r.box.Remove(i)
		}
	}, func(r *rack) {
		for i := range 4 {
			r.box.Restore(i)
		}
	}},
	{"half of the cards vanish", func(r *rack) { r.box.Remove(0); r.box.Remove(2) }, func(r *rack) { r.box.Restore(0); r.box.Restore(2) }},
	{"a card is replaced by another", func(r *rack) {
		r.box.Change(1, func(c *fakenvml.Card) { c.UUID = "GPU-11111111-2222-3333-4444-555555555555" })
	}, func(r *rack) {
		r.box.Change(1, func(c *fakenvml.Card) { c.UUID = fakenvml.H100(1).UUID })
	}},
	{"the helper talks nonsense", func(r *rack) {
		replace(r.t, filepath.Join(r.program, "berth-gpu"), "#!/bin/sh\nwhile read line; do echo 'nonsense {[' ; done\n")
		killHelper(r.box)
	}, func(r *rack) { r.mendHelper() }},
}

// whole submits a job that has a card to itself.
func (r *rack) whole(index int, command string) string {
	r.t.Helper()
	out, errOut, status := r.cli("submit", "--quiet", "--gpu-ids", strconv.Itoa(index), "--", "sh", "-c", command)
	if status != 0 {
		r.t.Fatalf("berth submit: %d %s", status, errOut)
	}
	return strings.TrimSpace(out)
}

func (r *rack) mendHelper() {
	dir, err := helper()
	testkit.Must(r.t, err)
	replace(r.t, filepath.Join(r.program, "berth-gpu"), testkit.Read(r.t, filepath.Join(dir, "berth-gpu")))
}

// TestCardsChange changes the cards under running jobs. They go on and end as
// they would have, nobody else gets their cards meanwhile, and jobs start again
// when the cards are as they were.
func TestCardsChange(t *testing.T) {
	for _, c := range cardChanges {
		for _, restart := range []string{"", ", with a restart"} {
			t.Run(c.name+restart, func(t *testing.T) {
				t.Parallel()
				r := newRack(t, 4)
				dir := t.TempDir()
				for _, name := range []string{"berth", "berth-keep", "berth-gpu"} {
					copyProgram(t, filepath.Join(r.program, name), filepath.Join(dir, name))
				}
				r.program = dir
				b := r.up()
				var held []string
				for _, index := range []int{0, 1} {
					held = append(held, r.whole(index, "echo ready >> $SOAK/ledger; while ! [ -e $SOAK/gate ]; do sleep 0.05; done; exit 3"))
				}
				testkit.Eventually(t, "both run", func() bool { return strings.Count(testkit.Read(t, filepath.Join(r.dir, "ledger")), "ready") == 2 })
				c.change(r)
				if restart != "" {
					b.kill()
					b = r.serve()
					testkit.Eventually(t, "the next daemon answers or says why not", func() bool {
						_, err := api.Call(r.ctx(), r.client, api.GetStatus, api.None{})
						return err == nil || !b.running()
					})
				}
				if b.running() {
					testkit.Never(t, time.Second, "a job on the cards ends", func() bool {
						return slices.ContainsFunc(held, func(id string) bool { return r.state(id) != "running" })
					})
				} else if said := b.stderr.String(); !strings.Contains(said, "berth: ") || !strings.Contains(said, "hint: ") {
					t.Errorf("the next daemon ended and said %q", said)
				}
				c.mend(r)
				if !b.running() {
					b = r.up()
				}
				waiting := r.whole(1, "true")
				testkit.Never(t, time.Second, "a job starts on a card that another holds", func() bool { return r.state(waiting) != "queued" })
				r.openGate()
				for _, id := range held {
					testkit.Eventually(t, "the held ones end", func() bool { return r.job(id).State.Terminal() })
					if v := r.job(id); outcome(v) != "exit:3" {
						t.Errorf("job %s ended %s", id, outcome(v))
					}
				}
				testkit.Within(t, 2*testkit.Patience, "the one that waited has run", func() bool { return r.state(waiting) == "finished" })
				b.signal(syscall.SIGTERM)
				b.mustEnd(0)
			})
		}
	}
}
