package gpu

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

func external(int) (string, bool, bool) { return "", false, true }
func hidden(int) (string, bool, bool)   { return "", false, false }

// ownedBy is a table of pids; 0 means pids that cannot be looked up.
func ownedBy(keys map[int]string) OwnerFunc {
	return func(pid int) (string, bool, bool) {
		key, ok := keys[pid]
		return key, ok && key != "?", key != "?"
	}
}

func card(usedMiB int64, processes ...Process) Sample {
	return Sample{Devices: []Device{{Index: 0, TotalMiB: 24576, UsedMiB: usedMiB, UtilPct: -1, Processes: processes, ProcessesKnown: true}}}
}

func unlisted(usedMiB int64) Sample {
	s := card(usedMiB)
	s.Devices[0].ProcessesKnown = false
	return s
}

func holds(key string, budgetMiB int64) []Holding {
	return []Holding{{Key: key, Cards: []int{0}, BudgetMiB: []int64{budgetMiB}}}
}

func TestMeterForeignUse(t *testing.T) {
	type step struct {
		sample   Sample
		holdings []Holding
		owner    OwnerFunc
		want     CardUse
	}
	mine := ownedBy(map[int]string{7: "a"})
	tests := map[string][]step{
		"an empty card has no foreign use": {
			{card(0), nil, external, CardUse{}},
		},
		"an external process is held at its buffered peak through a trough, until it leaves": {
			{card(1000, process(1, 1000, false)), nil, external, CardUse{ForeignMiB: 1100, IdleForeignMiB: 1100}},
			{card(5000, process(1, 5000, false)), nil, external, CardUse{ForeignMiB: 5500, IdleForeignMiB: 5500}},
			{card(200, process(1, 200, false)), nil, external, CardUse{ForeignMiB: 5500, IdleForeignMiB: 5500}},
			{card(0), nil, external, CardUse{}},
		},
		"a pid that comes back is a new process": {
			{card(5000, process(1, 5000, false)), nil, external, CardUse{ForeignMiB: 5500, IdleForeignMiB: 5500}},
			{card(0), nil, external, CardUse{}},
			{card(100, process(1, 100, false)), nil, external, CardUse{ForeignMiB: 110, IdleForeignMiB: 110}},
		},
		"external processes add up": {
			{card(300, process(1, 100, false), process(2, 200, false)), nil, external, CardUse{ForeignMiB: 330, IdleForeignMiB: 330}},
		},
		"memory that no process explains is foreign": {
			{card(4000, process(1, 1000, false)), nil, external, CardUse{ForeignMiB: 4000, IdleForeignMiB: 4000}},
		},
		"a job's own use is not foreign, what it leaves unexplained is": {
			{card(8009, process(7, 8000, false)), holds("a", 8000), mine, CardUse{ForeignMiB: 9, IdleForeignMiB: 9}},
			{card(9000, process(7, 8000, false), process(8, 900, false)), holds("a", 8000), mine, CardUse{ForeignMiB: 1000, IdleForeignMiB: 1000}},
			{card(9000, process(7, 8000, false), process(8, 990, false)), holds("a", 8000), mine, CardUse{ForeignMiB: 1089, IdleForeignMiB: 1089}},
		},
		"a job's process on a card it was not granted is still its own": {
			{card(500, process(7, 500, false)), []Holding{{Key: "a", Cards: []int{3}, BudgetMiB: []int64{1}}}, mine, CardUse{}},
		},
		"a process that outlives its job is foreign, at the peak it had": {
			{card(8000, process(7, 8000, false)), holds("a", 8000), mine, CardUse{}},
			{card(100, process(7, 100, false)), nil, mine, CardUse{ForeignMiB: 8800, IdleForeignMiB: 8800}},
		},
		"a desktop does not keep a card from being idle, yet its memory is taken": {
			{card(620, process(1, 400, true), process(2, 200, true)), nil, external, CardUse{ForeignMiB: 660, IdleForeignMiB: 20}},
		},
		"memory beyond what a desktop holds does keep it from being idle": {
			{card(2000, process(1, 400, true)), nil, external, CardUse{ForeignMiB: 2000, IdleForeignMiB: 1600}},
		},
		"a computing process beside a desktop counts alone": {
			{card(900, process(1, 400, true), process(2, 500, false)), nil, external, CardUse{ForeignMiB: 990, IdleForeignMiB: 550}},
		},
		"a desktop of unknown size explains nothing": {
			{card(900, process(1, -1, true)), nil, external, CardUse{ForeignMiB: 900, IdleForeignMiB: 900}},
		},
		"a process listed twice, once as computing, computes": {
			{card(700, process(1, 400, true), process(1, 300, false)), nil, external, CardUse{ForeignMiB: 770, IdleForeignMiB: 770}},
		},
		"without a list and without jobs all use is foreign": {
			{unlisted(3000), nil, external, CardUse{ForeignMiB: 3000, IdleForeignMiB: 3000}},
		},
		"without a list: what was there before, plus what exceeds the budgets": {
			{unlisted(3000), nil, external, CardUse{ForeignMiB: 3000, IdleForeignMiB: 3000}},
			{unlisted(3000), holds("a", 8000), external, CardUse{ForeignMiB: 3000, IdleForeignMiB: 3000, Unattributed: true}},
			{unlisted(9000), holds("a", 8000), external, CardUse{ForeignMiB: 3000, IdleForeignMiB: 3000, Unattributed: true}},
			{unlisted(11500), holds("a", 8000), external, CardUse{ForeignMiB: 3500, IdleForeignMiB: 3500, Unattributed: true}},
			{unlisted(700), nil, external, CardUse{ForeignMiB: 700, IdleForeignMiB: 700}},
		},
		"a job that holds the whole card has no excess": {
			{unlisted(23000), holds("a", 0), external, CardUse{Unattributed: true}},
		},
		"a pid that cannot be looked up beside a job may be anybody's": {
			{card(100), nil, hidden, CardUse{ForeignMiB: 100, IdleForeignMiB: 100}},
			{card(5100, process(9, 5000, false)), holds("a", 8000), hidden, CardUse{ForeignMiB: 100, IdleForeignMiB: 100, Unattributed: true}},
		},
		"a pid that was there before any job is external, looked up or not": {
			{card(5000, process(9, 5000, false)), nil, hidden, CardUse{ForeignMiB: 5500, IdleForeignMiB: 5500}},
			{card(5000, process(9, 5000, false)), holds("a", 8000), hidden, CardUse{ForeignMiB: 5500, IdleForeignMiB: 5500}},
		},
		"a known external process counts beside a process of unknown owner": {
			{card(9000, process(1, 4000, false), process(9, 5000, false)), holds("a", 20000), ownedBy(map[int]string{9: "?"}),
				CardUse{ForeignMiB: 4400, IdleForeignMiB: 4400, Unattributed: true}},
		},
		"an owner once known is kept when the process is gone at the look-up": {
			{card(8000, process(7, 8000, false)), holds("a", 8000), mine, CardUse{}},
			{card(8000, process(7, 8000, false)), holds("a", 8000), hidden, CardUse{}},
		},
		"a job's process of unknown size cannot be measured": {
			{card(8000, process(7, -1, false)), holds("a", 6000), mine, CardUse{ForeignMiB: 2000, IdleForeignMiB: 2000, Unattributed: true}},
		},
		"an external process of unknown size is what the jobs leave over": {
			{card(9000, process(7, 8000, false), process(8, -1, false)), holds("a", 8000), mine, CardUse{ForeignMiB: 1000, IdleForeignMiB: 1000}},
		},
		"a driver that never names a process hides ours too": {
			{card(50), nil, external, CardUse{ForeignMiB: 50, IdleForeignMiB: 50}},
			{card(6050), holds("a", 8000), external, CardUse{ForeignMiB: 50, IdleForeignMiB: 50, Unattributed: true}},
		},
		"a driver that has named processes hides none": {
			{card(50, process(1, 50, false)), nil, external, CardUse{ForeignMiB: 55, IdleForeignMiB: 55}},
			{card(6050), holds("a", 8000), external, CardUse{ForeignMiB: 6050, IdleForeignMiB: 6050}},
		},
	}
	for name, steps := range tests {
		t.Run(name, func(t *testing.T) {
			m := NewMeter(0.10)
			for i, s := range steps {
				got := m.Observe(s.sample, s.holdings, s.owner)
				if diff := cmp.Diff([]CardUse{s.want}, got); diff != "" {
					t.Fatalf("step %d: %s", i, diff)
				}
			}
		})
	}
}

