package batch

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"berth/internal/job"
	"berth/internal/reason"
	"berth/internal/testkit"
)

// toldSnapshot is a busy snapshot one of whose jobs has a story.
func toldSnapshot() snapshot {
	s := busy()
	s.pending[0].story = &reason.Story{
		ID: "5", Position: 1, Queued: 3,
		Expected: &reason.Forecast{Now: s.at, Low: s.at, Mid: s.at.Add(time.Hour), High: s.at.Add(2 * time.Hour)},
	}
	s.pending[0].story.Say(reason.Reason{Kind: reason.WaitsForTurn, Total: 3}, reason.Request{GPUs: 2, VRAMMiB: 18432})
	s.pending[1].reason = "held until released"
	s.pending[0].job.State, s.pending[1].job.State, s.pending[1].job.Spec.Name = job.Queued, job.Queued, "again"
	return s
}

func TestBerthReadsTheBoard(t *testing.T) {
	dir := t.TempDir()
	b := &board{path: filepath.Join(dir, "status.txt"), render: renderBoard}
	s := toldSnapshot()
	if err := b.write(s); err != nil {
		t.Fatal(err)
	}
	told, err := ReadStatus(dir)
	if err != nil || !told.At.Equal(s.at) || told.File != s.file {
		t.Fatalf("%+v: %v", told, err)
	}
	for word, want := range map[string]string{
		"5":     "queued: fits; it starts after the jobs ahead of it (at most 3 starts at a time) true",
		"6":     "queued: held until released false",
		"again": "queued: held until released false",
		"1":     "running: running on GPU 0 since ",
		"8":     "failed: failed with exit code 2 false",
	} {
		j, found := told.Find(word)
		if got := fmt.Sprintf("%s: %s %v", j.State, j.Text, j.Expected != nil); !found || !strings.HasPrefix(got, want) {
			t.Errorf("%s: %v %q, want %q", word, found, got, want)
		}
	}
	if j, _ := told.Find("5"); j.Expected.High.Sub(s.at) != 2*time.Hour || j.Needs != "2 GPUs with 18432 MiB each" {
		t.Errorf("the story is %+v", j.Story)
	}
	if _, found := told.Find("77"); found {
		t.Error("job 77 was found")
	}
	told.Jobs = append(told.Jobs, StatusJob{Story: reason.Story{ID: "70"}, Name: "again"})
	if _, found := told.Find("again"); found {
		t.Error("one of two of a name was found")
	}
}

func TestTheBoardIsToldAnewWhenJobsChangeOrAfterAWhile(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "status.json")
	b := &board{path: filepath.Join(dir, "status.txt"), render: renderBoard}
	s := toldSnapshot()
	for _, step := range []struct {
		says   string
		change func()
		again  bool
	}{
		{"at first", func() {}, true},
		{"a second later", func() { s.at = s.at.Add(time.Second) }, false},
		{"when a job is gone", func() { s.pending = s.pending[1:] }, true},
		{"after some time", func() { s.at = s.at.Add(statusEvery) }, true},
		{"when the clock was set back", func() { s.at = s.at.Add(-time.Hour) }, true},
	} {
		step.change()
		testkit.Write(t, path, "untouched")
		if err := b.write(s); err != nil || testkit.Read(t, path) != "untouched" != step.again {
			t.Errorf("%s: %v %.20s", step.says, err, testkit.Read(t, path))
		}
	}
}

func TestABadBoardIsAnError(t *testing.T) {
	dir := t.TempDir()
	if _, err := ReadStatus(dir); err == nil || !strings.Contains(err.Error(), "no status board in "+dir) {
		t.Error(err)
	}
	testkit.Write(t, filepath.Join(dir, "status.json"), "{")
	if _, err := ReadStatus(dir); err == nil {
		t.Error("half a board was read")
	}
	if err := os.Truncate(filepath.Join(dir, "status.json"), maxStatus+1); err != nil {
		t.Fatal(err)
	}
	if _, err := ReadStatus(dir); err == nil || !strings.Contains(err.Error(), "expected a file of at most") {
		t.Error(err)
	}
}
