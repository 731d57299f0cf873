package daemon

import (
	"bufio"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"berth/internal/machine/run"
	"berth/internal/queue/access"
	"berth/internal/queue/engine"
	"berth/internal/queue/store"
	"berth/internal/text"
	"berth/internal/text/problem"
)

// anewKey is the store's key for when somebody accepted that it is empty.
const anewKey = "begun_anew"

// tracesBytes bounds how much of the audit log is read for traces of jobs.
const tracesBytes = 4 << 20

// refuseEmpty refuses a store that never had a job beside jobs of an earlier one.
// Their queue is elsewhere: the disk is not mounted, or someone removed it.
func (d *Daemon) refuseEmpty(found []run.Found) error {
	last, err := d.svc.queue.Store.LastSeq()
	if err != nil || last > 0 {
		return err
	}
	anew, err := d.svc.queue.Store.Meta(anewKey)
	if err != nil || anew != "" {
		return err
	}
	ids := engine.Beside(last, found)
	trace, err := d.trace()
	if err != nil {
		return err
	}
	switch {
	case d.opt.AcceptEmptyStore && (len(ids) > 0 || trace != ""):
		return notWritten(d.svc.queue.Store.Commit(store.Tx{Meta: map[string]string{anewKey: time.Now().Format(time.RFC3339)}}))
	case len(ids) > 0:
		return problem.Newf(problem.Refused,
			"restore it (berth help back-up), or start with --accept-empty-store: the jobs keep running, and berth adopt --strays takes them back",
			"the store in %s is empty, but %s of an earlier daemon still %s: %s", d.svc.places.StateDir,
			text.Count(len(ids), "job"), map[bool]string{true: "runs", false: "run"}[len(ids) == 1], listed(ids))
	case trace != "":
		return problem.Newf(problem.Refused,
			"restore it (berth help back-up); to begin a new queue, start berth serve once with --accept-empty-store",
			"the store in %s is empty, but %s", d.svc.places.StateDir, trace)
	}
	return nil
}

// trace says what an earlier queue left: the logs of its jobs, or what the audit
// log says about jobs that never ran. Empty: nothing.
func (d *Daemon) trace() (string, error) {
	last, err := d.lastNumber()
	if err != nil {
		return "", err
	}
	if last > 0 {
		return "an earlier queue left " + filepath.Join("jobs", strconv.FormatInt(last, 10)), nil
	}
	file, err := os.Open(filepath.Join(d.svc.places.StateDir, access.AuditName))
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	if err != nil {
		return "", stateProblem(err)
	}
	defer file.Close()
	for lines := bufio.NewReader(io.LimitReader(file, tracesBytes)); ; {
		line, err := lines.ReadBytes('\n')
		var e access.Entry
		if json.Unmarshal(line, &e) == nil && e.Result == access.OK && len(e.Jobs) > 0 {
			return access.AuditName + " names jobs of an earlier queue: " + listed(e.Jobs), nil
		}
		if err != nil {
			return "", nil // the rest of a damaged log proves nothing
		}
	}
}
