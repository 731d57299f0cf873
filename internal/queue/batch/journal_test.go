package batch

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"berth/internal/job"
	"berth/internal/tests/testkit"
)

// archive is a store's events, as the journal asks for them.
type archive struct {
	events []job.Event
	asked  int
	err    error
}

func (a *archive) EventsAfter(seq int64, limit int) ([]job.Event, error) {
	a.asked++
	var list []job.Event
	for _, ev := range a.events {
		if ev.Seq > seq && len(list) < limit {
			list = append(list, ev)
		}
	}
	return list, a.err
}

func eventsUpTo(n int64) []job.Event {
	var list []job.Event
	for seq := int64(1); seq <= n; seq++ {
		list = append(list, job.Event{Seq: seq, At: at0, Kind: job.EventStarted, Job: started(fmt.Sprint(seq), "x", 0)})
	}
	return list
}

// numbers are the event numbers of a journal's lines, each of which has to be
// whole.
func numbers(t *testing.T, path string) string {
	t.Helper()
	var list []string
	for line := range strings.Lines(testkit.Read(t, path)) {
		var r record
		if err := json.Unmarshal([]byte(line), &r); err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		list = append(list, fmt.Sprint(r.Seq))
	}
	return strings.Join(list, " ")
}

func openTestJournal(t *testing.T, path string) *journal {
	t.Helper()
	w, err := openJournal(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { w.Close() })
	return w
}

func TestJournalAppendsWhatIsNew(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "journal.jsonl")
	w := openTestJournal(t, path)
	events := eventsUpTo(5)
	shownOnly := job.Event{At: at0, Kind: job.EventUsage}
	for _, batch := range [][]job.Event{events[:2], {shownOnly}, events[1:4], nil} {
		if err := w.append(batch); err != nil {
			t.Fatal(err)
		}
	}
	if got := numbers(t, path); got != "1 2 3 4" {
		t.Errorf("it has %s", got)
	}
}

func TestJournalAfterACrash(t *testing.T) {
	t.Parallel()
	whole := `{"seq":1,"time":"2026-03-14T15:09:26Z","event":"started"}` + "\n" + `{"seq":7,"time":"2026-03-14T15:09:26Z","event":"ended"}` + "\n"
	tests := []struct {
		name string
		text string
		last int64
		kept string
	}{
		{"that left nothing", "", 0, ""},
		{"between two lines", whole, 7, whole},
		{"in the middle of a line", whole + `{"seq":8,"time":"20`, 7, whole},
		{"just before the newline", whole + `{"seq":8,"time":"2026-03-14T15:09:26Z","event":"ended"}`, 7, whole},
		{"in the middle of the first line", `{"seq":`, 0, ""},
		{"after a line that is not our event", whole + "{}\n", 7, whole + "{}\n"},
		{"after which somebody wrote a note into it", whole + "my note\n\n", 7, whole + "my note\n\n"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "journal.jsonl")
			testkit.Write(t, path, test.text)
			w := openTestJournal(t, path)
			if w.last != test.last {
				t.Errorf("it goes up to %d, want %d", w.last, test.last)
			}
			if got := testkit.Read(t, path); got != test.kept {
				t.Errorf("it has %q, want %q", got, test.kept)
			}
			if err := w.append([]job.Event{{Seq: 9, At: at0, Kind: job.EventEnded}}); err != nil {
				t.Fatal(err)
			}
			if got := testkit.Read(t, path); !strings.HasPrefix(got, test.kept+`{"seq":9,`) || !strings.HasSuffix(got, "}\n") {
				t.Errorf("then it has %q", got)
			}
		})
	}
}

func TestJournalFindsItsEndInALongFile(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "journal.jsonl")
	line := `{"seq":%d,"time":"2026-03-14T15:09:26Z","event":"warning","text":"` + strings.Repeat("x", 1<<20) + `"}` + "\n"
	var text strings.Builder
	for seq := range 6 {
		fmt.Fprintf(&text, line, seq+1)
	}
	testkit.Write(t, path, text.String()+"torn")
	if w := openTestJournal(t, path); w.last != 6 || w.size != int64(text.Len()) {
		t.Errorf("it goes up to %d at byte %d, want 6 at %d", w.last, w.size, text.Len())
	}
}

