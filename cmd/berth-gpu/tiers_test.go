//go:build cgo

package main

import (
	"encoding/binary"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
	"github.com/NVIDIA/go-nvml/pkg/nvml/mock/dgxa100"
	mocks "github.com/NVIDIA/go-nvml/pkg/nvml/mock/server"

	"berth/internal/machine/gpu"
)

// dial is a box of whose cards every slow value is one number, and whose time
// is the test's.
type dial struct {
	t      *testing.T
	driver *driver
	cards  []*mocks.Device
	value  uint32
	busy   bool // each card has a process
	now    time.Time
	pid    uint32 // of the process on each card
}

func newDial(t *testing.T, count int, busy bool) *dial {
	t.Helper()
	box := dgxa100.New()
	box.Devices = slices.Clone(box.Devices[:count])
	onlySymbols(box, memoryV2, minorNumber, utilisation, temperature, powerUsage, powerLimit, clocks, eccErrors, remappedRows, fieldValues,
		computeList, mpsList, graphicsList, processUtilisation, migMode, migHandles, linkState, linkRemote)
	d := &dial{t: t, value: 1, pid: 7, busy: busy, now: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)}
	for i, card := range box.Devices {
		card := card.(*mocks.Device)
		d.wire(card, i)
		d.cards = append(d.cards, card)
	}
	d.driver = started(t, box)
	d.driver.clock = func() time.Time { return d.now }
	return d
}

// wire has a card answer with the number of the dial.
func (d *dial) wire(card *mocks.Device, i int) {
	number := func() (uint32, nvml.Return) { return d.value, nvml.SUCCESS }
	card.GetPciInfoFunc = func() (nvml.PciInfo, nvml.Return) {
		info := nvml.PciInfo{}
		for at, c := range fmt.Sprintf("00000000:%02X:00.0", 0x10+i) {
			info.BusId[at] = int8(c)
		}
		return info, nvml.SUCCESS
	}
	card.GetMemoryInfo_v2Func = func() (nvml.Memory_v2, nvml.Return) {
		return nvml.Memory_v2{Total: 40 << 30, Used: uint64(d.value) << mibShift}, nvml.SUCCESS
	}
	card.GetUtilizationRatesFunc = func() (nvml.Utilization, nvml.Return) { return nvml.Utilization{Gpu: d.value}, nvml.SUCCESS }
	card.GetTemperatureFunc = func(nvml.TemperatureSensors) (uint32, nvml.Return) { return d.value, nvml.SUCCESS }
	card.GetPowerUsageFunc = func() (uint32, nvml.Return) { return d.value * milliwattsPW, nvml.SUCCESS }
	card.GetEnforcedPowerLimitFunc = card.GetPowerUsageFunc
	card.GetClockInfoFunc = func(nvml.ClockType) (uint32, nvml.Return) { return number() }
	card.GetTotalEccErrorsFunc = func(nvml.MemoryErrorType, nvml.EccCounterType) (uint64, nvml.Return) {
		return uint64(d.value), nvml.SUCCESS
	}
	card.GetRemappedRowsFunc = func() (int, int, bool, bool, nvml.Return) { return int(d.value), 0, false, false, nvml.SUCCESS }
	card.GetFieldValuesFunc = func(values []nvml.FieldValue) nvml.Return {
		binary.NativeEndian.PutUint32(values[0].Value[:4], 0)
		return nvml.SUCCESS
	}
	processes := func() ([]nvml.ProcessInfo, nvml.Return) {
		if !d.busy {
			return nil, nvml.SUCCESS
		}
		return []nvml.ProcessInfo{{Pid: d.pid, UsedGpuMemory: 1 << mibShift}, {Pid: 900, UsedGpuMemory: 1 << mibShift}}, nvml.SUCCESS
	}
	card.GetComputeRunningProcessesFunc = processes
	card.GetMPSComputeRunningProcessesFunc = processes
	card.GetGraphicsRunningProcessesFunc = processes
	card.GetProcessUtilizationFunc = func(uint64) ([]nvml.ProcessUtilizationSample, nvml.Return) {
		return []nvml.ProcessUtilizationSample{{Pid: d.pid, TimeStamp: 1, SmUtil: d.value}, {Pid: 900, TimeStamp: 1, SmUtil: d.value}}, nvml.SUCCESS
	}
	card.GetMigModeFunc = func() (int, int, nvml.Return) { return card.MigMode, card.MigMode, nvml.SUCCESS }
	card.GetNvLinkStateFunc = func(int) (nvml.EnableState, nvml.Return) { return 0, nvml.ERROR_INVALID_ARGUMENT }
}

