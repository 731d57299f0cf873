package gpu

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"berth/internal/tests/testkit"
)

func openLedger(t testing.TB, dir, instance string) *Ledger {
	t.Helper()
	l, err := OpenLedger(dir, instance)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.lock.Close() })
	return l
}

func lockLedger(t testing.TB, l *Ledger) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), testkit.Patience)
	defer cancel()
	if err := l.Lock(ctx); err != nil {
		t.Fatal(err)
	}
}

func publish(t testing.TB, l *Ledger, own ...Entry) {
	t.Helper()
	if err := l.Publish(own); err != nil {
		t.Fatal(err)
	}
}

func otherKeys(t testing.TB, l *Ledger) (keys []string) {
	t.Helper()
	entries, err := l.Others()
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		keys = append(keys, e.Key)
	}
	return keys
}

func booked(key string) Entry {
	return Entry{Key: key, UUIDs: []string{"GPU-x"}, BudgetMiB: []int64{1000}}
}

func TestLedgerShowsTheReservationsOfOthers(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "ledger")
	a, b := openLedger(t, dir, "a"), openLedger(t, dir, "b")
	want := booked("a/1")
	want.User, want.Name, want.Share, want.Alone, want.Exclusive = "ann", "train", 0.5, true, true
	publish(t, a, want)
	got, err := b.Others()
	if err != nil {
		t.Fatal(err)
	}
	want.HolderPID = os.Getpid()
	want.HolderStart, _ = processStart(os.Getpid())
	if diff := cmp.Diff([]Entry{want}, got); diff != "" {
		t.Error(diff)
	}
	if keys := otherKeys(t, a); keys != nil {
		t.Errorf("a berth sees itself: %v", keys)
	}
	publish(t, a)
	if keys := otherKeys(t, b); keys != nil {
		t.Errorf("withdrawn and still there: %v", keys)
	}
}

func TestLedgerReadsAFileAgainWhenItChanged(t *testing.T) {
	dir := t.TempDir()
	a, b := openLedger(t, dir, "a"), openLedger(t, dir, "b")
	for i := range 50 {
		key := fmt.Sprintf("a/%d", 100+i)
		publish(t, a, booked(key))
		if keys := otherKeys(t, b); !cmp.Equal(keys, []string{key}) {
			t.Fatalf("%v, want %s", keys, key)
		}
	}
}

func TestLedgerDoesNotTrustAFreshFileToStayTheSame(t *testing.T) {
	dir := t.TempDir()
	a, b := openLedger(t, dir, "a"), openLedger(t, dir, "b")
	publish(t, a, booked("a/1"))
	first, err := os.ReadFile(a.ownPath())
	if err != nil {
		t.Fatal(err)
	}
	later := time.Now().Add(time.Hour) // fresh however slowly this test runs
	for _, key := range []string{"a/1", "a/2"} {
		testkit.Write(t, a.ownPath(), strings.Replace(string(first), "a/1", key, 1))
		if err := os.Chtimes(a.ownPath(), later, later); err != nil {
			t.Fatal(err)
		}
		if keys := otherKeys(t, b); !cmp.Equal(keys, []string{key}) {
			t.Errorf("%v, want %s", keys, key)
		}
	}
}

func TestLedgerPublishesOnlyChanges(t *testing.T) {
	dir := t.TempDir()
	a := openLedger(t, dir, "a")
	stat := func() fs.FileInfo {
		info, err := os.Stat(a.ownPath())
		if err != nil {
			t.Fatal(err)
		}
		return info
	}
	publish(t, a, booked("a/1"))
	before := stat()
	publish(t, a, booked("a/1"))
	if !os.SameFile(before, stat()) {
		t.Error("the same reservations were written again")
	}
	if err := os.Remove(a.ownPath()); err != nil {
		t.Fatal(err)
	}
	publish(t, a, booked("a/1"))
	stat()
	if left, _ := filepath.Glob(filepath.Join(dir, ".*")); len(left) != 0 {
		t.Errorf("left behind: %v", left)
	}
}

