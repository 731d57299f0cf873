package daemon

import (
	"encoding/json"
	"strings"
	"testing"

	"berth/internal/api"
	"berth/internal/job"
	"berth/internal/queue/engine"
	"berth/internal/sched"
)

func TestASnapshotHasWhatIsDecidedOnAndNobodysCommands(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	line, open := l.gate("gate")
	runs := l.one(sh(line, "ids", "0", "vram", "8G"))
	l.untilState(runs, job.Running)
	secret := l.one(sh("true secret-command", "gpus", "2", "priority", "3", "name", "secret-name"))
	small := l.one(sh("true", "ids", "0", "timeout", "1h"))
	data, err := api.Call(l.ctx, l.Client, api.GetSnapshot, api.None{})
	if err != nil {
		t.Fatal(err)
	}
	state, err := sched.UnmarshalState(data)
	if err != nil {
		t.Fatal(err)
	}
	if first := state.Queue.First(9); len(first) != 2 || first[0].Job != secret || first[1].Job != small || first[0].Priority != 3 {
		t.Errorf("queue: %+v", first)
	}
	if len(state.Allocations) != 1 || state.Allocations[0].Job != runs || len(state.Cards) != 2 {
		t.Errorf("%+v", state)
	}
	if text := string(data); strings.Contains(text, "secret-command") || strings.Contains(text, "secret-name") {
		t.Errorf("it has what a job runs: %s", text)
	}
	open()
	l.finished(runs)
}

// TestASnapshotDecidesAsTheDaemonWould takes both in the same moment.
func TestASnapshotDecidesAsTheDaemonWould(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	line, open := l.gate("gate")
	runs := l.one(sh(line, "gpus", "2"))
	l.untilState(runs, job.Running)
	for range 5 {
		l.submit(sh("true", "vram", "4G"), sh("true", "gpus", "0.5", "priority", "1"))
	}
	var live, read sched.State
	var ours, theirs sched.Plan
	err := l.d.svc.Do(l.ctx, func(turn *engine.Turn) {
		live = turn.Explain().State()
		// As if the job in front had ended: there is something to decide.
		live.Allocations = nil
		data, err := sched.MarshalState(live)
		if err != nil {
			t.Error(err)
			return
		}
		if read, err = sched.UnmarshalState(data); err != nil {
			t.Error(err)
			return
		}
		ours, theirs = sched.Decide(live), sched.Decide(read)
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(ours.Starts) == 0 || planText(t, ours) != planText(t, theirs) {
		t.Errorf("the daemon decides %+v, its snapshot %+v", ours, theirs)
	}
	open()
	l.finished(runs)
}

func planText(t *testing.T, plan sched.Plan) string {
	t.Helper()
	text, err := json.Marshal(plan)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