// after takes a sample once some time has passed.
func (d *dial) after(pause time.Duration) *gpu.Sample {
	d.t.Helper()
	d.now = d.now.Add(pause)
	return sampled(d.t, d.driver)
}

// called says how often each call was made about a card so far.
func called(card *mocks.Device) map[string]int {
	counts := map[string]int{}
	value := reflect.ValueOf(card)
	for i := range value.NumMethod() {
		name, is := strings.CutSuffix(value.Type().Method(i).Name, "Calls")
		if !is {
			continue
		}
		if calls := value.Method(i).Call(nil)[0].Len(); calls > 0 {
			counts[name] = calls
		}
	}
	return counts
}

// since is how often each was made since an earlier count.
func since(before, after map[string]int) map[string]int {
	counts := maps.Clone(after)
	for name, count := range before {
		if counts[name] -= count; counts[name] == 0 {
			delete(counts, name)
		}
	}
	return counts
}

var slowCalls = []string{"GetTemperature", "GetPowerUsage", "GetClockInfo", "GetTotalEccErrors", "GetRemappedRows", "GetFieldValues", "GetProcessUtilization", "GetMigMode", "GetEnforcedPowerLimit", "GetNvLinkState"}

func TestSlowCallsAreMadeAsOftenAsTheirTierSays(t *testing.T) {
	for _, row := range []struct {
		name   string
		cards  int
		busy   bool
		span   time.Duration
		ranges map[string][2]int // the fewest and the most calls
	}{
		{"one idle card in 10 s", 1, false, 10 * time.Second, map[string][2]int{
			"GetMemoryInfo_v2": {100, 100}, "GetUtilizationRates": {100, 100}, "GetComputeRunningProcesses": {100, 100}, "GetGraphicsRunningProcesses": {100, 100},
			"GetTemperature": {5, 5}, "GetPowerUsage": {5, 5}, "GetClockInfo": {10, 10}, "GetTotalEccErrors": {4, 4}, "GetRemappedRows": {2, 2}, "GetFieldValues": {2, 2},
			"GetMigMode": {2, 2}, "GetProcessUtilization": {0, 0}, "GetEnforcedPowerLimit": {0, 0}, "GetNvLinkState": {0, 0},
		}},
		{"eight busy cards in 10 s", 8, true, 10 * time.Second, map[string][2]int{
			"GetMemoryInfo_v2": {100, 100}, "GetTemperature": {4, 5}, "GetTotalEccErrors": {2, 4}, "GetProcessUtilization": {0, 0}, "GetEnforcedPowerLimit": {0, 0},
		}},
		{"one busy card in two minutes", 1, true, 2 * time.Minute, map[string][2]int{
			"GetProcessUtilization": {8, 8}, "GetTemperature": {60, 60}, "GetFieldValues": {24, 24}, "GetEnforcedPowerLimit": {2, 2}, "GetNvLinkState": {2, 2},
		}},
	} {
		t.Run(row.name, func(t *testing.T) {
			d := newDial(t, row.cards, row.busy)
			d.after(0)
			before := d.counts()
			for last := before; d.now.Sub(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)) < row.span; {
				d.after(100 * time.Millisecond)
				now, slow := d.counts(), 0
				for i := range now {
					made := since(last[i], now[i])
					if slices.ContainsFunc(slowCalls, func(name string) bool { return made[name] > 0 }) {
						slow++
					}
				}
				if slow > 1 {
					t.Fatalf("slow calls about %d cards in one sample", slow)
				}
				last = now
			}
			for i, after := range d.counts() {
				made := since(before[i], after)
				for name, want := range row.ranges {
					if made[name] < want[0] || made[name] > want[1] {
						t.Errorf("%d calls of %s about card %d, want %v", made[name], name, i, want)
					}
				}
			}
		})
	}
}

