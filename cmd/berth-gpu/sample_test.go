//go:build cgo

package main

import (
	"reflect"
	"slices"
	"testing"

	"berth/internal/machine/gpu"
	"berth/internal/tests/fakenvml"
)

func TestASampleIsWhatTheDriverSays(t *testing.T) {
	busy, old := fakenvml.H100(0), fakenvml.RTX2080(1)
	busy.UtilPct, busy.StrayMiB = 87, 100
	busy.CorrectedECC, busy.UncorrectedECC, busy.Recovery = 5, 2, 4
	busy.CorrectedRows, busy.UncorrectedRows, busy.RowsPending, busy.RowsFailed = 3, 1, true, true
	busy.Processes = []fakenvml.Process{
		{PID: 30, UsedMiB: 4000, SMPct: 61},
		{PID: 20, UsedMiB: 50, Kind: fakenvml.Draws, SMPct: -1},
		{PID: 40, UsedMiB: 70, Kind: fakenvml.MPS, SMPct: 9},
		{PID: 10, UsedMiB: fakenvml.Unavailable, SMPct: -1},
		{PID: 30, UsedMiB: 4000, Kind: fakenvml.Draws, SMPct: -1}, // it draws too
	}
	old.RetiredPending, old.ProcessUtil, old.PowerMilliwatts = 1, -1, -1
	old.Processes = []fakenvml.Process{{PID: 99, UsedMiB: 12}}
	h := start(t, fakenvml.New(t, busy, old, fakenvml.H100(2)))

	facts := h.hello()
	off := false
	want := gpu.Facts{Source: "NVML", Driver: "580.159.04", NVML: "13.580.159.04", CUDA: "13.0", Events: true, MemoryLimits: true, Persistence: &off}
	if !reflect.DeepEqual(facts, want) {
		t.Errorf("facts\n%+v\nwant\n%+v", facts, want)
	}
	s := h.sample(gpu.HelperRequest{})
	first := gpu.Unknown(0, busy.UUID, busy.Name)
	first.BusID, first.Minor = "00000000:10:00.0", 0
	first.TotalMiB, first.ReservedMiB, first.UsedMiB, first.UtilPct = 81559, 551, 100+4000+50+70+4000, 87
	first.TempC, first.PowerW, first.PowerLimitW, first.SMClockMHz, first.MemClockMHz = 31, 71.25, 700, 345, 2619
	first.Condition = gpu.Condition{UncorrectedECC: 2, CorrectedECC: 5, RemappedRows: 4, RowsPending: true, RowsFailed: true, Recovery: gpu.RecoveryDrainAndReset}
	first.ProcessesKnown = true
	first.Processes = []gpu.Process{
		{PID: 10, UsedMiB: -1}, {PID: 20, UsedMiB: 50, Graphics: true},
		{PID: 30, UsedMiB: 4000, UtilPct: 61}, {PID: 40, UsedMiB: 70, UtilPct: 9},
	}
	second := gpu.Unknown(1, old.UUID, old.Name)
	second.BusID, second.Minor = "00000000:11:00.0", 1
	second.TotalMiB, second.ReservedMiB, second.UsedMiB, second.UtilPct = 11264, 247, 12, 0
	second.TempC, second.PowerLimitW, second.SMClockMHz, second.MemClockMHz = 31, 250, 345, 2619
	second.Condition.RowsPending = true
	second.ProcessesKnown = true
	second.Processes = []gpu.Process{{PID: 99, UsedMiB: 12}} // on an idle card nobody works
	for i, want := range []gpu.Device{first, second} {
		if !reflect.DeepEqual(s.Devices[i], want) {
			t.Errorf("card %d\n%+v\nwant\n%+v", i, s.Devices[i], want)
		}
	}
	if len(s.Devices) != 3 || s.Faults != nil || s.Problems != nil || s.At.IsZero() {
		t.Errorf("sample %+v", s)
	}
}

func TestEveryRecoveryActionHasItsWord(t *testing.T) {
	box := fakenvml.New(t, fakenvml.H100(0))
	h := start(t, box)
	words := []string{
		gpu.RecoveryNone, gpu.RecoveryReset, gpu.RecoveryReboot, gpu.RecoveryDrain,
		gpu.RecoveryDrainAndReset, gpu.RecoveryFabric, gpu.RecoveryBusReset, gpu.RecoveryReboot,
	}
	for action, word := range words {
		box.Change(0, func(card *fakenvml.Card) { card.Recovery = action })
		h.sample(gpu.HelperRequest{Skip: []int{0}}) // a card that was left out is read anew
		if got := h.sample(gpu.HelperRequest{}).Devices[0].Condition.Recovery; got != word {
			t.Errorf("action %d is %q, want %q", action, got, word)
		}
	}
}