func TestMeterExternalProcessesAreRememberedWhileTheListIsGoneBriefly(t *testing.T) {
	m := NewMeter(0.10)
	m.Observe(card(5000, process(1, 5000, false)), nil, external)
	for i, want := range []int64{5500, 5500, 200} {
		if got := m.Observe(unlisted(200), nil, external)[0].ForeignMiB; got != want {
			t.Errorf("sample %d: %d, want %d", i, got, want)
		}
	}
}

func TestMeterExternalProcessesOfALostCardAreRemembered(t *testing.T) {
	m := NewMeter(0.10)
	m.Observe(card(5000, process(1, 5000, false)), nil, external)
	m.Observe(Sample{}, nil, external)
	if got := m.Observe(card(100, process(1, 100, false)), nil, external)[0].ForeignMiB; got != 5500 {
		t.Error(got)
	}
}

func TestMeterMeasuresJobs(t *testing.T) {
	m := NewMeter(0.10)
	two := []Holding{{Key: "a", Cards: []int{0, 1}, BudgetMiB: []int64{10, 10}}}
	owner := ownedBy(map[int]string{7: "a", 8: "a"})
	sample := func(first, second, elsewhere int64) Sample {
		s := Sample{}
		for i, mib := range []int64{first, second, elsewhere} {
			d := Device{Index: i, TotalMiB: 24576, UsedMiB: mib, UtilPct: float64(20 * i), ProcessesKnown: true}
			if mib > 0 {
				d.Processes = []Process{{PID: 7, UsedMiB: mib / 2}, {PID: 8, UsedMiB: mib - mib/2}}
			}
			s.Devices = append(s.Devices, d)
		}
		return s
	}
	m.Observe(sample(0, 0, 0), two, owner)
	if m.Peak("a") != nil || m.Now("a") != nil {
		t.Errorf("a job that was never seen has numbers: %v %v", m.Peak("a"), m.Now("a"))
	}
	m.Observe(sample(5000, 0, 0), two, owner)
	m.Observe(sample(3000, 0, 700), two, owner)
	if want := map[int]int64{0: 5000, 1: 0, 2: 700}; !cmp.Equal(m.Peak("a"), want) {
		t.Errorf("peak %v", m.Peak("a"))
	}
	if want := map[int]int64{0: 3000, 1: 0, 2: 700}; !cmp.Equal(m.Now("a"), want) {
		t.Errorf("now %v", m.Now("a"))
	}
	if got, known := m.AvgUtil("a"); !known || got != 10 {
		t.Errorf("utilisation %v %v", got, known)
	}
	m.Observe(sample(9000, 0, 0), nil, owner)
	if got := m.Peak("a")[0]; got != 5000 {
		t.Errorf("the peak rose to %d after the job had ended", got)
	}
	m.Forget("a")
	if _, known := m.AvgUtil("a"); m.Peak("a") != nil || known {
		t.Error("not forgotten")
	}
}

