package store

import (
	"bufio"
	"bytes"
	"database/sql"
	"errors"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"berth/internal/job"
)

var nan = math.NaN()

// crashDir names the directory in which a child of this test commits until it
// is killed.
const crashDir = "BERTH_STORE_CRASH_DIR"

// commitUntilKilled commits one pair of jobs after another and prints a pair's
// number only once its commit returned.
func commitUntilKilled(dir string) {
	s, err := Open(dir)
	if err != nil {
		fmt.Println("error", err)
		os.Exit(1)
	}
	last, err := s.LastSeq()
	for seq := last + 1; err == nil; seq += 2 {
		a, b := queued(seq), queued(seq+1)
		err = s.Commit(Tx{
			Put:    []*job.Job{a, b},
			Events: []*job.Event{{Kind: job.EventQueued, Job: a}, {Kind: job.EventQueued, Job: b}},
			Meta:   map[string]string{"last": b.ID},
		})
		if err == nil {
			fmt.Println(seq + 1)
		}
	}
	fmt.Println("error", err)
	os.Exit(1)
}

func TestKillingTheProcessLosesNoAcknowledgedCommit(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	cycles := 30
	if testing.Short() {
		cycles = 5
	}
	for cycle := range cycles {
		acknowledged := crash(t, dir, 1+cycle*7%40)
		s, err := Open(dir)
		if err != nil {
			t.Fatalf("cycle %d: %v", cycle, err)
		}
		last, err := s.LastSeq()
		if err != nil || last < acknowledged || last > acknowledged+2 {
			t.Fatalf("cycle %d: %d was acknowledged, the store has %d, %v", cycle, acknowledged, last, err)
		}
		meta, err := s.Meta("last")
		event, err2 := s.LastEvent()
		if meta != fmt.Sprint(last) || event != last || err != nil || err2 != nil {
			t.Fatalf("cycle %d: a commit is there in part: job %d, event %d, meta %s, %v %v", cycle, last, event, meta, err, err2)
		}
		if found := ids(t, s); int64(len(found)) != last {
			t.Fatalf("cycle %d: %d jobs of %d", cycle, len(found), last)
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// crash lets a child commit, kills it after some acknowledged commits, and
// returns the last number it acknowledged.
func crash(t *testing.T, dir string, after int) (acknowledged int64) {
	t.Helper()
	child := exec.Command(os.Args[0])
	child.Env = append(os.Environ(), crashDir+"="+dir)
	out, err := child.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(out)
	for n := 0; lines.Scan(); n++ {
		seq, err := strconv.ParseInt(lines.Text(), 10, 64)
		if err != nil {
			t.Fatalf("the child says %s", lines.Text())
		}
		acknowledged = seq
		if n == after {
			if err := child.Process.Kill(); err != nil {
				t.Fatal(err)
			}
		}
	}
	_ = child.Wait() // it was killed
	return acknowledged
}

func TestASecondProcessIsRefusedWithThePIDOfTheFirst(t *testing.T) {
	dir := t.TempDir()
	before := time.Now()
	s := openIn(t, dir)
	_, err := Open(dir)
	var locked *LockedError
	if !errors.As(err, &locked) || !errors.Is(err, ErrLocked) {
		t.Fatalf("%v", err)
	}
	if locked.PID != os.Getpid() || locked.Since.Before(before.Add(-time.Second)) || locked.Since.After(time.Now()) {
		t.Errorf("%+v", locked)
	}
	if want := fmt.Sprintf("in use by process %d since ", os.Getpid()); !strings.Contains(err.Error(), want) {
		t.Errorf("%v", err)
	}
	commit(t, s, Tx{Put: []*job.Job{queued(1)}}) // the first goes on undisturbed
}

func TestAStoreOfALaterBerthIsRefused(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := openIn(t, dir)
	if _, err := s.conn.ExecContext(t.Context(), "PRAGMA user_version = 99"); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	before, err := os.ReadFile(s.path)
	if err != nil {
		t.Fatal(err)
	}
	_, err = Open(dir)
	var newer *NewerSchemaError
	if !errors.As(err, &newer) || newer.Found != 99 || newer.Known != len(migrations()) {
		t.Fatalf("%v", err)
	}
	if want := fmt.Sprintf("newer berth (format 99, this one knows up to %d): upgrade berth, or use another directory", len(migrations())); !strings.Contains(err.Error(), want) {
		t.Errorf("%v", err)
	}
	if _, err := Open(dir); errors.Is(err, ErrLocked) {
		t.Error("the refusal kept the lock")
	}
	if after, err := os.ReadFile(s.path); err != nil || !bytes.Equal(before, after) {
		t.Errorf("the refusal changed the file (%v)", err)
	}
}

// asVersionZero is a file from before there were versions: a table, no number.
func asVersionZero(t *testing.T, dir string) {
	t.Helper()
	s := &Store{dir: dir, path: filepath.Join(dir, "berth.db")}
	db := s.openRaw(t)
	defer db.Close()
	if _, err := db.Exec("CREATE TABLE notes (text TEXT); INSERT INTO notes VALUES ('kept')"); err != nil {
		t.Fatal(err)
	}
}

func TestAnOlderStoreIsMigratedAndKeptBesideItself(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	asVersionZero(t, dir)
	s := openIn(t, dir)
	commit(t, s, Tx{Put: []*job.Job{queued(1)}})
	var version int
	var text string
	if err := s.reader.QueryRow("SELECT user_version, (SELECT text FROM notes) FROM pragma_user_version").Scan(&version, &text); err != nil {
		t.Fatal(err)
	}
	if version != len(migrations()) || text != "kept" {
		t.Errorf("version %d, text %q", version, text)
	}
	backup := (&Store{path: filepath.Join(dir, "berth.db.bak-v0")}).openRaw(t)
	defer backup.Close()
	if err := backup.QueryRow("SELECT user_version, (SELECT text FROM notes) FROM pragma_user_version").Scan(&version, &text); err != nil {
		t.Fatal(err)
	}
	if version != 0 || text != "kept" {
		t.Errorf("the backup: version %d, text %q", version, text)
	}
}

// TestAStoreOfTheLastFormatIsTakenOver, and the berth that wrote it has nothing
// more to do with it.
func TestAStoreOfTheLastFormatIsTakenOver(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	last := migrations()[:len(migrations())-1]
	s := openIn(t, dir)
	want := queued(1)
	commit(t, s, Tx{Put: []*job.Job{want}})
	s = ofFormat3(t, s, dir)
	if got, err := s.Job("1"); err != nil || !cmp.Equal(got, want, same...) {
		t.Errorf("%+v, %v", got, err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	var newer *NewerSchemaError
	if _, err := open(dir, last); !errors.As(err, &newer) || newer.Found != len(migrations()) || newer.Known != len(last) {
		t.Errorf("%v", err)
	}
}

func TestAMigrationThatFailsChangesNothing(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s, err := Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	commit(t, s, Tx{Put: []*job.Job{queued(1)}})
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	good := slices.Concat(migrations(), []string{"ALTER TABLE jobs ADD COLUMN colour TEXT NOT NULL DEFAULT 'blue'"})
	bad := slices.Concat(good, []string{"CREATE TABLE half (x INTEGER); INSERT INTO nowhere VALUES (1)"})
	if _, err := open(dir, bad); err == nil || !strings.Contains(err.Error(), fmt.Sprintf("migrate to format %d", len(bad))) {
		t.Fatalf("%v", err)
	}
	s, err = open(dir, good) // the step before the bad one was kept
	if err != nil {
		t.Fatal(err)
	}
	var tables int
	if err := s.reader.QueryRow("SELECT count(*) FROM sqlite_schema WHERE name = 'half'").Scan(&tables); err != nil || tables != 0 {
		t.Errorf("%d, %v", tables, err)
	}
	if got := ids(t, s); !slices.Equal(got, []string{"1"}) {
		t.Errorf("jobs %v", got)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	var newer *NewerSchemaError
	if _, err := Open(dir); !errors.As(err, &newer) {
		t.Errorf("%v", err)
	}
}

func TestDamageIsFoundAtOpen(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s, err := Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	fill(t, s, 1, 5000, job.Queued)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	file, err := os.OpenFile(filepath.Join(dir, "berth.db"), os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	// A page from the middle: nothing that opening needs by itself.
	if _, err := file.WriteAt([]byte("this is not a page of a database"), 100*4096); err != nil {
		t.Fatal(err)
	}
	if err := file.Close(); err != nil {
		t.Fatal(err)
	}
	if s, err := Open(dir); !errors.Is(err, errBroken) {
		t.Errorf("%v, %v", s, err)
	}
	if err := os.WriteFile(filepath.Join(dir, "berth.db"), []byte(strings.Repeat("not a database ", 500)), 0o600); err != nil {
		t.Fatal(err)
	}
	if s, err := Open(dir); !errors.Is(err, errBroken) {
		t.Errorf("%v, %v", s, err)
	}
}

// mountTmpfs gives a directory on a file system of its own, and the way to
// change its options.
func mountTmpfs(t *testing.T, options string) (dir string, remount func(flags uintptr, options string)) {
	t.Helper()
	dir = t.TempDir()
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, options); err != nil {
		t.Skipf("a small file system cannot be mounted here: %v", err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(dir, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	return dir, func(flags uintptr, options string) {
		t.Helper()
		if err := unix.Mount("tmpfs", dir, "tmpfs", flags|unix.MS_REMOUNT, options); err != nil {
			t.Fatal(err)
		}
	}
}

func TestAFullDiskIsSaidAndPassesWhenThereIsRoom(t *testing.T) {
	t.Parallel()
	mount, remount := mountTmpfs(t, "size=2m")
	s := openIn(t, filepath.Join(mount, "store"))
	kept := int64(0)
	var err error
	for kept < 100_000 {
		if err = s.Commit(Tx{Put: []*job.Job{queued(kept + 1)}, Events: []*job.Event{{Kind: job.EventQueued, Job: queued(kept + 1)}}}); err != nil {
			break
		}
		kept++
	}
	if !errors.Is(err, ErrFull) || !errors.Is(err, unix.ENOSPC) || errors.Is(err, errBroken) {
		t.Fatalf("after %d commits: %v", kept, err)
	}
	t.Logf("full after %d commits: %v", kept, err)
	big := Tx{}
	for seq := kept + 1; seq < kept+5000; seq++ {
		big.Put = append(big.Put, queued(seq))
	}
	if err := s.Commit(big); !errors.Is(err, ErrFull) {
		t.Errorf("a large commit: %v", err)
	}
	if got := int64(len(ids(t, s))); got != kept {
		t.Errorf("reading goes on: %d jobs of %d", got, kept)
	}
	remount(0, "size=32m")
	commit(t, s, big)
	if got := len(ids(t, s)); got != int(kept)+len(big.Put) {
		t.Errorf("%d jobs once there was room", got)
	}
	if err := quickCheck(t.Context(), s.conn); err != nil {
		t.Error(err)
	}
}

func TestAStoreOpensOnAFullDisk(t *testing.T) {
	t.Parallel()
	mount, _ := mountTmpfs(t, "size=2m")
	dir := filepath.Join(mount, "store")
	s, err := Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	fill(t, s, 1, 100, job.Queued)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	ballast := filepath.Join(mount, "ballast")
	if err := os.WriteFile(ballast, make([]byte, 4<<20), 0o600); !errors.Is(err, unix.ENOSPC) {
		t.Fatal(err)
	}
	s = openIn(t, dir) // the store's own ballast makes room for the index of its log
	if got := len(ids(t, s)); got != 100 {
		t.Errorf("%d jobs", got)
	}
}

func TestAReadOnlyDirectoryIsRefusedInWords(t *testing.T) {
	t.Parallel()
	mount, remount := mountTmpfs(t, "size=4m")
	remount(unix.MS_RDONLY, "")
	_, err := Open(filepath.Join(mount, "store"))
	if !errors.Is(err, unix.EROFS) || !strings.Contains(err.Error(), "open store "+mount) {
		t.Fatalf("%v", err)
	}
	remount(0, "")
	s, err := Open(filepath.Join(mount, "store"))
	if err != nil {
		t.Fatal(err)
	}
	commit(t, s, Tx{Put: []*job.Job{queued(1)}})
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	remount(unix.MS_RDONLY, "")
	if _, err = Open(filepath.Join(mount, "store")); !errors.Is(err, unix.EROFS) {
		t.Fatalf("%v", err)
	}
	remount(0, "")
	s = openIn(t, filepath.Join(mount, "store"))
	if got := ids(t, s); !slices.Equal(got, []string{"1"}) {
		t.Errorf("jobs %v", got)
	}
}

// openRaw opens the file without any of the store's own care.
func (s *Store) openRaw(t *testing.T) *sql.DB {
	t.Helper()
	db, err := sql.Open("sqlite", s.address(readerCacheKiB))
	if err != nil {
		t.Fatal(err)
	}
	return db
}
