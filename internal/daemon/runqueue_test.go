package daemon

import (
	"os"
	"path/filepath"
	"testing"

	"berth/internal/api"
	"berth/internal/engine"
	"berth/internal/engine/launch"
	"berth/internal/engine/settings"
	"berth/internal/gpu"
	"berth/internal/machine"
	"berth/internal/problem"
	"berth/internal/sched"
	"berth/internal/site"
)

// TestARunAnswersItsOwnUserOnly: nobody else reaches its socket, nor is answered
// there, and a token means nothing to it.
func TestARunAnswersItsOwnUserOnly(t *testing.T) {
	t.Setenv("BERTH_LEDGER_DIR", t.TempDir())
	dir := t.TempDir()
	m, err := machine.Open(t.Context(), machine.Setup{
		StateDir: dir, MPSDir: dir, Log: machine.Log{Path: filepath.Join(dir, "berth.log"), MaxBytes: 1 << 20, Level: "info"},
		Sim: 1, SimVRAMMiB: 1000, Getenv: func(string) string { return "" },
		Launcher: launch.Launcher{JobsDir: filepath.Join(dir, "jobs"), Dir: "/"},
		Choose:   func(_ *machine.Machine, first gpu.Sample, err error) ([]gpu.Device, error) { return first.Devices, err },
	})
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	home := []string{"XDG_STATE_HOME=" + t.TempDir(), "XDG_CONFIG_HOME=" + dir}
	runs, err := site.RunsOf(func(name string) string { return lookup(home, name) })
	if err != nil {
		t.Fatal(err)
	}
	q := RunQueue{LogDir: dir, StateDir: dir, JobsDir: filepath.Join(dir, "jobs"), Env: home, Machine: m, Engine: m.Engine(engine.Config{Settings: settings.Settings{Rules: sched.DefaultRules()}}, 0)}
	publish, done, err := ServeRun(q)
	if err != nil {
		t.Fatal(err)
	}
	publish(nil)
	info, err := os.Lstat(RunSocket(dir))
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the socket: %v, %v", info, err)
	}
	if listed := runs.Running(); len(listed) != 1 || listed[0] != dir {
		t.Errorf("listed: %q", listed)
	}
	backend := runQueue{d: q.daemon(), logDir: dir}
	for name, peer := range map[string]api.Peer{"another user": {UID: os.Getuid() + 12345}, "a token": {UID: -1, Secret: "berth_x"}} {
		if _, err := backend.Identify(t.Context(), peer); problem.KindOf(err) != problem.Forbidden && problem.KindOf(err) != problem.Refused {
			t.Errorf("%s is answered: %v", name, err)
		}
	}
	c, err := backend.Identify(t.Context(), api.Peer{UID: os.Getuid()})
	if err != nil || !c.Admin {
		t.Errorf("its user: %+v, %v", c, err)
	}
	done()
	if _, err := os.Lstat(RunSocket(dir)); !os.IsNotExist(err) {
		t.Errorf("after its end: %v", err)
	}
	if listed := runs.Running(); len(listed) != 0 {
		t.Errorf("listed after its end: %q", listed)
	}
}

// TestARunRefusesWhatItsFileDecides: each request that would change the queue
// behind the jobs file's back is refused, with what to do instead.
func TestARunRefusesWhatItsFileDecides(t *testing.T) {
	q, ctx, c := runQueue{d: &Daemon{}, logDir: "berth_logs"}, t.Context(), api.Caller{}
	refusals := map[string]func() error{
		"submit":       func() error { _, err := q.Submit(ctx, c, api.SubmitRequest{}); return err },
		"edit":         func() error { _, err := q.Edit(ctx, c, "1", api.EditRequest{}); return err },
		"hold":         func() error { _, err := q.Act(ctx, c, api.ActRequest{Action: api.ActHold}); return err },
		"requeue":      func() error { _, err := q.Act(ctx, c, api.ActRequest{Action: api.ActRequeue}); return err },
		"adopt":        func() error { _, err := q.Adopt(ctx, c, api.AdoptRequest{}); return err },
		"adopt strays": func() error { _, err := q.AdoptStrays(ctx, c, api.AdoptStraysRequest{}); return err },
		"gpu drain": func() error {
			_, err := q.DrainGPU(ctx, c, 0, api.DrainRequest{})
			return err
		},
		"gpu pause":   func() error { _, err := q.PauseGPU(ctx, c, 0, true); return err },
		"gpu health":  func() error { _, err := q.SetHealth(ctx, c, 0, api.HealthRequest{}); return err },
		"gpu release": func() error { _, err := q.ReleaseGPUs(ctx, c, api.ReleaseRequest{}); return err },
		"reload":      func() error { _, err := q.Reload(ctx, c, api.ReloadRequest{}); return err },
		"backup":      func() error { return q.Backup(ctx, c, nil) },
		"token":       func() error { _, err := q.NewToken(ctx, c, api.TokenRequest{}); return err },
	}
	for name, ask := range refusals {
		err := ask()
		p, ok := err.(*problem.Problem)
		if !ok || p.Kind != problem.Refused || p.Hint == "" {
			t.Errorf("%s: %+v", name, err)
		}
	}
}