func TestLedgerIgnoresTheDead(t *testing.T) {
	dir := t.TempDir()
	a, b := openLedger(t, dir, "a"), openLedger(t, dir, "b")
	holder := startUser(t, openSim(t, 1))
	startTicks, err := processStart(holder.pid())
	if err != nil {
		t.Fatal(err)
	}
	entry := booked("a/1")
	entry.HolderPID, entry.HolderStart = holder.pid(), startTicks
	impostor := booked("a/2")
	impostor.HolderPID, impostor.HolderStart = holder.pid(), startTicks+1
	publish(t, a, entry, impostor)
	if keys := otherKeys(t, b); !cmp.Equal(keys, []string{"a/1"}) {
		t.Errorf("a pid used again was taken for its former owner: %v", keys)
	}
	holder.kill()
	if keys := otherKeys(t, b); keys != nil {
		t.Errorf("a dead holder: %v", keys)
	}
	if _, err := os.Stat(a.ownPath()); err != nil {
		t.Errorf("removed outside the lock: %v", err)
	}
	lockLedger(t, b)
	otherKeys(t, b)
	b.Unlock()
	if _, err := os.Stat(a.ownPath()); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a file of the dead stays: %v", err)
	}
}

func TestLedgerIgnoresAnotherBootAndLeavesContainersAlone(t *testing.T) {
	dir := t.TempDir()
	a, b := openLedger(t, dir, "a"), openLedger(t, dir, "b")
	for _, change := range []struct {
		what   string
		apply  func()
		stays  bool
		origin func()
	}{
		{"another boot", func() { a.bootID += "x" }, false, func() { a.bootID = b.bootID }},
		{"another container", func() { a.pidSpace += "x" }, true, func() { a.pidSpace = b.pidSpace }},
	} {
		change.apply()
		publish(t, a, booked("a/1"))
		lockLedger(t, b)
		if keys := otherKeys(t, b); keys != nil {
			t.Errorf("%s: %v", change.what, keys)
		}
		b.Unlock()
		if _, err := os.Stat(a.ownPath()); (err == nil) != change.stays {
			t.Errorf("%s: %v", change.what, err)
		}
		change.origin()
	}
}

