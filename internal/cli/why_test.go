package cli

import (
	"bytes"
	"encoding/json"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"berth/internal/api"
	"berth/internal/cli/render"
	"berth/internal/job"
	"berth/internal/job/reason"
	"berth/internal/sched"
	"berth/internal/text"
)

// ahead is a time of the same day.
func ahead(d time.Duration) time.Time { return noon.Add(d) }

// someStories are jobs of every kind, as the daemon tells of them.
func someStories() []api.Why {
	run := &api.RunGuess{LowS: 2400, MidS: 3000, HighS: 4200, Source: "command", Runs: 3}
	vram := &api.VRAMGuess{LowMiB: 17200, MidMiB: 17900, HighMiB: 18432, Source: "command", Runs: 3}
	return []api.Why{
		{State: "queued", Story: reason.Story{ID: "18", Position: 2, Queued: 1200, Kind: "gpus", User: "ann", Needs: "2 GPUs with 18432 MiB each", Since: ahead(-5 * time.Minute),
			Text: "needs 2 GPUs with 18432 MiB free; best now: gpu1 14564, gpu0 3000; gpu2 is paused, gpu3 is quarantined: Xid 79 (the GPU has fallen off the bus)",
			Cards: []reason.CardStory{
				{Card: reason.Card{GPU: 0, Obstacle: "free", FreeMiB: 3000}, What: "3000 MiB free, 15432 more needed", MissingMiB: 15432, Runs: []reason.Run{
					{Holder: reason.Holder{ID: "9"}, User: "bob", Since: ahead(-2 * time.Hour), BudgetMiB: 20000, Low: ahead(0), Mid: ahead(time.Hour), High: ahead(3 * time.Hour), By: "history"},
					{Holder: reason.Holder{ID: "11"}, User: "bartholomew-the-long", Since: ahead(-26 * time.Hour), BudgetMiB: 1052, Low: ahead(0), Mid: ahead(26 * time.Hour), By: "none"}}},
				{Card: reason.Card{GPU: 1, Obstacle: "free", FreeMiB: 14564}, What: "14564 MiB free, 3868 more needed", MissingMiB: 3868, Runs: []reason.Run{
					{Holder: reason.Holder{ID: "10"}, User: "cay", Since: ahead(-time.Hour), Share: 0.5, Low: ahead(30 * time.Minute), Mid: ahead(time.Hour), High: ahead(time.Hour), By: "limit"}}},
				{Card: reason.Card{GPU: 2, Obstacle: "paused"}, What: "paused"},
				{Card: reason.Card{GPU: 3, Obstacle: "health"}, What: "quarantined: Xid 79 (the GPU has fallen off the bus)"},
				{Card: reason.Card{GPU: 10}, What: "has room", Fits: true, Runs: []reason.Run{
					{Holder: reason.Holder{ID: "x1", Other: true}, Alone: true, By: "none"},
					{Holder: reason.Holder{ID: "13"}, User: "ann", Alone: true, LeavesFor: "12", By: "none"}}},
			},
			Behind:     &reason.Behind{ID: "12", User: "bob", Priority: 5, First: "priority", Because: "its priority (5) is higher", Kept: true},
			MaxBypassS: 86400, OldestSince: ahead(-5 * time.Minute),
			Expected: &reason.Forecast{Now: noon, Low: noon.Add(time.Hour), Mid: ahead(2 * time.Hour), High: ahead(3*time.Hour + 30*time.Minute), Basis: reason.Basis{Running: 4, InFront: 1, Limit: 1, History: 3, Unknown: 1}}},
			ExpectedRun: run, ExpectedVRAM: vram},
		{State: "queued", Story: reason.Story{ID: "19", Position: 1, Queued: 1, Kind: "gpus", User: "ann", Needs: "an idle GPU", Text: "preempted for job 4; needs an idle GPU; gpu0 runs job 9", Since: ahead(-25 * time.Hour),
			Kept: &reason.Reservation{Cards: []int{0}, At: noon.Add(20 * time.Second), Hard: true}, Victims: []string{"9"}, MaxBypassS: 86400, OldestSince: ahead(-25 * time.Hour), PreemptedFor: "4",
			Expected: &reason.Forecast{Now: noon, Low: noon.Add(20 * time.Second), Mid: ahead(20 * time.Second), High: ahead(20 * time.Second), Basis: reason.Basis{Running: 1, History: 1}}},
			ExpectedRun: &api.RunGuess{MidS: 1800, HighS: 3600, Source: "limit"}},
		{State: "queued", Story: reason.Story{ID: "20", Position: 9, Queued: 9, Kind: "user_limit", User: "ann", Needs: "an idle GPU", Text: "ann already runs 1 job; the limit per user is 1 (limits.running_jobs)", NoStart: "user_limit", MaxBypassS: 5400},
			ExpectedRun: &api.RunGuess{LowS: 60, MidS: 60, HighS: 60, Source: "user", Runs: 1}},
		{State: "queued", Story: reason.Story{ID: "21", Queued: 9, Text: "held until released", NoStart: "gate"}},
		{State: "running", Story: reason.Story{ID: "22", Queued: 9, Text: "running on GPU 0 since 2026-03-01 10:00:00", Expected: &reason.Forecast{Now: noon, Low: noon.Add(time.Hour), Mid: ahead(time.Hour), High: ahead(2 * time.Hour), Basis: reason.Basis{History: 1}}}},
		{State: "finished", Story: reason.Story{ID: "23", Queued: 9, Text: "ended: ok"}},
	}
}