func TestMeterSeededPeaksOnlyRise(t *testing.T) {
	m := NewMeter(0.10)
	m.Seed("a", map[int]int64{0: 4000})
	m.Observe(card(1000, process(7, 1000, false)), holds("a", 8000), ownedBy(map[int]string{7: "a"}))
	if got := m.Peak("a")[0]; got != 4000 {
		t.Error(got)
	}
	m.Observe(card(6000, process(7, 6000, false)), holds("a", 8000), ownedBy(map[int]string{7: "a"}))
	if got := m.Peak("a")[0]; got != 6000 {
		t.Error(got)
	}
}

func TestMeterPeakIsUnknownWhereItCouldNotBeWatched(t *testing.T) {
	mine := ownedBy(map[int]string{7: "a"})
	t.Run("never listed", func(t *testing.T) {
		m := NewMeter(0.10)
		m.Observe(unlisted(5000), holds("a", 8000), mine)
		if m.Peak("a") != nil {
			t.Error(m.Peak("a"))
		}
	})
	t.Run("a single gap is only a missed sample", func(t *testing.T) {
		m := NewMeter(0.10)
		m.Observe(card(5000, process(7, 5000, false)), holds("a", 8000), mine)
		m.Observe(card(6000, process(9, 6000, false)), holds("a", 8000), hidden)
		m.Observe(card(100, process(7, 100, false)), holds("a", 8000), mine)
		if got := m.Peak("a")[0]; got != 5000 {
			t.Error(got)
		}
	})
	t.Run("out of sight for long", func(t *testing.T) {
		m := NewMeter(0.10)
		m.Observe(card(5000, process(7, 5000, false)), holds("a", 8000), mine)
		for range blindLimit {
			m.Observe(unlisted(7000), holds("a", 8000), mine)
		}
		m.Observe(card(100, process(7, 100, false)), holds("a", 8000), mine)
		if m.Peak("a") != nil {
			t.Error(m.Peak("a"))
		}
		if got := m.Now("a")[0]; got != 100 {
			t.Errorf("now %d", got)
		}
	})
}

func TestMeterUtilisationIsUnknownWhereTheCardDoesNotTell(t *testing.T) {
	m := NewMeter(0.10)
	m.Observe(card(0), holds("a", 1), external)
	if got, known := m.AvgUtil("a"); known {
		t.Error(got)
	}
}

func TestMeterForgetsUnheldJobsAtItsBound(t *testing.T) {
	m := NewMeter(0.10)
	for i := range maxMeterKeys + 10 {
		m.Seed(string(rune(i+0x4e00)), map[int]int64{0: 1})
	}
	m.Observe(card(0), holds("a", 1), external)
	if len(m.jobs) != 1 {
		t.Errorf("%d jobs remembered", len(m.jobs))
	}
}

func process(pid int, usedMiB int64, graphics bool) Process {
	return Process{PID: pid, UsedMiB: usedMiB, Graphics: graphics}
}