func (d *dial) counts() []map[string]int {
	var all []map[string]int
	for _, card := range d.cards {
		all = append(all, called(card))
	}
	return all
}

// told are the values of a device by tier; -1: those of a tier differ.
func told(device gpu.Device) [tierCount]int {
	one := func(values ...int) int {
		if slices.Min(values) != slices.Max(values) {
			return -1
		}
		return values[0]
	}
	c := device.Condition
	return [tierCount]int{
		senses:   one(int(device.TempC), int(device.PowerW), device.SMClockMHz, device.MemClockMHz),
		health:   one(int(c.CorrectedECC), int(c.UncorrectedECC), int(c.RemappedRows)),
		shares:   int(device.Processes[0].UtilPct),
		settings: int(device.PowerLimitW),
	}
}

func TestWhatASampleTells(t *testing.T) {
	all := [tierCount]int{senses: 2, health: 2, shares: 2, settings: 2}
	none := [tierCount]int{senses: 1, health: 1, shares: 1, settings: 1}
	for _, row := range []struct {
		name  string
		cards int
		then  func(d *dial) *gpu.Sample // with the dial at 2
		want  [tierCount]int            // of the last card
	}{
		{"soon after the last one the slow values are as they were", 1, func(d *dial) *gpu.Sample { return d.after(900 * time.Millisecond) }, none},
		{"after two seconds a lone card is felt", 1, func(d *dial) *gpu.Sample { return d.after(2 * time.Second) },
			[tierCount]int{senses: 2, health: 1, shares: 1, settings: 1}},
		{"another card goes first", 2, func(d *dial) *gpu.Sample { return d.after(2 * time.Second) }, none},
		{"then it is this one's turn", 2, func(d *dial) *gpu.Sample { d.after(2 * time.Second); return d.after(100 * time.Millisecond) },
			[tierCount]int{senses: 2, health: 1, shares: 1, settings: 1}},
		{"what is much too old waits for no turn", 8, func(d *dial) *gpu.Sample { return d.after(4*time.Second + 1) },
			[tierCount]int{senses: 2, health: 1, shares: 1, settings: 1}},
		{"after a pause all cards are looked at", 8, func(d *dial) *gpu.Sample { return d.after(10*time.Second + 1) },
			[tierCount]int{senses: 2, health: 2, shares: 1, settings: 1}},
		{"and the processes of a lone one", 1, func(d *dial) *gpu.Sample { return d.after(15 * time.Second) },
			[tierCount]int{senses: 2, health: 2, shares: 2, settings: 1}},
		{"a process that has come since is looked at after two seconds", 8, func(d *dial) *gpu.Sample {
			d.pid++
			return d.after(2 * time.Second)
		}, [tierCount]int{senses: 1, health: 1, shares: 2, settings: 1}},
		{"and not before", 8, func(d *dial) *gpu.Sample {
			d.pid++
			return d.after(time.Second)
		}, [tierCount]int{senses: 1, health: 1, shares: -1, settings: 1}},
		{"after a long one nothing is left out", 8, func(d *dial) *gpu.Sample { return d.after(2*time.Minute + 1) }, all},
		{"a clock that goes back makes everything due", 8, func(d *dial) *gpu.Sample { return d.after(-time.Second) }, all},
		{"an Xid has the health be read at once", 2, func(d *dial) *gpu.Sample {
			d.xid(place{uuid: d.cards[1].UUID, busID: "0000:11:00"})
			return d.after(100 * time.Millisecond)
		}, [tierCount]int{senses: 1, health: 2, shares: 1, settings: 1}},
		{"also one that names nothing but the bus", 2, func(d *dial) *gpu.Sample {
			d.xid(place{busID: "0000:11:00"})
			return d.after(100 * time.Millisecond)
		}, [tierCount]int{senses: 1, health: 2, shares: 1, settings: 1}},
		{"an Xid on another card says nothing about this one", 2, func(d *dial) *gpu.Sample {
			d.xid(place{uuid: d.cards[0].UUID, busID: "0000:10:00"})
			return d.after(100 * time.Millisecond)
		}, none},
		{"a card that was lost and is back is read anew", 2, func(d *dial) *gpu.Sample {
			readable := d.cards[1].GetMemoryInfo_v2Func
			d.cards[1].GetMemoryInfo_v2Func = func() (nvml.Memory_v2, nvml.Return) { return nvml.Memory_v2{}, nvml.ERROR_GPU_IS_LOST }
			if s := d.after(100 * time.Millisecond); len(s.Faults) != 1 {
				d.t.Errorf("faults %+v", s.Faults)
			}
			d.cards[1].GetMemoryInfo_v2Func = readable
			return d.after(100 * time.Millisecond)
		}, all},
		{"so is one that was left alone", 2, func(d *dial) *gpu.Sample {
			if _, err := d.driver.sample([]int{1}); err != nil {
				d.t.Error(err)
			}
			return d.after(100 * time.Millisecond)
		}, all},
	} {
		t.Run(row.name, func(t *testing.T) {
			d := newDial(t, row.cards, true)
			first := d.after(0).Devices
			if got := told(first[row.cards-1]); got != none {
				t.Fatalf("the first sample tells %v", got)
			}
			d.value = 2
			device := row.then(d).Devices[row.cards-1]
			if got := told(device); got != row.want {
				t.Errorf("it tells %v, want %v", got, row.want)
			}
			if device.UsedMiB != 2 || device.UtilPct != 2 {
				t.Errorf("%d MiB in use, utilisation %g: not of this sample", device.UsedMiB, device.UtilPct)
			}
		})
	}
}