func TestPagesThatWaitForRetirementCountOnlyWhereRowsAreNotRemapped(t *testing.T) {
	card := fakenvml.H100(0)
	card.RetiredPending = 1
	if got := start(t, fakenvml.New(t, card)).sample(gpu.HelperRequest{}).Devices[0].Condition; got.RowsPending || got.RemappedRows != 0 {
		t.Errorf("condition %+v", got)
	}
}

func TestProcessesOfWhichTheDriverHasNoSampleAreIdle(t *testing.T) {
	card := fakenvml.H100(0)
	card.Processes = []fakenvml.Process{{PID: 5, UsedMiB: 10, SMPct: -1}}
	if got := start(t, fakenvml.New(t, card)).sample(gpu.HelperRequest{}).Devices[0].Processes; len(got) != 1 || got[0].UtilPct != 0 {
		t.Errorf("processes %+v", got)
	}
}

func TestOlderDriversAreReadAsFarAsTheyGo(t *testing.T) {
	for _, row := range []struct {
		name    string
		missing []string
		want    func(*gpu.Device, *gpu.Facts)
	}{
		{"without the second memory call the reserve counts as used", fakenvml.MemoryV2, func(d *gpu.Device, f *gpu.Facts) {
			d.ReservedMiB, d.UsedMiB = 0, d.UsedMiB+551
			f.Notes = []string{"this driver counts its own reserve as used memory"}
		}},
		{"without the third process list the second is taken", fakenvml.ProcessesV3, func(*gpu.Device, *gpu.Facts) {}},
		{"without both the first list is taken, and MPS clients are in it", slices.Concat(fakenvml.ProcessesV2, fakenvml.ProcessesV3), func(*gpu.Device, *gpu.Facts) {}},
		{"without field values the recovery action is not known", fakenvml.FieldValues, func(d *gpu.Device, _ *gpu.Facts) { d.Condition.Recovery = "" }},
		{"without memory limits there are none", fakenvml.MemoryLimits, func(_ *gpu.Device, f *gpu.Facts) { f.MemoryLimits = false }},
		{
			"of a driver that has next to nothing the memory is still known",
			[]string{
				"nvmlDeviceGetUtilizationRates", "nvmlDeviceGetTemperature", "nvmlDeviceGetPowerUsage", "nvmlDeviceGetEnforcedPowerLimit",
				"nvmlDeviceGetClockInfo", "nvmlDeviceGetTotalEccErrors", "nvmlDeviceGetRemappedRows", "nvmlDeviceGetRetiredPagesPendingStatus",
				"nvmlDeviceGetPersistenceMode", "nvmlDeviceGetComputeRunningProcesses", "nvmlDeviceGetProcessUtilization", "nvmlDeviceGetMigMode",
				"nvmlDeviceGetNvLinkState", "nvmlEventSetCreate", "nvmlSystemGetCudaDriverVersion", "nvmlDeviceGetMinorNumber",
				"nvmlDeviceGetComputeRunningProcesses_v2", "nvmlDeviceGetComputeRunningProcesses_v3",
			},
			func(d *gpu.Device, f *gpu.Facts) {
				bare := gpu.Unknown(0, d.UUID, d.Name)
				bare.BusID, bare.TotalMiB, bare.ReservedMiB, bare.UsedMiB = d.BusID, d.TotalMiB, d.ReservedMiB, d.UsedMiB
				bare.Condition.Recovery = gpu.RecoveryNone
				*d = bare
				f.CUDA, f.Persistence, f.Events = "", nil, false
				f.Notes = []string{"no GPU reports Xids through NVML"}
			},
		},
	} {
		t.Run(row.name, func(t *testing.T) {
			card := fakenvml.H100(0)
			card.Processes = []fakenvml.Process{{PID: 7, UsedMiB: 300, Kind: fakenvml.MPS, SMPct: 3}}
			box := fakenvml.New(t, card)
			h := start(t, box)
			facts, device := h.hello(), h.sample(gpu.HelperRequest{}).Devices[0]
			row.want(&device, &facts)

			box.Miss(row.missing...)
			h = start(t, box)
			gotFacts, got := h.hello(), h.sample(gpu.HelperRequest{}).Devices[0]
			if !reflect.DeepEqual(got, device) {
				t.Errorf("card\n%+v\nwant\n%+v", got, device)
			}
			if !reflect.DeepEqual(gotFacts, facts) {
				t.Errorf("facts\n%+v\nwant\n%+v", gotFacts, facts)
			}
		})
	}
}

