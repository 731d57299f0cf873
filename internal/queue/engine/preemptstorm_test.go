package engine

import (
	"testing"

	"berth/internal/job"
)

// TestSimulationOfSettingAside is the same world, slow enough for jobs to run
// for as long as they must before they give way, and full of jobs that do.
func TestSimulationOfSettingAside(t *testing.T) {
	first, last := uint64(1), uint64(worlds()/4)
	if *seedFlag != 0 {
		first, last = *seedFlag, *seedFlag
	}
	var warnings, setAsides, leftAlone, parkings, resumes int
	for seed := first; seed <= last; seed++ {
		w := newWorld(seed, 1+int(seed%3))
		w.pace = 60
		if err := w.play(); err != nil {
			t.Fatalf("%v\nreplay: go test ./internal/queue/engine -run TestSimulationOfSettingAside -seed %d", err, seed)
		}
		warnings, setAsides, leftAlone = warnings+w.warnings, setAsides+w.setAsides, leftAlone+w.leftAlone
		parkings, resumes = parkings+w.parkings, resumes+w.resumes
	}
	t.Logf("%d warnings, %d jobs set aside, %d left alone after all, %d parked, %d resumed", warnings, setAsides, leftAlone, parkings, resumes)
	n := int(last)
	if *seedFlag == 0 && (parkings < n/2 || resumes < n/4) {
		t.Errorf("in %d worlds, %d jobs were parked and %d resumed", n, parkings, resumes)
	}
	if *seedFlag == 0 && (warnings < n/10 || setAsides < n/4 || n >= 500 && leftAlone == 0) {
		t.Errorf("in %d worlds there were %d warnings, %d jobs set aside, %d left alone after all", n, warnings, setAsides, leftAlone)
	}
}

// toldToLeave: it was lost when it had been told to make room, or may have been.
func (w *world) toldToLeave(x *execution) bool { return x.leaving && !w.warnedOnly(x) }

// warnedOnly: it was lost between the warning and the order to end.
func (w *world) warnedOnly(x *execution) bool {
	row := w.rows[x.job]
	return row.Spec.WarnSignal != "" && row.Spec.WarnBefore > 0 && row.Outcome == job.Lost
}
