package gpu

import (
	"os"
	"path/filepath"
	"testing"
)

func TestSimFaultsOfOneCard(t *testing.T) {
	tests := map[string]struct {
		fault string
		check func(s Sample) bool
	}{
		"a card hangs and the others answer": {"hang 1", func(s Sample) bool {
			return len(s.Devices) == 2 && len(s.Faults) == 1 && s.Faults[0].Kind == FaultHangs && s.Faults[0].Index == 1 && s.Faults[0].UUID != ""
		}},
		"a card is missing without a word": {"miss 1", func(s Sample) bool { return len(s.Devices) == 2 && len(s.Faults) == 0 }},
		"memory leaks":                     {"leak 1 500", func(s Sample) bool { return s.Devices[1].UsedMiB == 600 && len(s.Devices[1].Processes) == 1 }},
		"a dead process is listed": {"dead-pid 1 4000000 70", func(s Sample) bool {
			d := s.Devices[1]
			return d.UsedMiB == 170 && len(d.Processes) == 2 && d.Processes[1] == Process{PID: 4000000, UsedMiB: 70, UtilPct: -1}
		}},
		"memory errors":               {"ecc 1 3", func(s Sample) bool { return s.Devices[1].Condition.UncorrectedECC == 3 }},
		"rows wait to be remapped":    {"rows 1", func(s Sample) bool { return s.Devices[1].Condition.RowsPending }},
		"rows could not be remapped":  {"rows 1 failed", func(s Sample) bool { return s.Devices[1].Condition.RowsFailed }},
		"the driver asks for a reset": {"recovery 1 drain and reset", func(s Sample) bool { return s.Devices[1].Condition.Recovery == RecoveryDrainAndReset }},
		"utilisation is as told":      {"util 1 37", func(s Sample) bool { return s.Devices[1].UtilPct == 37 && s.Devices[1].Processes[0].UtilPct == -1 }},
		"several things at once": {"rows 0\n\nleak 1 500\nlose 2\n", func(s Sample) bool {
			return len(s.Devices) == 2 && s.Devices[0].Condition.RowsPending && s.Devices[1].UsedMiB == 600 && s.Faults[0].Kind == FaultLost
		}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			s := openSim(t, 3)
			user := startUser(t, s)
			user.ask("set 1 100")
			writeFault(t, s, test.fault)
			if got := takeSample(t, s); !test.check(got) {
				t.Errorf("%+v", got)
			}
		})
	}
}

func writeFault(t *testing.T, s *Sim, text string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(s.dirPath(), "fault"), []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

func TestSimRaisesAnXidOncePerChangeOfTheFile(t *testing.T) {
	s := openSim(t, 2)
	for i, step := range []struct {
		fault string
		want  int
	}{{"xid 1 48", 1}, {"xid 1 48", 0}, {"", 0}, {"xid 1 48\nxid 0 31", 2}, {"xid 1 48\nxid 0 31\nxid 7 31", 2}} {
		writeFault(t, s, step.fault)
		xids := takeSample(t, s).Xids
		if len(xids) != step.want || step.want > 0 && (xids[0].Code != 48 || xids[0].UUID != s.box.Cards[1].UUID) {
			t.Errorf("step %d: %+v", i, xids)
		}
	}
}

func TestSimRefusesAFaultItDoesNotKnow(t *testing.T) {
	s := openSim(t, 1)
	for _, text := range []string{"lose", "xid 0", "xid 0 x", "leak 0", "leak 0 1 2", "rows 0 maybe", "recovery 0", "dead-pid 0 1", "rows 0\nexplode 0"} {
		writeFault(t, s, text)
		if _, err := s.Sample(t.Context()); err == nil {
			t.Errorf("%q was taken", text)
		}
	}
}

func TestSimBoxMayHavePartsAndPlaces(t *testing.T) {
	s := openSim(t, 2)
	zero, minor := 0, 4
	s.box.Cards[1].PartOf, s.box.Cards[1].Profile, s.box.Cards[1].Minor = &zero, "1g.10gb", &minor
	s.box.Cards[1].CPUs, s.box.Cards[1].Near = "0-3", map[int]int{0: nearHost}
	if err := s.box.write(); err != nil {
		t.Fatal(err)
	}
	again, err := OpenSim(s.dirPath(), 2, 24576)
	if err != nil {
		t.Fatal(err)
	}
	d := takeSample(t, again).Devices
	if d[0].Part != nil || d[0].Minor != -1 || d[1].Part == nil || d[1].Part.Profile != "1g.10gb" || d[1].Part.Of != 0 {
		t.Errorf("%+v", d)
	}
	if d[1].Minor != 4 || d[1].CPUs != "0-3" || d[1].Near[0] != nearHost {
		t.Errorf("%+v", d[1])
	}
}