var escapes = regexp.MustCompile(`\x1b\[[0-9]*m`)

func drawWhy(t *testing.T, s render.Screen, verbose bool) []byte {
	t.Helper()
	var out bytes.Buffer
	s.Out = &out
	if err := (&whyFlags{verbose: verbose}).tell(s, someStories(), noon); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

func TestWhyInOneLine(t *testing.T) { golden(t, "why-pipe", drawWhy(t, render.Screen{}, false)) }

func TestTheWholeStory(t *testing.T) {
	golden(t, "why-v-pipe", drawWhy(t, render.Screen{}, true))
	at80 := drawWhy(t, render.Screen{Width: 80}, true)
	golden(t, "why-v-80", at80)
	for line := range strings.Lines(string(at80)) {
		if strings.HasPrefix(line, "job 22: ") {
			continue // it runs: one line is all there is
		}
		if n := text.Width(strings.TrimSuffix(line, "\n")); n > 80 {
			t.Errorf("%d columns: %s", n, line)
		}
	}
	coloured := drawWhy(t, render.Screen{Width: 80, Colour: true}, true)
	if got := escapes.ReplaceAllString(string(coloured), ""); got != string(at80) {
		t.Errorf("colours change the words:\n%s", got)
	}
	if !bytes.Contains(coloured, []byte("\x1b[33m3000 MiB free")) || !bytes.Contains(coloured, []byte("\x1b[32mhas room")) {
		t.Errorf("what is missing and what fits are not told apart:\n%q", coloured)
	}
}

// TestTheKeysOfWhyAreStable: what a story has under --json is in docs/reference/json.md.
func TestTheKeysOfWhyAreStable(t *testing.T) {
	state := sched.State{Now: noon, Rules: sched.DefaultRules(), Queue: sched.NewQueue(),
		Cards:       []sched.Card{{Index: 0, TotalMiB: 24576, NUMA: -1}},
		Allocations: []sched.Allocation{{Job: "9", User: "bob", Cards: []int{0}, Alone: true, Started: noon.Add(-time.Hour), Limit: 2 * time.Hour}}}
	for i, id := range []string{"1", "2"} {
		state.Queue.Add(sched.Pending{Job: id, User: "ann", Seq: int64(i), Since: noon, Limit: time.Hour, Request: sched.Request{GPUs: 1}})
	}
	state.Queue.Tick(noon)
	page, err := os.ReadFile("../../docs/reference/json.md")
	if err != nil {
		t.Fatal(err)
	}
	keys := map[string]bool{}
	for _, id := range []string{"1", "2"} {
		story, _ := sched.Tell(state, id)
		data, _ := json.Marshal(api.Why{Story: story, State: "queued"})
		var value any
		if err := json.Unmarshal(data, &value); err != nil {
			t.Fatal(err)
		}
		collectKeys(value, keys)
	}
	for _, key := range []string{"id", "state", "text", "position", "queued", "kind", "user", "needs", "since", "gpus", "behind", "kept", "max_bypass_s", "oldest_since", "expected",
		"fits", "what", "obstacle", "runs", "by", "first", "because", "low", "mid", "high", "by_limit", "by_history", "unknown", "in_front", "running", "at"} {
		if !keys[key] {
			t.Errorf("%s is gone", key)
		}
	}
	for key := range keys {
		if !strings.Contains(string(page), "`"+key+"`") {
			t.Errorf("docs/reference/json.md does not have %s", key)
		}
	}
}

func collectKeys(value any, keys map[string]bool) {
	switch v := value.(type) {
	case map[string]any:
		for key, inner := range v {
			keys[key] = true
			collectKeys(inner, keys)
		}
	case []any:
		for _, inner := range v {
			collectKeys(inner, keys)
		}
	}
}

func TestEstimatesNameTheirSource(t *testing.T) {
	for _, row := range []struct {
		guess api.RunGuess
		want  string
	}{
		{api.RunGuess{LowS: 2400, MidS: 3000, HighS: 4200, Source: "command", Runs: 3}, "40m00s to 1h10m, about 50m00s, from 3 earlier runs with the same arguments"},
		{api.RunGuess{LowS: 60, MidS: 120, HighS: 240, Source: "user", Runs: 1}, "1m00s to 4m00s, about 2m00s, a guess from another job of the user"},
		{api.RunGuess{LowS: 60, MidS: 120, HighS: 240, Source: "user", Runs: 3}, "1m00s to 4m00s, about 2m00s, a guess from the user's last 3 jobs"},
		{api.RunGuess{LowS: 60, MidS: 120, HighS: 240, Source: "program", Runs: 1}, "1m00s to 4m00s, about 2m00s, a guess from 1 run of this program with other arguments"},
		{api.RunGuess{LowS: 60, MidS: 120, HighS: 240, Source: "command", Runs: 2, Longer: true}, "1m00s to 4m00s, about 2m00s, from 2 earlier runs with the same arguments that took longer"},
		{api.RunGuess{MidS: 1800, HighS: 3600, Source: "limit"}, "at most 1h00m, about 30m00s, from its time limit only"},
	} {
		if got := render.RunWords(&row.guess); got != row.want {
			t.Errorf("%s, want %s", got, row.want)
		}
	}
	if got := render.VRAMWords(&api.VRAMGuess{LowMiB: 17200, HighMiB: 18432, Source: "command", Runs: 1}); got != "16.8 to 18.0 GiB on each GPU, from 1 earlier run with the same arguments" {
		t.Error(got)
	}
	var out bytes.Buffer
	d := api.Detail{View: job.View{ID: "1", Name: "job1", State: job.Queued}, ExpectedRun: &api.RunGuess{MidS: 1800, HighS: 3600, Source: "limit"}, ExpectedVRAM: &api.VRAMGuess{LowMiB: 1024, HighMiB: 2048, Source: "command", Runs: 2}}
	if err := showJob(render.Screen{Out: &out}, d, noon); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"expected time  at most 1h00m, about 30m00s, from its time limit only\n", "expected VRAM  1.0 to 2.0 GiB on each GPU, from 2 earlier runs with the same arguments\n"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("%q is not in\n%s", want, out.String())
		}
	}
}

func TestTextsAreBrokenBetweenWords(t *testing.T) {
	for _, row := range []struct {
		written string
		want    []string
	}{
		{"one two three", []string{"one two", "three"}},
		{"unbreakable-word a", []string{"unbreakable-word", "a"}},
		{"日本 日本 x", []string{"日本", "日本 x"}},
		{"", []string{""}},
	} {
		if got := text.Wrap(row.written, 7); !slices.Equal(got, row.want) {
			t.Errorf("%q: %q", row.written, got)
		}
	}
}
