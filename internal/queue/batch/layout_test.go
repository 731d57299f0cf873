package batch

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"berth/internal/queue"
	"berth/internal/queue/store"
	"berth/internal/tests/testkit"
)

func isNetwork(answer bool) func(string) (bool, error) {
	return func(string) (bool, error) { return answer, nil }
}

func TestLayoutOnALocalDisk(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "a", "logs")
	l, err := openLayout(dir, "/nowhere", isNetwork(false))
	if err != nil {
		t.Fatal(err)
	}
	if l.logDir != dir || l.state != dir {
		t.Errorf("%+v", l)
	}
	if _, err := os.Stat(l.jobsDir()); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(filepath.Join(dir, pointerName)); !os.IsNotExist(err) {
		t.Errorf("it points elsewhere: %v", err)
	}
}

func TestLayoutOnANetworkFileSystem(t *testing.T) {
	t.Parallel()
	dir, home := filepath.Join(t.TempDir(), "logs"), filepath.Join(t.TempDir(), "state")
	l, err := openLayout(dir, home, isNetwork(true))
	if err != nil {
		t.Fatal(err)
	}
	if !strings.HasPrefix(l.state, home+"/") {
		t.Errorf("%s is not below %s", l.state, home)
	}
	for _, path := range []string{l.jobsDir(), l.journal(), l.board(), l.log()} {
		if !strings.HasPrefix(path, dir+"/") {
			t.Errorf("%s is not below %s", path, dir)
		}
	}
	if pointer := testkit.Read(t, filepath.Join(dir, pointerName)); !strings.HasSuffix(pointer, ":"+l.state+"\n") {
		t.Errorf("the pointer says %q", pointer)
	}
	info, err := os.Stat(l.state)
	if err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("state directory: %v, %v", info, err)
	}
	same, err := openLayout(dir, home, isNetwork(true))
	if err != nil || same != l {
		t.Errorf("the next run finds %+v, %v", same, err)
	}
	other, err := openLayout(dir+"2", home, isNetwork(true))
	if err != nil || other.state == l.state {
		t.Errorf("another log directory shares its state: %+v, %v", other, err)
	}
}

func TestLayoutThatCannotBe(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	testkit.Write(t, filepath.Join(dir, "file"), "")
	if _, err := openLayout(filepath.Join(dir, "file", "logs"), dir, isNetwork(false)); err == nil {
		t.Error("a log directory below a file")
	}
	broken := errors.New("stale handle")
	if _, err := openLayout(filepath.Join(dir, "logs"), dir, func(string) (bool, error) { return false, broken }); !errors.Is(err, broken) {
		t.Errorf("a file system that does not answer: %v", err)
	}
}

func TestADirectoryThatLiesTooDeepIsRefusedBeforeItIsMade(t *testing.T) {
	t.Parallel()
	base := t.TempDir()
	deep := func(length int) string {
		dir := base
		for length-len(dir) > 150 {
			dir += "/" + strings.Repeat("d", 99)
		}
		return dir + "/" + strings.Repeat("e", length-len(dir)-1)
	}
	longest, longer := deep(maxDirBytes), deep(maxDirBytes+1)
	l, err := openLayout(longest, base, isNetwork(false))
	if err != nil {
		t.Fatal(err)
	}
	st, err := store.Open(queue.StoreDir(l.state))
	if err != nil {
		t.Fatalf("the longest path that is allowed does not work: %v", err)
	}
	st.Close()
	for name, open := range map[string]func() (layout, error){
		"log directory":   func() (layout, error) { return openLayout(longer, base, isNetwork(false)) },
		"state directory": func() (layout, error) { return openLayout(filepath.Join(base, "logs"), longer, isNetwork(true)) },
	} {
		if _, err := open(); err == nil || !strings.Contains(err.Error(), name+" ") || !strings.Contains(err.Error(), "at most 470 bytes") {
			t.Errorf("%s: it says %v", name, err)
		}
	}
	if _, err := os.Stat(longer); !os.IsNotExist(err) {
		t.Errorf("it was made: %v", err)
	}
}

func TestStateHome(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name string
		env  map[string]string
		want string
	}{
		{"where the user says", map[string]string{"XDG_STATE_HOME": "/x", "HOME": "/home/ann"}, "/x/berth"},
		{"a relative path says nothing", map[string]string{"XDG_STATE_HOME": "x", "HOME": "/home/ann"}, "/home/ann/.local/state/berth"},
		{"else at home", map[string]string{"HOME": "/home/ann"}, "/home/ann/.local/state/berth"},
	}
	for _, test := range tests {
		if got := stateHome(func(name string) string { return test.env[name] }); got != test.want {
			t.Errorf("%s: %s, want %s", test.name, got, test.want)
		}
	}
	if got := stateHome(func(string) string { return "" }); !filepath.IsAbs(got) {
		t.Errorf("without a home: %s", got)
	}
}

