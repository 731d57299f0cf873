package daemon

import (
	"bytes"
	"slices"
	"strings"
	"testing"

	"berth/internal/api"
	"berth/internal/machine/gpu"
	"berth/internal/queue/config"
	"berth/internal/tests/testkit"
	"berth/internal/text/problem"
)

func TestOnlyAnAdministratorReloads(t *testing.T) {
	t.Parallel()
	l := newSharedLab(t)
	bob, root := l.as("nobody"), l.as("root")
	text := "[limits]\ngpus = 1"
	for _, r := range []api.ReloadRequest{{}, {DryRun: true}, {DryRun: true, Text: &text}} {
		_, err := l.d.admin.Reload(l.ctx, bob.Caller, r)
		wantProblem(t, err, problem.Forbidden, "administrator")
	}
	_, err := l.d.admin.Reload(l.ctx, root.Caller, api.ReloadRequest{Text: &text})
	wantProblem(t, err, problem.Invalid, "only with dry_run")
	long := strings.Repeat("#", config.MaxBytes+1)
	_, err = l.d.admin.Reload(l.ctx, root.Caller, api.ReloadRequest{DryRun: true, Text: &long})
	wantProblem(t, err, problem.TooMuch, "at most")
	reply, err := l.d.admin.Reload(l.ctx, root.Caller, api.ReloadRequest{DryRun: true, Text: &text})
	if err != nil || !slices.Equal(reply.Changed, []string{"limits.gpus"}) || l.d.svc.Config().Limits.Default.GPUs.Amount != 0 {
		t.Errorf("tried: %+v, %v, and %+v is in force", reply, err, l.d.svc.Config().Limits)
	}
	if _, err = l.d.admin.Reload(l.ctx, root.Caller, api.ReloadRequest{}); err != nil {
		t.Fatal(err)
	}
	audit := testkit.Read(t, l.opt.Places.StateDir+"/audit.jsonl")
	if !strings.Contains(audit, `"action":"config reload","result":"only an`) || !strings.Contains(audit, `"action":"config reload","detail":"no changes","result":"ok"`) {
		t.Errorf("the audit says %s", audit)
	}
}

// TestAUserWhoDoesNotExistIsSaidSo: at the start, and whenever a config is read
// again or tried. It is no mistake.
func TestAUserWhoDoesNotExistIsSaidSo(t *testing.T) {
	t.Parallel()
	var said bytes.Buffer
	l := newLab(t, with(func(c *config.Config) {
		c.Limits.Users = map[string]config.UserLimit{"nosuchuser": {Jobs: 1}, "root": {Jobs: 1}}
	}), func(o *Options) { o.Out = &said })
	const want = "limits.users.nosuchuser: there is no user nosuchuser, so these limits apply to nobody"
	text := "[limits.users.nosuchuser]\ngpus = 1\n[limits.users.root]\nqueued_jobs = 1\n"
	reply, err := l.d.admin.Reload(l.ctx, api.Caller{Admin: true}, api.ReloadRequest{DryRun: true, Text: &text})
	if err != nil || !slices.Equal(reply.Warnings, []string{want}) {
		t.Errorf("tried: %q, %v", reply.Warnings, err)
	}
	l.stop()
	if !strings.Contains(said.String(), "warning: "+want+"\n") || !strings.Contains(testkit.Read(t, l.opt.Places.StateDir+"/berth.log"), want) {
		t.Errorf("it says %q", said.String())
	}
}

// TestAGPUThatDoesNotExistIsSaidSo: at the start, in the status and so by doctor.
func TestAGPUThatDoesNotExistIsSaidSo(t *testing.T) {
	t.Parallel()
	var said bytes.Buffer
	l := newLab(t, with(func(c *config.Config) { c.GPUs = []int{1, 9} }), func(o *Options) { o.Out = &said })
	want := "scheduling.gpus names GPU 9, which does not exist; this machine has 0, 1"
	if s, err := api.Call(l.ctx, l.Client, api.GetStatus, api.None{}); err != nil || !slices.Equal(s.Warnings, []string{want}) {
		t.Errorf("the status warns of %q, %v", s.Warnings, err)
	}
	l.stop()
	if !strings.Contains(said.String(), "warning: "+want+"\n") || !strings.Contains(testkit.Read(t, l.opt.Places.StateDir+"/berth.log"), want) {
		t.Errorf("it says %q", said.String())
	}
	both := []gpu.Device{{Index: 0}, {Index: 1}}
	for name, row := range map[string]struct {
		wanted []int
		there  []gpu.Device
		want   int
	}{
		"all": {nil, both, 0}, "some": {[]int{1}, both, 0}, "one too many": {[]int{1, 7}, both, 1}, "none of them": {[]int{7, 9}, both, 3}, "nothing was read": {[]int{7}, nil, 0},
	} {
		if got := missingGPUs(row.wanted, row.there); len(got) != row.want {
			t.Errorf("%s: %q", name, got)
		}
	}
}
