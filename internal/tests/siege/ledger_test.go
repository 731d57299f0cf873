package siege

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"berth/internal/api"
	"berth/internal/job"
	"berth/internal/tests/testkit"
)

func init() { hoardAttacks = append(ledgerAttacks, hoardAttacks...) }

// prepareLedger gives the ledger to bob, who was there before the daemon.
func (c *camp) prepareLedger(t *testing.T) {
	t.Helper()
	dir := filepath.Join(c.dir, "ledger")
	testkit.Must(t, os.Mkdir(dir, 0o700))
	testkit.Must(t, os.Chown(dir, c.bob.uid, c.bob.gid))
	testkit.Must(t, c.bob.as(func() error { return os.WriteFile(filepath.Join(dir, "lock"), nil, 0o600) }))
}

// The directory in which berths tell each other what they have booked.
var ledgerAttacks = []attack{
	{"replace the lock that berths share, again and again", func(t *testing.T, c *camp) {
		lock := filepath.Join(c.dir, "ledger", "lock")
		var over atomic.Bool
		replaced, done := 0, make(chan struct{})
		go func() {
			defer close(done)
			_ = c.bob.as(func() error {
				for !over.Load() {
					if os.Remove(lock) == nil {
						replaced++
					}
					if file, err := os.OpenFile(lock, os.O_CREATE|os.O_EXCL, 0o644); err == nil {
						file.Close()
					}
				}
				return nil
			})
		}()
		id := c.ann.submit(t, spec{"command": "true", "gpus": 4})[0]
		c.ann.mustEnd(t, id, job.OK)
		over.Store(true)
		<-done
		if replaced > 0 {
			t.Errorf("the lock was replaced %d times", replaced)
		}
	}},
	{"crowd the bookings of others out of the ledger", func(t *testing.T, c *camp) {
		pid := c.ann.sleeps(t)
		dir := filepath.Join(c.dir, "ledger")
		booked := func() bool {
			var cards []api.GPU
			c.root.mustAsk(t, "GET", "/v1/gpus", nil).into(t, &cards)
			return slices.ContainsFunc(cards[0].Jobs, func(on api.GPUJob) bool { return on.Other && on.User == c.ann.name })
		}
		own := filepath.Join(dir, fmt.Sprintf("%d-run", c.ann.uid))
		testkit.Must(t, c.ann.as(func() error { return os.WriteFile(own, []byte(c.booking(t, c.ann.name, pid, 0)), 0o644) }))
		defer os.Remove(own)
		testkit.Eventually(t, "ann's booking is seen", booked)
		var left []string
		testkit.Must(t, c.bob.as(func() error {
			for i := range 10_000 {
				path := filepath.Join(dir, fmt.Sprintf("%d-%d", c.ann.uid, i)) // as if they were hers
				if i%2 == 0 {
					path = filepath.Join(dir, fmt.Sprintf("1-%d", i))
				}
				left = append(left, path)
				if err := os.WriteFile(path, nil, 0o644); err != nil {
					return err
				}
			}
			return nil
		}))
		defer func() {
			for _, path := range left {
				_ = os.Remove(path)
			}
		}()
		// One more job has the ledger read, and does not get that GPU.
		id := c.root.submit(t, spec{"command": "sleep 1000", "gpus": 1, "ids": "0"})[0]
		defer c.root.cancel(t, id)
		for range 3 {
			c.root.mustEnd(t, c.root.submit(t, spec{"command": "true", "gpus": 1})[0], job.OK)
		}
		if d := c.root.show(t, id); d.State != job.Queued || !booked() {
			t.Errorf("ann's booking is ignored, and a job on her GPU is %s", d.State)
		}
	}},
	{"book with a name of a megabyte", func(t *testing.T, c *camp) {
		pid := c.bob.sleeps(t)
		path := filepath.Join(c.dir, "ledger", fmt.Sprintf("%d-long", c.bob.uid))
		long := strings.Repeat("x", 900_000)
		entry := c.booking(t, long, pid, 0)
		testkit.Must(t, c.bob.as(func() error { return os.WriteFile(path, []byte(entry), 0o644) }))
		defer os.Remove(path)
		c.ann.mustEnd(t, c.ann.submit(t, spec{"command": "true", "gpus": 1})[0], job.OK)
		testkit.Eventually(t, "the booking is seen", func() bool {
			r := c.ann.mustAsk(t, "GET", "/v1/gpus", nil)
			if len(r.body) > 100_000 {
				t.Fatalf("the list of GPUs has %d bytes", len(r.body))
			}
			return strings.Contains(r.body, `"other":true`)
		})
	}},
}

// booking is a file of the ledger in which a process holds all of a GPU.
func (c *camp) booking(t *testing.T, user string, pid, card int) string {
	t.Helper()
	var cards []api.GPU
	c.root.mustAsk(t, "GET", "/v1/gpus", nil).into(t, &cards)
	return fmt.Sprintf(`{"version":1,"boot_id":%q,"pid_space":%q,"entries":[{"key":"run/1","user":%q,"job":"1","name":"job1","uuids":[%q],"budget_mib":[%d],"alone":true,"exclusive":true,"holder_pid":%d,"holder_start":%d}]}`,
		strings.TrimSpace(testkit.Read(t, "/proc/sys/kernel/random/boot_id")), link(t, "/proc/self/ns/pid"), user, cards[card].UUID, cards[card].TotalMiB, pid, startOf(t, pid))
}