func (d *dial) xid(where place) {
	d.driver.events.add(nvml.EventData{EventType: nvml.EventTypeXidCriticalError, EventData: 48}, where)
}

func TestAnXidComesWithTheHealthAfterIt(t *testing.T) {
	d := newDial(t, 1, false)
	d.after(0)
	rows := d.cards[0].GetRemappedRowsFunc
	d.cards[0].GetRemappedRowsFunc = func() (int, int, bool, bool, nvml.Return) {
		d.xid(place{uuid: d.cards[0].UUID}) // in the middle of a sample, when the rows have been read
		return rows()
	}
	if s := d.after(time.Minute); s.Xids != nil {
		t.Errorf("Xids %+v with values from before", s.Xids)
	}
	d.cards[0].GetRemappedRowsFunc = rows
	d.value = 2
	if s := d.after(time.Millisecond); len(s.Xids) != 1 || s.Devices[0].Condition.RemappedRows != 2 {
		t.Errorf("Xids %+v with %+v", s.Xids, s.Devices[0].Condition)
	}
}

func TestAProcessThatCameSinceHasNoUtilisationYet(t *testing.T) {
	d := newDial(t, 1, true)
	d.after(0)
	d.cards[0].GetComputeRunningProcessesFunc = func() ([]nvml.ProcessInfo, nvml.Return) {
		return []nvml.ProcessInfo{{Pid: 8}, {Pid: 7}}, nvml.SUCCESS
	}
	for _, want := range [][]float64{{1, -1}, {1, 0}} {
		got := d.after(newcomerWait * 6 / 10).Devices[0].Processes
		if got[0].UtilPct != want[0] || got[1].UtilPct != want[1] {
			t.Errorf("processes %+v, want utilisations %v", got, want)
		}
	}
}