func TestLedgerSurvivesGarbage(t *testing.T) {
	dir := t.TempDir()
	a, b := openLedger(t, dir, "a"), openLedger(t, dir, "b")
	publish(t, a, booked("a/1"))
	path := func(name string) string { return filepath.Join(dir, name) }
	good, err := os.ReadFile(a.ownPath())
	if err != nil {
		t.Fatal(err)
	}
	edit := func(change func(f *ledgerFile)) string {
		var f ledgerFile
		if err := json.Unmarshal(good, &f); err != nil {
			t.Fatal(err)
		}
		change(&f)
		data, err := json.Marshal(f)
		if err != nil {
			t.Fatal(err)
		}
		return string(data)
	}
	for name, text := range map[string]string{
		"1-empty":      "",
		"2-json":       "{",
		"3-array":      "[1,2]",
		"4-huge":       strings.Repeat(" ", maxLedgerFile+1),
		"5-version":    edit(func(f *ledgerFile) { f.Version = 99 }),
		"6-negative":   edit(func(f *ledgerFile) { f.Entries[0].BudgetMiB[0] = -90000 }),
		"7-lengths":    edit(func(f *ledgerFile) { f.Entries[0].BudgetMiB = nil }),
		"8-share":      edit(func(f *ledgerFile) { f.Entries[0].Share = -3 }),
		"9-pid":        edit(func(f *ledgerFile) { f.Entries[0].HolderPID = -1 }),
		"not-a-berth":  string(good),
		".1-partial~1": string(good),
	} {
		testkit.Write(t, path(name), text)
	}
	if err := os.Symlink(a.ownPath(), path("10-link")); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mkfifo(path("11-fifo"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(path("12-dir"), 0o755); err != nil {
		t.Fatal(err)
	}
	if keys := otherKeys(t, b); !cmp.Equal(keys, []string{"a/1"}) {
		t.Errorf("%v", keys)
	}
	notes := strings.Join(b.Notes(), "\n")
	for _, name := range []string{"1-empty", "2-json", "3-array", "4-huge", "5-version", "6-negative", "7-lengths", "8-share", "10-link", "11-fifo", "12-dir"} {
		if !strings.Contains(notes, name) {
			t.Errorf("nothing is said of %s: %s", name, notes)
		}
	}
	otherKeys(t, b)
	if again := b.Notes(); len(again) != 0 {
		t.Errorf("said twice: %q", again)
	}
}

func TestLedgerShowsNoControlCharacters(t *testing.T) {
	dir := t.TempDir()
	a, b := openLedger(t, dir, "a"), openLedger(t, dir, "b")
	entry := booked("a/1")
	entry.Name = "\x1b[2Jtrain\n" + strings.Repeat("x", 1000)
	publish(t, a, entry)
	others, err := b.Others()
	if err != nil {
		t.Fatal(err)
	}
	if got := others[0].Name; !strings.HasPrefix(got, "\ufffd[2Jtrain\ufffdx") || len(got) > 256 {
		t.Errorf("%q", got)
	}
}

func TestLedgerBoundsTheNumberOfFiles(t *testing.T) {
	dir := t.TempDir()
	b := openLedger(t, dir, "b")
	for i := range maxUserFiles + 10 {
		testkit.Write(t, filepath.Join(dir, fmt.Sprintf("%d-x", i)), "{}")
	}
	otherKeys(t, b)
	if notes := strings.Join(b.Notes(), "\n"); !strings.Contains(notes, "more than") || strings.Count(notes, "\n") > maxLedgerNotes {
		t.Error(notes)
	}
}

func TestLedgerIsTakenOverByTheNextBerthOfThatName(t *testing.T) {
	dir := t.TempDir()
	first, other := openLedger(t, dir, "a"), openLedger(t, dir, "b")
	publish(t, first, booked("a/1"), booked("a/2"))
	testkit.Write(t, filepath.Join(dir, first.partialPrefix()+"123"), "half")
	next := openLedger(t, dir, "a") // the first one was killed with -9
	own, err := next.Own()
	if err != nil || len(own) != 2 {
		t.Fatal(own, err)
	}
	if left, _ := filepath.Glob(filepath.Join(dir, ".*")); len(left) != 0 {
		t.Errorf("left behind: %v", left)
	}
	if keys := otherKeys(t, other); len(keys) != 2 {
		t.Errorf("between two berths: %v", keys)
	}
	publish(t, next, booked("a/2"))
	if keys := otherKeys(t, other); !cmp.Equal(keys, []string{"a/2"}) {
		t.Errorf("after the take-over: %v", keys)
	}
}

func TestLedgerCloseKeepsWhatLives(t *testing.T) {
	dir := t.TempDir()
	a := openLedger(t, dir, "a")
	publish(t, a, booked("a/1"))
	if err := a.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(a.ownPath()); err != nil {
		t.Errorf("a living reservation was removed: %v", err)
	}
	again := openLedger(t, dir, "a")
	dead := booked("a/1")
	dead.HolderPID, dead.HolderStart = os.Getpid(), 1
	publish(t, again, dead)
	if err := again.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(a.ownPath()); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a dead reservation stays: %v", err)
	}
}

func TestLedgerLockIsForOneAtATime(t *testing.T) {
	dir := t.TempDir()
	a, b := openLedger(t, dir, "a"), openLedger(t, dir, "b")
	busy := func(l *Ledger) error {
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
		defer cancel()
		return l.Lock(ctx)
	}
	lockLedger(t, a)
	err := busy(b)
	if !errors.Is(err, errLedgerBusy) || !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "process "+strconv.Itoa(os.Getpid())) {
		t.Errorf("%v", err)
	}
	a.Unlock()
	lockLedger(t, b)
	b.Unlock()
}

