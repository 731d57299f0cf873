package engine

import (
	"testing"

	"berth/internal/job"
)

// TestSimulationOfSettingAside is the same world, slow enough for jobs to run
// for as long as they must before they give way, and full of jobs that do.
func TestSimulationOfSettingAside(t *testing.T) {
	seeds := uint64(*seedCount / 4)
	if testing.Short() {
		seeds = min(seeds, 100)
	}
	var warnings, setAsides, leftAlone, parkings, resumes int
	from, to := uint64(1), seeds
	if *seedFlag != 0 {
		from, to = *seedFlag, *seedFlag
	}
	for seed := from; seed <= to; seed++ {
		w := newWorld(seed, 1+int(seed%3))
		w.pace = 60
		if err := w.play(); err != nil {
			t.Fatalf("%v\nreplay: go test ./internal/queue/engine -run TestSimulationOfSettingAside -seed %d", err, seed)
		}
		warnings, setAsides, leftAlone = warnings+w.warnings, setAsides+w.setAsides, leftAlone+w.leftAlone
		parkings, resumes = parkings+w.parkings, resumes+w.resumes
	}
	t.Logf("%d warnings, %d jobs set aside, %d left alone after all, %d parked, %d resumed", warnings, setAsides, leftAlone, parkings, resumes)
	if *seedFlag == 0 && (parkings < int(seeds)/2 || resumes < int(seeds)/4) {
		t.Errorf("in %d worlds, %d jobs were parked and %d resumed", seeds, parkings, resumes)
	}
	if *seedFlag == 0 && (warnings < int(seeds)/10 || setAsides < int(seeds)/4 || seeds >= 500 && leftAlone == 0) {
		t.Errorf("in %d worlds there were %d warnings, %d jobs set aside, %d left alone after all", seeds, warnings, setAsides, leftAlone)
	}
}

// toldToLeave: it was lost when it had been told to make room, or may have been.
func (w *world) toldToLeave(x *execution) bool { return x.leaving && !w.warnedOnly(x) }

// warnedOnly: it was lost between the warning and the order to end.
func (w *world) warnedOnly(x *execution) bool {
	row := w.rows[x.job]
	return row.Spec.WarnSignal != "" && row.Spec.WarnBefore > 0 && row.Outcome == job.Lost
}
