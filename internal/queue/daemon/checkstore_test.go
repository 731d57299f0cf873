package daemon

import (
	"context"
	"errors"
	"io/fs"
	"strings"
	"testing"

	"berth/internal/machine/site"
	"berth/internal/queue/store"
)

func TestWhatDoctorSaysAboutTheStore(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		health store.Health
		err    error
		status string
		says   string
	}{
		{store.Health{Bytes: 3 << 20, Complete: true}, nil, site.OK, "no damage found in 3.0 MiB; its write-ahead log has 0.0 MiB"},
		{store.Health{Bytes: 9 << 30}, nil, site.OK, "no damage found within 5s; it has 9216.0 MiB"},
		{store.Health{LogBytes: 501 << 20, Complete: true}, nil, site.Warn, "its write-ahead log has 501 MiB"},
		{store.Health{Complete: true, Damage: "store is broken: Tree 4 page 100"}, nil, site.Fail, "damaged: store is broken: Tree 4 page 100"},
		{store.Health{}, fs.ErrNotExist, site.OK, "no store yet"},
		{store.Health{}, fs.ErrPermission, site.OK, "only its daemon's user"},
		{store.Health{}, context.DeadlineExceeded, site.Warn, "does not answer"},
		{store.Health{}, errors.New("disk I/O error"), site.Warn, "cannot be checked: disk I/O error"},
	} {
		f := storeFinding(test.health, test.err)
		if f.Status != test.status || !strings.Contains(f.What, test.says) || (f.Fix == "") != (f.Status == site.OK) {
			t.Errorf("%+v, %v: %+v", test.health, test.err, f)
		}
	}
}

// TestTheStoreOfARunningDaemonIsChecked, and one that is not there.
func TestTheStoreOfARunningDaemonIsChecked(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	l.end(l.one(sh("true", "gpus", "0")))
	if f := CheckStore(l.ctx, l.opt.Places); f.Name != "store" || f.Status != site.OK || !strings.HasPrefix(f.What, "no damage found in ") {
		t.Errorf("%+v", f)
	}
	if f := CheckStore(l.ctx, site.Places{StateDir: t.TempDir()}); f.Status != site.OK || f.What != "no store yet" {
		t.Errorf("%+v", f)
	}
}
