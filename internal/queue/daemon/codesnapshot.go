package daemon

import (
	"cmp"
	"context"
	"path/filepath"
	"strings"

	"berth/internal/api"
	"berth/internal/job"
	"berth/internal/text/problem"
)

// maxSnapshots bounds the snapshots of one request: jobs share those of a tree.
const maxSnapshots = 1000

// setSnapshot replaces the directory in a spec by the copy that the caller made
// of it. The daemon never opens it: the job's own process does, as its user.
func setSnapshot(spec *job.Spec, r *api.SubmitRequest) error {
	asked := spec.Snapshot.Tree
	if asked == "" {
		return nil
	}
	if r.DryRun {
		spec.Snapshot = job.Snapshot{} // nothing was copied, and nothing will run
		return nil
	}
	if len(r.Snapshots) > maxSnapshots {
		return problem.Newf(problem.TooMuch, "send the jobs in several requests", "%d snapshots in one request; at most %d are accepted", len(r.Snapshots), maxSnapshots)
	}
	for _, made := range r.Snapshots {
		if made.Tree == asked {
			spec.Snapshot = made
			return checkSnapshot(&made)
		}
	}
	return problem.Newf(problem.Invalid, "berth submit makes the snapshot; another client sends it in snapshots", "snapshot: expected a snapshot of %.100q with the request, found none", asked)
}

// checkSnapshot refuses text that no berth client sends.
func checkSnapshot(s *job.Snapshot) error {
	for _, path := range []string{s.Tree, s.Path, cmp.Or(s.Script, s.Path)} {
		if !filepath.IsAbs(path) || filepath.Clean(path) != path || len(path) > maxDir || strings.IndexByte(path, 0) >= 0 {
			return problem.Newf(problem.Invalid, "", "snapshots: expected absolute paths of at most %d bytes, found %.100q", maxDir, path)
		}
	}
	if s.ID == "" || !isHex(s.ID) || !isHex(s.Commit) {
		return problem.Newf(problem.Invalid, "", "snapshots: expected an id and a commit of hexadecimal digits, found %.100q and %.100q", s.ID, s.Commit)
	}
	return nil
}

// isHex reports whether a text has only hexadecimal digits, and few of them.
func isHex(text string) bool {
	const most = 64 // of SHA-256
	return len(text) <= most && strings.Trim(text, "0123456789abcdef") == ""
}

// Snapshots are the ids of the snapshots that jobs of the caller refer to, ended
// ones included: they may run again.
func (h *jobs) Snapshots(_ context.Context, c api.Caller) (api.SnapshotIDs, error) {
	ids, err := h.svc.queue.Store.Snapshots(c.UID, c.Name)
	return api.SnapshotIDs{IDs: ids}, err
}
