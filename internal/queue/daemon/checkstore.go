package daemon

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"time"

	"berth/internal/machine/site"
	"berth/internal/queue"
	"berth/internal/queue/store"
)

const (
	// checkTime bounds the check of a store: a large one is checked in part.
	checkTime = 5 * time.Second
	// largeLog is far more than the log has after any commit.
	largeLog = 256 << 20
)

// CheckStore is what doctor says about the store of a state directory, whether a
// daemon uses it or not.
func CheckStore(ctx context.Context, places site.Places) site.Finding {
	hung, cancel := context.WithTimeout(ctx, 2*checkTime)
	defer cancel()
	h, err := queue.Await(hung, func() (store.Health, error) {
		bounded, cancel := context.WithTimeout(ctx, checkTime)
		defer cancel()
		return store.Check(bounded, queue.StoreDir(places.StateDir))
	})
	f := storeFinding(h, err)
	f.Name = "store"
	return f
}

func storeFinding(h store.Health, err error) site.Finding {
	const mib = 1 << 20
	size := fmt.Sprintf("%.1f MiB", float64(h.Bytes)/mib)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return site.Finding{Status: site.OK, What: "no store yet"}
	case errors.Is(err, fs.ErrPermission):
		return site.Finding{Status: site.OK, What: "only its daemon's user can check it"}
	case errors.Is(err, context.DeadlineExceeded):
		return site.Finding{Status: site.Warn, What: "its file system does not answer", Fix: "look for a disk that hangs (`dmesg`)"}
	case err != nil:
		return site.Finding{Status: site.Warn, What: "cannot be checked: " + err.Error(), Fix: "look for errors of its disk (`dmesg`)"}
	case h.Damage != "":
		return site.Finding{Status: site.Fail, What: "damaged: " + h.Damage, Fix: "make a copy of the state directory, then restore a backup (berth help back-up)"}
	case h.LogBytes > largeLog:
		return site.Finding{Status: site.Warn, What: fmt.Sprintf("no damage found in %s, but its write-ahead log has %d MiB", size, h.LogBytes/mib), Fix: "restart the daemon, which shortens it"}
	case !h.Complete:
		return site.Finding{Status: site.OK, What: fmt.Sprintf("no damage found within %s; it has %s, too much for a complete check", checkTime, size)}
	}
	return site.Finding{Status: site.OK, What: fmt.Sprintf("no damage found in %s; its write-ahead log has %.1f MiB", size, float64(h.LogBytes)/mib)}
}
