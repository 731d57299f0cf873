package cli_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"
	"time"

	"berth/internal/api"
	"berth/internal/batch"
	"berth/internal/reason"
)

// TestWhyOfARunIsReadFromItsBoard: by id or by name, with when that was said.
func TestWhyOfARunIsReadFromItsBoard(t *testing.T) {
	dir := t.TempDir()
	said := time.Date(2026, 3, 1, 12, 0, 0, 0, time.Local)
	story := reason.Story{
		ID: "7", Position: 2, Queued: 3,
		Behind:   &reason.Behind{ID: "6", Priority: 5, First: reason.FirstPriority},
		Expected: &reason.Forecast{Now: said, Low: said.Add(time.Hour), Mid: said.Add(2 * time.Hour), High: said.Add(3 * time.Hour), Basis: reason.Basis{History: 2}},
	}
	story.Say(reason.Reason{Kind: reason.WaitsForTurn, Total: 1}, reason.Request{GPUs: 2, VRAMMiB: 18432})
	told := batch.Status{At: said, Jobs: []batch.StatusJob{
		{Story: story, Name: "pair", State: "queued"},
		{Story: reason.Story{ID: "1", Text: "running on GPU 0 since noon"}, State: "running"},
	}}
	data, err := json.Marshal(told)
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, "status.json"), data, 0o644)
	}
	if err != nil {
		t.Fatal(err)
	}
	const line = "job 7: waits behind job 6 (priority 5) for 2 GPUs with 18432 MiB each; expected to start between 13:00 and 15:00, from earlier runs of 2 running jobs\nfrom the status board of 12:00:00\n"
	for _, word := range []string{"7", "pair"} {
		if got := berth("why", "--log-dir", dir, word); got.code != 0 || got.out != line {
			t.Errorf("%s: %d %q %q", word, got.code, got.out, got.err)
		}
	}
	berth("why", "--log-dir", dir, "1").wants(t, 0, "job 1: running on GPU 0 since noon\n", "")
	berth("why", "-v", "--log-dir", dir, "7").wants(t, 0, "job 7  position 2 of 3 in the queue\n", "")
	var why api.Why
	if err := json.Unmarshal([]byte(berth("why", "--json", "--log-dir", dir, "7").out), &why); err != nil || why.Behind == nil || why.Behind.First != "priority" || why.Expected.History != 2 {
		t.Errorf("%+v: %v", why, err)
	}
	berth("why", "--log-dir", dir, "9").wants(t, 1, "", "berth: no job 9 on the status board of "+dir+"\nhint: ")
	berth("why", "--log-dir", dir+"/none", "9").wants(t, 1, "", "berth: there is no status board in "+dir+"/none\nhint: give the log directory")
}
