package session

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"berth/internal/queue"
	"berth/internal/queue/batch"
	"berth/internal/queue/store"
	"berth/internal/tests/testkit"
)

// TestACommandIsRepeatedAsItIsTyped: the flag that says which queue is meant goes
// before the words of a job's own command.
func TestACommandIsRepeatedAsItIsTyped(t *testing.T) {
	for typed, want := range map[string]string{
		"why|3":                    "berth why 3 --log-dir -",
		"cancel|--name|my sweep*":  "berth cancel --name 'my sweep*' --log-dir -",
		"requeue|3|--|sh|-c|it's":  `berth requeue 3 --log-dir - -- sh -c 'it'\''s'`,
		"logs|":                    "berth logs '' --log-dir -",
		"show|--json|17_3":         "berth show --json 17_3 --log-dir -",
		"cancel|--name|$(reboot);": "berth cancel --name '$(reboot);' --log-dir -",
	} {
		if got := commandWith(strings.Split(typed, "|"), Target{}.flag()); got != want {
			t.Errorf("%s: %s, want %s", typed, got, want)
		}
	}
}

// TestARunIsNamedFromHere: as short as it can be typed.
func TestARunIsNamedFromHere(t *testing.T) {
	home := t.TempDir()
	t.Setenv("HOME", home)
	t.Chdir(home)
	at := func(dir string) Target { return Target{Run: &RunTarget{Place: batch.Place{LogDir: dir}}} }
	for dir, want := range map[string][2]string{
		filepath.Join(home, "berth_logs"):        {"berth run in this directory", "--log-dir berth_logs"},
		filepath.Join(home, "exp", "berth_logs"): {"berth run in exp", "--log-dir exp/berth_logs"},
		"/data/out":                              {"berth run in /data/out", "--log-dir /data/out"},
		"/data/my run/berth_logs":                {"berth run in /data/my run", "--log-dir '/data/my run/berth_logs'"},
	} {
		if got := [2]string{at(dir).Title(), at(dir).flag()}; got != want {
			t.Errorf("%s: %q, want %q", dir, got, want)
		}
	}
	t.Chdir(t.TempDir())
	run := at(filepath.Join(home, "my exp", "berth_logs"))
	if got := [2]string{run.Title(), run.flag()}; got != [2]string{"berth run in ~/my exp", "--log-dir ~/'my exp/berth_logs'"} {
		t.Errorf("from elsewhere: %q", got)
	}
}

// TestADaemonThatMayNotBeStartedIsNotMeant: it does not stand between a user and the
// runs that go on.
func TestADaemonThatMayNotBeStartedIsNotMeant(t *testing.T) {
	dir := t.TempDir()
	file := store.Path(queue.StoreDir(dir))
	testkit.Must(t, os.MkdirAll(filepath.Dir(file), 0o700))
	testkit.Must(t, os.WriteFile(file, nil, 0o600))
	for off, want := range map[string]bool{"": true, "1": false} {
		t.Setenv("BERTH_NO_AUTOSTART", off)
		if got := (Target{Private: true, StateDir: dir, Socket: filepath.Join(dir, "berth.sock")}).used(); got != want {
			t.Errorf("BERTH_NO_AUTOSTART=%s: %v", off, got)
		}
	}
}
