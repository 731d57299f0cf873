package keep

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

func fullRecord() Record {
	return Record{
		State: Ended, Seq: 7, Token: "00ff", Job: "17_3", Attempt: 2,
		BootID: "b", KeepPID: 10, KeepStart: 11, PID: 12, PIDStart: 13, Session: 12,
		Cgroup: "/sys/fs/cgroup/x y", Log: "/tmp/ü\n.log", LogFrom: 99,
		StartedAt: time.Unix(5, 6), EndedAt: time.Unix(7, 8), Elapsed: 2 * time.Second,
		ExitCode: -1, Signal: 15, Core: true, Stop: "timeout", Launch: "a\nb=\x00c\xff", SetupFailed: true,
		Protocol: 2, Pty: true, OOM: true, MemoryKilled: true, PeakMemKiB: 77, LogDropped: 88,
		Stragglers: 3, Saved: time.Unix(1_700_000_000, 7), MaxRSSKiB: 4096, User: time.Second, Sys: 3 * time.Millisecond, Note: "no cgroup",
	}
}

func TestARecordReadsBackAsItWasWritten(t *testing.T) {
	t.Parallel()
	for _, want := range []Record{fullRecord(), {State: Idle}, {State: Started, ExitCode: -1}} {
		got, err := DecodeRecord(want.Encode())
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Error(diff)
		}
	}
}

// Every field is somewhere near its bound, so that a new one that makes the
// block too small is noticed here.
func TestTheLongestRecordFitsItsBlock(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("\x01", 5000)
	r := Record{
		State: Ended, Seq: 1<<64 - 1, Token: long, Job: long, Attempt: -1 << 62, BootID: long,
		KeepPID: -1 << 62, KeepStart: 1<<64 - 1, PID: -1 << 62, PIDStart: 1<<64 - 1, Session: -1 << 62, UID: -1 << 62,
		Cgroup: strings.Repeat("c", 998), Log: strings.Repeat("l", 998), LogFrom: -1 << 62,
		StartedAt: time.Unix(0, -1<<62), EndedAt: time.Unix(0, -1<<62), Elapsed: -1 << 62,
		ExitCode: -1 << 62, Signal: -1 << 62, Stop: long, Launch: long, Stragglers: -1 << 62,
		Protocol: -1 << 62, PeakMemKiB: -1 << 62, LogDropped: -1 << 62,
		MaxRSSKiB: -1 << 62, User: -1 << 62, Sys: -1 << 62, Note: long,
	}
	got, err := DecodeRecord(r.Encode())
	if err != nil {
		t.Fatal(err)
	}
	if got.Log != r.Log || got.Cgroup != r.Cgroup {
		t.Error("a path that fits was changed")
	}
	if !strings.HasPrefix(long, got.Launch) || len(got.Launch) < 50 {
		t.Errorf("an explanation is cut, not lost: %d bytes left", len(got.Launch))
	}
	r.Log = strings.Repeat("l", 3000)
	if got, _ = DecodeRecord(r.Encode()); got.Log != "" {
		t.Error("half a path was kept")
	}
}

func TestWhichBlockHolds(t *testing.T) {
	t.Parallel()
	block := func(state State, seq uint64, job string) []byte {
		return Record{State: state, Seq: seq, Job: job}.Encode()
	}
	blank, torn := make([]byte, BlockSize), bytes.Repeat([]byte("x"), BlockSize)
	rows := []struct {
		name          string
		doing, ended  []byte
		state         State
		job           string
		ok, hasFailed bool
	}{
		{"a new file says nothing", blank, blank, "", "", false, false},
		{"a supervisor that had no job is idle", block(Idle, 0, ""), blank, Idle, "", true, false},
		{"a first job that started", block(Started, 1, "7"), blank, Started, "7", true, false},
		{"a job that ended", block(Started, 1, "7"), block(Ended, 1, "7"), Ended, "7", true, false},
		{"an end that was acknowledged", block(Idle, 2, ""), block(Ended, 1, "7"), Idle, "", true, false},
		{"a second job beside the first one's end", block(Started, 3, "8"), block(Ended, 1, "7"), Started, "8", true, false},
		{"a machine that died while the end was written", block(Started, 3, "8"), torn, Started, "8", true, false},
		{"a damaged first block leaves all unknown", torn, block(Ended, 1, "7"), "", "", false, true},
		{"an idle supervisor with a damaged end", block(Idle, 2, ""), torn, "", "", false, true},
	}
	for _, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "record")
			if err := os.WriteFile(path, append(bytes.Clone(row.doing), row.ended...), 0o600); err != nil {
				t.Fatal(err)
			}
			r, ok, err := ReadRecords(path)
			if r.State != row.state || r.Job != row.job || ok != row.ok || (err != nil) != row.hasFailed {
				t.Errorf("got %s of job %q, ok %v, error %v", r.State, r.Job, ok, err)
			}
			if err != nil && !errors.Is(err, errDamaged) {
				t.Errorf("%v is not ErrDamaged", err)
			}
		})
	}
}

func TestAShortRecordFileIsDamaged(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "record")
	if err := os.WriteFile(path, Record{State: Idle}.Encode(), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, _, err := ReadRecords(path); !errors.Is(err, errDamaged) {
		t.Errorf("got %v", err)
	}
}

// One changed bit anywhere is noticed: a status is never guessed.
func TestAnyFlippedBitIsNoticed(t *testing.T) {
	t.Parallel()
	whole := fullRecord().Encode()
	rapid.Check(t, func(t *rapid.T) {
		block := bytes.Clone(whole)
		at := rapid.IntRange(0, len(block)-1).Draw(t, "byte")
		block[at] ^= 1 << rapid.IntRange(0, 7).Draw(t, "bit")
		if r, err := DecodeRecord(block); err == nil {
			t.Fatalf("byte %d changed and nobody noticed: %+v", at, r)
		}
	})
}

func FuzzDecodeRecord(f *testing.F) {
	f.Add(fullRecord().Encode())
	f.Add(Record{State: Idle}.Encode())
	f.Add(make([]byte, BlockSize))
	f.Add([]byte("berth-keep 1\n"))
	f.Fuzz(func(t *testing.T, block []byte) {
		r, err := DecodeRecord(block)
		if err != nil {
			return
		}
		again, err := DecodeRecord(r.Encode())
		if err != nil {
			t.Fatalf("what was read cannot be written: %v", err)
		}
		if !bytes.Equal(again.Encode(), r.Encode()) {
			t.Fatal("a second reading differs")
		}
	})
}
