package access

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
)

func openAuditIn(t *testing.T, dir string) *Audit {
	t.Helper()
	a, err := OpenAudit(filepath.Join(dir, "audit.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { a.Close() })
	return a
}

// entriesOf reads a file; every line of it has to be whole.
func entriesOf(t *testing.T, path string) []Entry {
	t.Helper()
	file, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	var found []Entry
	lines := bufio.NewScanner(file)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var e Entry
		if err := json.Unmarshal(lines.Bytes(), &e); err != nil {
			t.Fatalf("%s: %v in %q", path, err, lines.Text())
		}
		found = append(found, e)
	}
	if err := lines.Err(); err != nil {
		t.Fatal(err)
	}
	return found
}

func TestAuditKeepsWhoDidWhat(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	at := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	want := []Entry{
		{Time: at, UID: 1000, User: "ann", PID: 7, Via: "socket", Action: "cancel", Jobs: []string{"17", "18_3"}, Result: "ok"},
		{Time: at, UID: 1001, User: "eve", Via: "k3yd", Action: "cancel", Jobs: []string{"17"}, Detail: "a\nb\x1b[2J", Result: "job 17 is ann's"},
	}
	a := openAuditIn(t, dir)
	a.Record(want[0])
	a.Close()
	a.Record(want[0]) // too late; dropped, not fatal
	a = openAuditIn(t, dir)
	a.Record(want[1])
	if diff := cmp.Diff(want, entriesOf(t, a.path)); diff != "" {
		t.Error(diff)
	}
	info, err := os.Stat(a.path)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("mode %v, %v", info.Mode(), err)
	}
}

func TestAuditLinesAreBounded(t *testing.T) {
	t.Parallel()
	a := openAuditIn(t, t.TempDir())
	many := make([]string, 5000)
	for i := range many {
		many[i] = strconv.Itoa(i)
	}
	a.Record(Entry{Action: "cancel", Jobs: many, Detail: strings.Repeat("x", 1<<20), Result: strings.Repeat("y", 1<<20)})
	got := entriesOf(t, a.path)[0]
	if len(got.Jobs) != auditJobs || got.Count != 5000 || got.Jobs[99] != "99" {
		t.Errorf("%d jobs of %d", len(got.Jobs), got.Count)
	}
	if a.size > 3*auditDetail {
		t.Errorf("one line of %d bytes", a.size)
	}
	if got.Time.IsZero() {
		t.Error("no time was filled in")
	}
}

func TestAuditTakesManyAtOnceAndRotates(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	a := openAuditIn(t, dir)
	a.limit = 4096
	var wait sync.WaitGroup
	for user := range 8 {
		wait.Go(func() {
			for range 100 {
				a.Record(Entry{UID: user, Action: "submit", Result: "ok"})
			}
		})
	}
	wait.Wait()
	files := mustGlob(t, a.path+"*")
	if len(files) != 1+auditFiles {
		t.Fatal(files)
	}
	total := 0
	for _, path := range files {
		info, err := os.Stat(path)
		if err != nil || info.Size() > a.limit {
			t.Errorf("%s: %d bytes, %v", path, info.Size(), err)
		}
		total += len(entriesOf(t, path))
	}
	if total == 0 || total > 800 || a.unwritten() != 0 {
		t.Errorf("%d entries, %d unwritten", total, a.unwritten())
	}
}