func TestPartsAreDevicesAndTheirCardIsNone(t *testing.T) {
	whole, split := fakenvml.H100(0), fakenvml.Partitioned(1, 2)
	split.Parts[1].Processes = []fakenvml.Process{{PID: 5, UsedMiB: 700}}
	split.CorrectedRows = 6
	box := fakenvml.New(t, whole, split, fakenvml.Partitioned(2, 0))
	h := start(t, box)
	s := h.sample(gpu.HelperRequest{})
	if want := []string{whole.UUID, split.Parts[0].UUID, split.Parts[1].UUID}; !slices.Equal(uuids(s.Devices), want) {
		t.Fatalf("devices %v, want %v", uuids(s.Devices), want)
	}
	want := gpu.Unknown(201, split.Parts[1].UUID, "NVIDIA H100 80GB HBM3 MIG 1g.10gb")
	want.BusID, want.Minor, want.Part = split.BusID, 1, &gpu.Part{Of: 1, Profile: "1g.10gb"}
	want.TotalMiB, want.ReservedMiB, want.UsedMiB = 9984, 13, 700
	want.Condition = gpu.Condition{RemappedRows: 6, Recovery: gpu.RecoveryNone}
	want.Processes, want.ProcessesKnown = []gpu.Process{{PID: 5, UsedMiB: 700, UtilPct: -1}}, true
	if !reflect.DeepEqual(s.Devices[2], want) {
		t.Errorf("part\n%+v\nwant\n%+v", s.Devices[2], want)
	}
	if !slices.Equal(s.Problems, []string{"GPU 2 is partitioned (MIG) and has no parts"}) {
		t.Errorf("problems %q", s.Problems)
	}
	box.Lose(1)
	s = h.sample(gpu.HelperRequest{})
	for n, fault := range s.Faults {
		if fault.Index != 200+n || fault.UUID != split.Parts[n].UUID || fault.Kind != gpu.FaultLost {
			t.Errorf("fault %+v of part %d", fault, n)
		}
	}
	if len(s.Faults) != 2 {
		t.Errorf("a lost card with two parts has faults %+v", s.Faults)
	}
	// Once it is whole again, so are its faults.
	box.Change(1, func(card *fakenvml.Card) { card.MIG, card.Parts = 0, nil })
	box.Restore(1)
	h.sample(gpu.HelperRequest{})
	box.Lose(1)
	if s = h.sample(gpu.HelperRequest{}); len(s.Faults) != 1 || s.Faults[0].Index != 1 || s.Faults[0].UUID != split.UUID {
		t.Errorf("a lost card without parts has faults %+v", s.Faults)
	}
}

func TestLinksAreCountedBetweenCards(t *testing.T) {
	a, b, c, d := fakenvml.H100(0), fakenvml.H100(1), fakenvml.H100(2), fakenvml.H100(3)
	a.Links = []fakenvml.Link{{To: b.BusID}, {To: b.BusID}, {To: c.BusID}}
	b.Links = []fakenvml.Link{{To: a.BusID}, {To: a.BusID}}
	c.Links = []fakenvml.Link{{To: a.BusID}, {To: "00000000:F0:00.0", Switch: true}, {To: "00000000:F1:00.0", Switch: true}}
	d.Links = []fakenvml.Link{{To: "00000000:F0:00.0", Switch: true}}
	h := start(t, fakenvml.New(t, a, b, c, d))
	want := []map[int]int{{1: 2, 2: 1}, {0: 2}, {0: 1, 3: 1}, {2: 1}}
	for round := range 2 { // the second from what is kept
		s := h.sample(gpu.HelperRequest{})
		for i := range want {
			if !reflect.DeepEqual(s.Devices[i].Links, want[i]) {
				t.Errorf("round %d: links of card %d %v, want %v", round, i, s.Devices[i].Links, want[i])
			}
		}
	}
}

// BenchmarkSample8 is the processor time of the helper for one sample of eight
// busy cards, by its own account.
func BenchmarkSample8(b *testing.B) {
	var cards []fakenvml.Card
	for i := range 8 {
		card := fakenvml.H100(i)
		for n := range 4 {
			card.Processes = append(card.Processes, fakenvml.Process{PID: 1000*i + n + 1, UsedMiB: 1000, SMPct: 20})
		}
		for range 18 {
			card.Links = append(card.Links, fakenvml.Link{To: "00000000:F0:00.0", Switch: true})
		}
		cards = append(cards, card)
	}
	h := start(b, fakenvml.New(b, cards...))
	h.sample(gpu.HelperRequest{})
	before := h.ask(gpu.HelperRequest{Do: gpu.HelperSample}).CPU
	b.ResetTimer()
	after := before
	for b.Loop() {
		after = h.ask(gpu.HelperRequest{Do: gpu.HelperSample}).CPU
	}
	b.ReportMetric(float64((after-before).Microseconds())/float64(b.N), "cpu-µs/sample")
}
