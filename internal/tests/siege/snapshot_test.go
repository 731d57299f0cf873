package siege

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"berth/internal/api"
	"berth/internal/job"
	"berth/internal/tests/testkit"
)

// Reaching another's code, or having it replaced, by way of a snapshot.
var snapshotAttacks = []attack{
	{"read another's code by way of its snapshot", func(t *testing.T, c *camp) {
		id, made := c.annCode(t, "read")
		code := filepath.Join(made.Path, "code.sh")
		if out, status := c.bob.sh(`cat "$1"; ls "$(dirname "$1")"`, code); status == 0 || strings.Contains(out, "today") {
			t.Errorf("bob reads it himself: %s", out)
		}
		way := filepath.Join(c.bob.home, "way-to-code")
		testkit.Must(t, c.bob.as(func() error { return os.Symlink(made.Path, way) }))
		for _, path := range []string{made.Path, way} {
			stolen := job.Snapshot{Tree: c.bob.home, ID: made.ID, Path: path}
			bobs := c.bob.submitFrom(t, map[string]any{"dir": c.bob.home, "snapshots": []job.Snapshot{stolen},
				"jobs": []spec{shell("cat code.sh").with("snapshot", c.bob.home)}})[0]
			if v := c.bob.ended(t, bobs); v.Outcome == nil || *v.Outcome != job.Launch || strings.Contains(c.bob.log(t, bobs).body, "today") {
				t.Errorf("a job of bob's in %s ended %s: %s", path, text(v.Outcome), text(v.Reason))
			}
		}
		if r := c.bob.mustAsk(t, "GET", "/v1/jobs/"+id, nil); strings.Contains(r.body, made.ID) || strings.Contains(r.body, made.Tree) {
			t.Errorf("bob is told of it: %s", r.body)
		}
		if r := c.cat.mustAsk(t, "GET", "/v1/snapshots", nil); r.status != 200 || strings.Contains(r.body, made.ID) {
			t.Errorf("cat is told of it: %s", r.body)
		}
		c.annRunsToday(t, id)
	}},
	{"put other code in the place of another's snapshot", func(t *testing.T, c *camp) {
		id, made := c.annCode(t, "replace")
		place := filepath.Dir(filepath.Dir(made.Path))
		for _, path := range []string{filepath.Join(made.Path, "code.sh"), filepath.Join(made.Path, "new"), filepath.Join(place, "new")} {
			if err := c.bob.as(func() error { return os.WriteFile(path, []byte("echo bob was here"), 0o755) }); err == nil {
				t.Errorf("bob wrote %s", path)
			}
		}
		if err := c.bob.as(func() error { return os.Rename(place, place+"-gone") }); err == nil {
			t.Error("bob moved it away")
		}
		c.annRunsToday(t, id)
		// A place that bob prepared is not used.
		shared, err := os.MkdirTemp(c.dir, "state-")
		testkit.Must(t, err)
		testkit.Must(t, os.Chmod(shared, 0o1777))
		for _, prepare := range []func() error{
			func() error { return os.Mkdir(filepath.Join(shared, "berth"), 0o700) },
			func() error { return os.Chmod(filepath.Join(shared, "berth"), 0o777) },
			func() error { return os.Mkdir(filepath.Join(shared, "berth", "snapshots"), 0o700) },
			func() error { return os.Chmod(filepath.Join(shared, "berth", "snapshots"), 0o777) },
		} {
			testkit.Must(t, c.bob.as(prepare))
			cmd := c.ann.command(filepath.Join(programs, "berth"), "submit", "--snapshot", "-C", made.Tree, "--", "true")
			cmd.Env = append(cmd.Env, "XDG_STATE_HOME="+shared)
			if out, status := outcome(cmd); status != 1 || !strings.Contains(out, "another user could replace the files in") {
				t.Errorf("in bob's place: status %d: %s", status, out)
			}
		}
	}},
	{"have root open a path that a snapshot names", func(t *testing.T, c *camp) {
		treasure := c.treasure(t, "root", 0o600)
		for _, path := range []string{filepath.Dir(treasure) + "/none", treasure, "/root/x", "/proc/1/root", "/dev/fd/3", "/etc/passwd"} {
			made := job.Snapshot{Tree: c.bob.home, ID: "ab", Path: path}
			id := c.bob.submitFrom(t, map[string]any{"dir": c.bob.home, "snapshots": []job.Snapshot{made},
				"jobs": []spec{shell("cat treasure").with("snapshot", c.bob.home)}})[0]
			if v := c.bob.ended(t, id); v.Outcome == nil || *v.Outcome != job.Launch {
				t.Errorf("in %s it ended %s: %s", path, text(v.Outcome), text(v.Reason))
			}
		}
		untouched(t, treasure)
	}},
}

// annCode is a waiting job of ann's with a snapshot of her code, which has changed
// since.
func (c *camp) annCode(t *testing.T, name string) (id string, made job.Snapshot) {
	t.Helper()
	tree := filepath.Join(c.ann.home, "code-"+name)
	write := func(text string) {
		testkit.Must(t, c.ann.as(func() error { return os.WriteFile(filepath.Join(tree, "code.sh"), []byte(text), 0o644) }))
	}
	testkit.Must(t, c.ann.as(func() error { return os.Mkdir(tree, 0o755) }))
	write("echo today of " + name + "\n(echo x > here) 2>&1 || echo closed\n")
	// Most homes can be entered by others, so the place has to protect itself.
	open := filepath.Join(c.dir, "state-of-ann-"+name)
	for _, dir := range []string{open, filepath.Join(open, "berth")} {
		testkit.Must(t, os.Mkdir(dir, 0o755))
		testkit.Must(t, os.Chown(dir, c.ann.uid, c.ann.gid))
	}
	cmd := c.ann.command(filepath.Join(programs, "berth"), "submit", "--hold", "-q", "--snapshot", "-C", tree, "--", "sh", "code.sh")
	cmd.Env = append(cmd.Env, "XDG_STATE_HOME="+open)
	out, status := outcome(cmd)
	if status != 0 {
		t.Fatalf("status %d: %s", status, out)
	}
	write("echo tomorrow\n")
	id = strings.TrimSpace(out)
	var detail api.Detail
	testkit.Must(t, json.Unmarshal([]byte(c.ann.mustAsk(t, "GET", "/v1/jobs/"+id, nil).body), &detail))
	if detail.Snapshot == nil || !strings.HasPrefix(detail.Snapshot.Path, open) {
		t.Fatalf("job %s has the snapshot %+v", id, detail.Snapshot)
	}
	return id, *detail.Snapshot
}

// annRunsToday checks that her job runs the code that she submitted, and cannot
// change it.
func (c *camp) annRunsToday(t *testing.T, id string) {
	t.Helper()
	if out, status := c.ann.berth("release", id); status != 0 {
		t.Fatalf("status %d: %s", status, out)
	}
	c.ann.ended(t, id)
	if log := c.ann.log(t, id).body; !strings.HasPrefix(log, "today of ") || !strings.HasSuffix(log, "closed\n") {
		t.Errorf("her job said %q", log)
	}
}