func TestAuditLosesNoOldFileWhenItCannotRotate(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	a := openAuditIn(t, dir)
	a.limit = 300
	for i := 0; len(mustGlob(t, a.path+".*")) < auditFiles; i++ {
		a.Record(Entry{UID: i, Action: "submit", Result: "ok"})
	}
	old := [][]Entry{entriesOf(t, a.path+".1"), entriesOf(t, a.path+".2"), entriesOf(t, a.path+".3")}
	// A directory with something in it stands where the oldest has to go.
	oldest := a.path + ".4"
	if err := os.Remove(oldest); err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(filepath.Join(oldest, "in the way"), 0o700); err != nil {
		t.Fatal(err)
	}
	for range 50 {
		a.Record(Entry{Action: "submit", Result: "ok"})
	}
	if a.unwritten() == 0 || a.size > a.limit {
		t.Fatalf("%d entries in all not written, %d bytes in the file", a.unwritten(), a.size)
	}
	for i, want := range old {
		if diff := cmp.Diff(want, entriesOf(t, fmt.Sprintf("%s.%d", a.path, i+1))); diff != "" {
			t.Errorf("old file %d: %s", i+1, diff)
		}
	}
	if err := os.RemoveAll(oldest); err != nil {
		t.Fatal(err)
	}
	for range 50 {
		a.Record(Entry{Action: "submit", Result: "ok"})
	}
	if a.unwritten() != 0 {
		t.Error("it does not go on when it can")
	}
	for n := range auditFiles {
		entriesOf(t, fmt.Sprintf("%s.%d", a.path, n+1))
	}
}

func mustGlob(t *testing.T, pattern string) []string {
	t.Helper()
	found, err := filepath.Glob(pattern)
	if err != nil {
		t.Fatal(err)
	}
	return found
}

func TestAuditEndsALineThatACrashCutOff(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path := filepath.Join(dir, "audit.jsonl")
	if err := os.WriteFile(path, []byte(`{"uid":1}`+"\n"+`{"uid":2,"us`), 0o644); err != nil {
		t.Fatal(err)
	}
	a := openAuditIn(t, dir)
	a.Record(Entry{UID: 3, Action: "hold", Result: "ok"})
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")
	if len(lines) != 3 || !json.Valid([]byte(lines[2])) {
		t.Errorf("%q", text)
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("others may still read it: %v, %v", info.Mode(), err)
	}
}

func TestAuditFollowsNoLink(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := os.Symlink(filepath.Join(dir, "elsewhere"), filepath.Join(dir, "audit.jsonl")); err != nil {
		t.Fatal(err)
	}
	if a, err := OpenAudit(filepath.Join(dir, "audit.jsonl")); err == nil {
		a.Close()
		t.Error("a link was followed")
	}
}

// TestAuditOnAFullDisk gives the audit a disk of its own.
func TestAuditOnAFullDisk(t *testing.T) {
	t.Parallel()
	if os.Getuid() != 0 {
		t.Skip("needs root: a disk that can be filled")
	}
	dir := t.TempDir()
	if err := unix.Mount("berth-test", dir, "tmpfs", 0, "size=64k"); err != nil {
		t.Skipf("no disk to fill: %v", err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(dir, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	a := openAuditIn(t, dir)
	t.Cleanup(func() { a.Close() })
	ballast := filepath.Join(dir, "ballast")
	if err := os.WriteFile(ballast, make([]byte, 40<<10), 0o600); err != nil {
		t.Fatal(err)
	}
	recorded := 0
	at := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC) // lines of one length: none fits where another did not
	for a.unwritten() < 5 && recorded < 10_000 {
		a.Record(Entry{Time: at, UID: 1000 + recorded, Action: "submit", Detail: strings.Repeat("x", 300), Result: "ok"})
		recorded++
	}
	written := len(entriesOf(t, a.path))
	if written != recorded-5 {
		t.Fatalf("%d of %d written, 5 not", written, recorded)
	}
	if err := os.Remove(ballast); err != nil {
		t.Fatal(err)
	}
	a.Record(Entry{UID: 1000 + recorded, Action: "submit", Result: "ok"})
	got := entriesOf(t, a.path)[written:]
	if len(got) != 2 || got[0].Action != "audit" || !strings.Contains(got[0].Detail, fmt.Sprint(5)) || got[1].UID != 1000+recorded {
		t.Errorf("%+v", got)
	}
	if a.unwritten() != 0 {
		t.Error("what was told is still counted")
	}
}

// unwritten is how many entries the audit could not take since the last it
// did.
func (a *Audit) unwritten() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.missed
}