func TestALockThatIsKeptHoldsNobodyUpForEver(t *testing.T) {
	dir := t.TempDir()
	a, b := openLedger(t, dir, "a"), openLedger(t, dir, "b")
	lockLedger(t, a)
	try := func() error {
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
		defer cancel()
		return b.Lock(ctx)
	}
	b.patience = time.Hour
	if err := try(); !errors.Is(err, errLedgerBusy) {
		t.Errorf("at the first try: %v", err)
	}
	b.patience = 50 * time.Millisecond
	testkit.Eventually(t, "the lock is done without", func() bool { return try() == nil })
	if notes := b.Notes(); len(notes) != 1 || !strings.Contains(notes[0], "without the lock") {
		t.Errorf("it says %v", notes)
	}
	publish(t, a, booked("a/1"))
	if keys := otherKeys(t, b); !cmp.Equal(keys, []string{"a/1"}) {
		t.Errorf("without the lock it sees %v", keys)
	}
	b.Unlock()
	ctx, cancel := context.WithTimeout(t.Context(), 0)
	defer cancel()
	if err := b.Lock(ctx); err != nil {
		t.Errorf("the next time it waits again: %v", err)
	}
	b.Unlock()
	// Once it is free, it is meant again.
	a.Unlock()
	lockLedger(t, b)
	if b.without {
		t.Error("it does without a lock that is free")
	}
	short, cancelShort := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancelShort()
	if err := a.Lock(short); !errors.Is(err, errLedgerBusy) {
		t.Errorf("two locks at once: %v", err)
	}
	b.Unlock()
}

func TestNobodyBooksForAProcessOfAnothers(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("only root can give files away")
	}
	dir := t.TempDir()
	a, b := openLedger(t, dir, "a"), openLedger(t, dir, "b")
	publish(t, a, booked("a/1")) // for this process, which is root's
	if keys := otherKeys(t, b); !cmp.Equal(keys, []string{"a/1"}) {
		t.Fatalf("%v", keys)
	}
	if err := os.Chown(a.ownPath(), 12345, 12345); err != nil {
		t.Fatal(err)
	}
	fresh := openLedger(t, dir, "c")
	if keys := otherKeys(t, fresh); keys != nil {
		t.Errorf("user 12345 books for root: %v", keys)
	}
	if err := os.Chown(dir, 12345, 12345); err != nil {
		t.Fatal(err)
	}
	openLedger(t, dir, "d")
	if info, err := os.Stat(dir); err != nil || ownerOf(info) != 0 {
		t.Errorf("the ledger is %v's: %v", ownerOf(info), err)
	}
}

func TestLedgerMeetsOthersAgainAfterItWasRemoved(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "ledger")
	a := openLedger(t, dir, "a")
	publish(t, a, booked("a/1"))
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	if keys := otherKeys(t, a); keys != nil {
		t.Error(keys)
	}
	b := openLedger(t, dir, "b")
	lockLedger(t, a)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if err := b.Lock(ctx); !errors.Is(err, errLedgerBusy) {
		t.Errorf("two locks at once: %v", err)
	}
	publish(t, a, booked("a/1"))
	a.Unlock()
	if keys := otherKeys(t, b); !cmp.Equal(keys, []string{"a/1"}) {
		t.Errorf("%v", keys)
	}
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	publish(t, a, booked("a/2"))
	if keys := otherKeys(t, b); !cmp.Equal(keys, []string{"a/2"}) {
		t.Errorf("%v", keys)
	}
}

func TestLedgerChoosesAndChecksItsPlace(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "ledger")
	t.Setenv("BERTH_LEDGER_DIR", dir)
	if l := openLedger(t, "", "a"); l.Dir() != dir {
		t.Errorf("in %s", l.Dir())
	}
	if info, err := os.Stat(dir); err != nil || info.Mode() != fs.ModeDir|fs.ModeSticky|0o777 {
		t.Errorf("%v %v", info, err)
	}
	link := filepath.Join(t.TempDir(), "link")
	if err := os.Symlink(dir, link); err != nil {
		t.Fatal(err)
	}
	if _, err := OpenLedger(link, "a"); err == nil {
		t.Error("a symlink was followed")
	}
	for _, instance := range []string{"", "a/b", "..", ".a", "a b", strings.Repeat("a", 200)} {
		if _, err := OpenLedger(dir, instance); err == nil {
			t.Errorf("instance %q was accepted", instance)
		}
	}
	t.Setenv("BERTH_LEDGER_DIR", "")
	if got := ledgerDirs(""); got[0] != "/dev/shm/berth-ledger" || got[1] != "/tmp/berth-ledger" {
		t.Errorf("%v", got)
	}
}