func TestACardOfWhichLittleIsReadTakesNobodysTurn(t *testing.T) {
	split := func(card *mocks.Device) { card.MigMode = nvml.DEVICE_MIG_ENABLE }
	for _, row := range []struct {
		name  string
		alter func(card *mocks.Device)
		when  time.Duration
	}{
		{"because it is in parts", split, 0},
		{"because it is in parts now", split, 3 * time.Second},
		{"because its processes have ended", func(card *mocks.Device) {
			none := func() ([]nvml.ProcessInfo, nvml.Return) { return nil, nvml.SUCCESS }
			card.GetComputeRunningProcessesFunc, card.GetMPSComputeRunningProcessesFunc, card.GetGraphicsRunningProcessesFunc = none, none, none
		}, 3 * time.Second},
	} {
		t.Run(row.name, func(t *testing.T) {
			d := newDial(t, 2, true)
			d.cards[0].GetMaxMigDeviceCountFunc = func() (int, nvml.Return) { return 0, nvml.SUCCESS }
			for at := time.Duration(0); at <= time.Minute; at += 100 * time.Millisecond {
				if at == row.when {
					row.alter(d.cards[0])
				}
				d.after(100 * time.Millisecond)
			}
			if got := called(d.cards[1])["GetTemperature"]; got < 29 {
				t.Errorf("the other card's temperature was read %d times in a minute", got)
			}
			if got := called(d.cards[0])["GetRemappedRows"]; got < 12 || got > 14 {
				t.Errorf("this card's health was read %d times in a minute", got)
			}
		})
	}
}

func TestWhoWorksIsKnownWithoutAskingWhereItCanBe(t *testing.T) {
	asked := func(d *dial) int { return called(d.cards[0])["GetProcessUtilization"] }
	t.Run("one process does all the work there is", func(t *testing.T) {
		d := newDial(t, 1, true)
		alone := func() ([]nvml.ProcessInfo, nvml.Return) { return []nvml.ProcessInfo{{Pid: 7}}, nvml.SUCCESS }
		card := d.cards[0]
		card.GetComputeRunningProcessesFunc, card.GetMPSComputeRunningProcessesFunc, card.GetGraphicsRunningProcessesFunc = alone, alone, alone
		for _, value := range []uint32{50, 98} {
			d.value = value
			if got := d.after(time.Second).Devices[0].Processes; len(got) != 1 || got[0].UtilPct != float64(value) {
				t.Errorf("at %d: %+v", value, got)
			}
		}
		if asked(d) != 0 {
			t.Errorf("the driver was asked %d times", asked(d))
		}
	})
	t.Run("nobody works on a card that does nothing", func(t *testing.T) {
		d := newDial(t, 1, true)
		d.value = 0
		if got := d.after(0).Devices[0].Processes; len(got) != 2 || got[0].UtilPct != 0 || got[1].UtilPct != 0 || asked(d) != 0 {
			t.Errorf("%+v, asked %d times", got, asked(d))
		}
	})
	t.Run("that nobody works on a card that does is asked again soon", func(t *testing.T) {
		d := newDial(t, 1, true)
		work := d.cards[0].GetProcessUtilizationFunc
		d.cards[0].GetProcessUtilizationFunc = func(uint64) ([]nvml.ProcessUtilizationSample, nvml.Return) { return nil, nvml.ERROR_NOT_FOUND }
		d.value = 40
		d.after(0)
		d.cards[0].GetProcessUtilizationFunc = work
		if got := d.after(idlersWait - time.Second).Devices[0].Processes; got[0].UtilPct != 0 {
			t.Errorf("before: %+v", got)
		}
		if got := d.after(time.Second).Devices[0].Processes; got[0].UtilPct != 40 {
			t.Errorf("after: %+v", got)
		}
	})
}