func TestJournalFindsARecordThatIsLongerThanTheRest(t *testing.T) {
	t.Parallel()
	longest := strings.Repeat("\x01", 2<<20) // six bytes each as JSON
	tests := []struct {
		name string
		torn string
	}{
		{"whole", ""},
		{"followed by one that a crash cut short", `{"seq":3,"text":"` + strings.Repeat("x", 9<<20)},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "journal.jsonl")
			events := []job.Event{
				{Seq: 1, At: at0, Kind: job.EventStarted, Job: started("1", "x", 0)},
				{Seq: 2, At: at0, Kind: job.EventStarted, Job: started("2", longest, 0)},
			}
			if err := openTestJournal(t, path).append(events); err != nil {
				t.Fatal(err)
			}
			whole := testkit.Read(t, path)
			testkit.Write(t, path, whole+test.torn)
			w := openTestJournal(t, path)
			if w.last != 2 || w.size != int64(len(whole)) {
				t.Errorf("it goes up to %d at byte %d, want 2 at %d", w.last, w.size, len(whole))
			}
			if err := w.append(events); err != nil || testkit.Read(t, path) != whole {
				t.Errorf("it repeats itself: %d bytes, were %d (%v)", len(testkit.Read(t, path)), len(whole), err)
			}
		})
	}
}

func TestAFileThatIsNoJournalIsLeftAlone(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "journal.jsonl")
	testkit.Write(t, path, "")
	if err := os.Truncate(path, maxTailBytes+1); err != nil {
		t.Fatal(err)
	}
	if _, err := openJournal(path); err == nil || !strings.Contains(err.Error(), "no record") {
		t.Errorf("it says %v", err)
	}
	if info, err := os.Stat(path); err != nil || info.Size() != maxTailBytes+1 {
		t.Errorf("it was changed: %v, %v", info, err)
	}
}

func TestJournalCatchesUp(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "journal.jsonl")
	w := openTestJournal(t, path)
	source := &archive{events: eventsUpTo(2500)}
	if err := w.append(source.events[:3]); err != nil {
		t.Fatal(err)
	}
	if err := w.catchUp(source); err != nil {
		t.Fatal(err)
	}
	if w.last != 2500 || source.asked != 4 {
		t.Errorf("it goes up to %d after asking %d times", w.last, source.asked)
	}
	if n := strings.Count(testkit.Read(t, path), "\n"); n != 2500 {
		t.Errorf("it has %d lines", n)
	}
	source.err = errors.New("unreadable")
	if err := w.catchUp(source); !errors.Is(err, source.err) {
		t.Errorf("it says %v", err)
	}
}

func TestJournalIsBehindAfterAFailedWrite(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "journal.jsonl")
	w := openTestJournal(t, path)
	source := &archive{events: eventsUpTo(5)}
	if err := w.append(source.events[:2]); err != nil {
		t.Fatal(err)
	}
	good := w.file
	var err error
	if w.file, err = os.Open(path); err != nil { // which cannot be written
		t.Fatal(err)
	}
	if err := w.append(source.events[2:3]); err == nil || !w.behind {
		t.Errorf("it says %v, behind: %v", err, w.behind)
	}
	w.file.Close()
	w.file = good
	// Later events must not be written before those that are missing.
	if err := w.catchUp(source); err != nil || w.behind {
		t.Errorf("then %v, behind: %v", err, w.behind)
	}
	if got := numbers(t, path); got != "1 2 3 4 5" {
		t.Errorf("it has %s", got)
	}
}

func TestRecordIsTheContract(t *testing.T) {
	t.Parallel()
	j := ended(started("17", "python train.py", 0, 1), "exit:3", 12*time.Second)
	j.Spec.GPUs, j.User, j.VRAMMiB, j.ExitCode = 2, "ann", 18432, number(3)
	j.PeakMiB, j.AvgUtil, j.SubmittedAt = map[int]int64{0: 17910, 1: 17904}, number(96.0), at0
	line, err := encodeLine(toRecord(job.Event{Seq: 4, At: at0, Kind: job.EventEnded, Job: j, Text: "why"}))
	if err != nil {
		t.Fatal(err)
	}
	golden(t, "record", string(line)+"\n")
}