func TestSetAside(t *testing.T) {
	t.Parallel()
	fresh := func(t *testing.T) layout {
		l, err := openLayout(filepath.Join(t.TempDir(), "logs"), "", isNetwork(false))
		if err != nil {
			t.Fatal(err)
		}
		return l
	}
	t.Run("nothing to set aside makes no directory", func(t *testing.T) {
		l := fresh(t)
		testkit.Write(t, l.journal(), "") // opened, nothing in it
		moved, err := l.archive(at0)
		if err != nil || moved != "" {
			t.Errorf("moved to %q, %v", moved, err)
		}
		if entries, _ := os.ReadDir(l.logDir); len(entries) != 2 {
			t.Errorf("there are %v", entries)
		}
	})
	t.Run("everything that was written is kept", func(t *testing.T) {
		l := fresh(t)
		testkit.Write(t, l.journal(), "old journal")
		testkit.Write(t, l.board(), "old board")
		if err := os.Mkdir(filepath.Join(l.jobsDir(), "1"), 0o755); err != nil {
			t.Fatal(err)
		}
		testkit.Write(t, filepath.Join(l.jobsDir(), "1", "1.log"), "old log")
		moved, err := l.archive(at0)
		if err != nil || moved != "old-20260314-150926" {
			t.Fatalf("moved to %q, %v", moved, err)
		}
		old := filepath.Join(l.logDir, moved)
		if testkit.Read(t, filepath.Join(old, "journal.jsonl")) != "old journal" || testkit.Read(t, filepath.Join(old, "status.txt")) != "old board" ||
			testkit.Read(t, filepath.Join(old, "jobs", "1", "1.log")) != "old log" {
			t.Error("something is not there")
		}
		if entries, err := os.ReadDir(l.jobsDir()); err != nil || len(entries) != 0 {
			t.Errorf("the new jobs directory: %v, %v", entries, err)
		}
		// Twice in one second has two names.
		testkit.Write(t, l.journal(), "newer")
		if again, err := l.archive(at0); err != nil || again != "old-20260314-150926-2" {
			t.Errorf("moved to %q, %v", again, err)
		}
	})
}

func TestTheQueueOfALogDirectoryIsFound(t *testing.T) {
	t.Parallel()
	queue := func(logs, home string, remote bool) layout {
		l, err := openLayout(logs, home, isNetwork(remote))
		testkit.Must(t, err)
		testkit.Must(t, os.MkdirAll(queue.StoreDir(l.state), 0o700))
		testkit.Write(t, store.Path(queue.StoreDir(l.state)), "")
		return l
	}
	dir := t.TempDir()
	local, far := queue(dir+"/local", "/nowhere", false), queue(dir+"/far", dir+"/state", true)
	for _, l := range []layout{local, far} {
		if found, err := find(l.logDir, isNetwork(l != local)); err != nil || found != l.place() {
			t.Errorf("%s: found %+v, %v", l.logDir, found, err)
		}
	}
	// A directory that moved from a network to a local disk is itself the queue.
	if _, err := find(far.logDir, isNetwork(false)); !errors.Is(err, errNoRun) {
		t.Errorf("a stale pointer is followed: %v", err)
	}
	testkit.Write(t, far.logDir+"/"+pointerName, "elsewhere:"+far.state+"\n")
	if _, err := find(far.logDir, isNetwork(true)); err == nil || !strings.Contains(err.Error(), "is on the machine elsewhere") {
		t.Errorf("a queue of another machine: %v", err)
	}
	testkit.Must(t, os.Mkdir(dir+"/empty", 0o755))
	if _, err := find(dir+"/empty", isNetwork(false)); !errors.Is(err, errNoRun) {
		t.Errorf("an empty directory: %v", err)
	}
	if os.Getuid() == 0 {
		testkit.Must(t, os.Chown(local.logDir, 12345, 12345))
		if _, err := find(local.logDir, isNetwork(false)); err == nil || !strings.Contains(err.Error(), "belongs to user 12345") {
			t.Errorf("a queue of another user: %v", err)
		}
	}
}

// TestAJobsFileHasOneName, whichever way leads to it, so that its lines do not run
// twice and every verb selects them.
func TestAJobsFileHasOneName(t *testing.T) {
	t.Parallel()
	dir, err := filepath.EvalSymlinks(t.TempDir())
	testkit.Must(t, err)
	testkit.Must(t, os.MkdirAll(filepath.Join(dir, "real", "logs"), 0o755))
	testkit.Must(t, os.Symlink("real", filepath.Join(dir, "link")))
	for _, test := range []struct{ dir, path, want string }{
		{"real", "jobs.txt", "real/jobs.txt"},
		{"link", "jobs.txt", "real/jobs.txt"},
		{"link", "logs/../jobs.txt", "real/jobs.txt"},
		{".", "link/logs/jobs.txt", "real/logs/jobs.txt"},
		{"none", "jobs.txt", "none/jobs.txt"},
		{"link/logs", fromPipe, "real/logs/-"},
		{"link", "./logs/" + pipedName, "real/logs/-"},
	} {
		if got := FileName(filepath.Join(dir, test.dir), test.path); got != filepath.Join(dir, test.want) {
			t.Errorf("%s in %s is %s, want %s", test.path, test.dir, got, test.want)
		}
	}
}
