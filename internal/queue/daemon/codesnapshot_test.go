package daemon

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"berth/internal/api"
	"berth/internal/job"
	"berth/internal/queue/config"
	"berth/internal/tests/testkit"
	"berth/internal/text/problem"
)

// TestAJobRunsItsSnapshot: every attempt of it, and no other code if it is gone.
func TestAJobRunsItsSnapshot(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	made := job.Snapshot{Tree: filepath.Join(l.dir(), "tree"), ID: "ab12", Path: filepath.Join(l.dir(), "copy"), Commit: "c0ffee", Dirty: true}
	testkit.Must(t, errors.Join(os.Mkdir(made.Tree, 0o755), os.Mkdir(made.Path, 0o755)))
	l.write(filepath.Join(made.Tree, "code"), "new")
	l.write(filepath.Join(made.Path, "code"), "old")
	submit := func(pairs ...string) api.Submitted {
		t.Helper()
		reply, err := api.Call(l.ctx, l.Client, api.Submit, api.SubmitRequest{Jobs: []api.Spec{sh("cat code", pairs...)}, Dir: made.Tree, Environ: l.opt.Env, Snapshots: []job.Snapshot{made}})
		testkit.Must(t, err)
		return reply.Jobs[0]
	}
	id := submit("snapshot", made.Tree).ID
	if got := l.finished(id); got != "old" {
		t.Errorf("it ran %q", got)
	}
	if d := l.job(id); d.Snapshot == nil || *d.Snapshot != made || d.Dir != made.Tree {
		t.Errorf("%+v in %s", d.Snapshot, d.Dir)
	}
	if plain := l.job(submit("snapshot", "no").ID); plain.Snapshot != nil {
		t.Errorf("a job without a snapshot has %+v", plain.Snapshot)
	}
	used, err := api.Call(l.ctx, l.Client, api.ListSnapshots, api.None{})
	if err != nil || !slices.Equal(used.IDs, []string{"ab12"}) {
		t.Errorf("in use: %v %v", used, err)
	}
	l.act(api.ActRequeue, id)
	if got := l.finished(id); got != "old" {
		t.Errorf("requeued it ran %q", got)
	}
	testkit.Must(t, os.RemoveAll(made.Path))
	l.act(api.ActRequeue, id)
	if end := l.end(id); value(end.Outcome) != job.Launch || !strings.Contains(value(end.Reason), "the snapshot of its code is gone: "+made.Path) {
		t.Errorf("without its snapshot: %v %v", value(end.Outcome), value(end.Reason))
	}
}

func TestBadSnapshotsAreRefused(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	good := job.Snapshot{Tree: "/tree", ID: "ab", Path: "/copy"}
	with := func(change func(*job.Snapshot)) []job.Snapshot {
		s := good
		change(&s)
		return []job.Snapshot{s}
	}
	for _, row := range []struct {
		says  string
		made  []job.Snapshot
		kind  problem.Kind
		words string
	}{
		{"none was made", nil, problem.Invalid, "found none"},
		{"of another tree", with(func(s *job.Snapshot) { s.Tree = "/other" }), problem.Invalid, "found none"},
		{"a relative path", with(func(s *job.Snapshot) { s.Path = "copy" }), problem.Invalid, "absolute"},
		{"a path that climbs", with(func(s *job.Snapshot) { s.Path = "/copy/../x" }), problem.Invalid, "absolute"},
		{"no path", with(func(s *job.Snapshot) { s.Path = "" }), problem.Invalid, "absolute"},
		{"a NUL byte", with(func(s *job.Snapshot) { s.Script = "/a\x00" }), problem.Invalid, "absolute"},
		{"a long path", with(func(s *job.Snapshot) { s.Path = "/" + strings.Repeat("x", maxDir) }), problem.Invalid, "absolute"},
		{"an id of other letters", with(func(s *job.Snapshot) { s.ID = "../x" }), problem.Invalid, "hexadecimal"},
		{"no id", with(func(s *job.Snapshot) { s.ID = "" }), problem.Invalid, "hexadecimal"},
		{"a commit that is not one", with(func(s *job.Snapshot) { s.Commit = "HEAD" }), problem.Invalid, "hexadecimal"},
		{"too many", slices.Repeat([]job.Snapshot{good}, maxSnapshots+1), problem.TooMuch, "at most"},
	} {
		t.Run(row.says, func(t *testing.T) {
			l.refused(api.SubmitRequest{Jobs: []api.Spec{sh("true", "snapshot", "/tree")}, Dir: "/", Snapshots: row.made}, row.kind, row.words)
		})
	}
	if _, err := api.Call(l.ctx, l.Client, api.Submit, api.SubmitRequest{Jobs: []api.Spec{sh("true", "snapshot", "auto")}, Dir: "/", DryRun: true}); err != nil {
		t.Errorf("a dry run needs no copy: %v", err)
	}
}

// TestAMissingSnapshotIsNoted: of a client that does not make them, where the
// config asks for them.
func TestAMissingSnapshotIsNoted(t *testing.T) {
	t.Parallel()
	l := newLab(t, with(func(c *config.Config) { c.Snapshot = true }))
	if status, err := api.Call(l.ctx, l.Client, api.GetStatus, api.None{}); err != nil || !status.Snapshot {
		t.Errorf("clients are not told: %+v %v", status, err)
	}
	for _, row := range []struct{ snapshot, note string }{{"", "this client made none"}, {"no", ""}} {
		reply, err := api.Call(l.ctx, l.Client, api.Submit, api.SubmitRequest{Jobs: []api.Spec{sh("true", "hold", "yes", "snapshot", row.snapshot)}, Dir: "/"})
		testkit.Must(t, err)
		if notes := strings.Join(reply.Jobs[0].Notes, "; "); !strings.Contains(notes, row.note) || (notes != "") != (row.note != "") {
			t.Errorf("snapshot=%s: %q", row.snapshot, notes)
		}
	}
}

// TestOtherCodeIsOtherWork: --dedup refuses the same command with the same code.
func TestOtherCodeIsOtherWork(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	submit := func(id string) error {
		_, err := api.Call(l.ctx, l.Client, api.Submit, api.SubmitRequest{Jobs: []api.Spec{sh("true", "hold", "yes", "dedup", "yes", "snapshot", "/tree")}, Dir: "/",
			Snapshots: []job.Snapshot{{Tree: "/tree", ID: id, Path: "/copy"}}})
		return err
	}
	testkit.Must(t, submit("a1"))
	wantProblem(t, submit("a1"), problem.Refused, "job 1 is the same")
	testkit.Must(t, submit("b2"))
}
