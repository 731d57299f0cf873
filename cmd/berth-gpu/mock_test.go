//go:build cgo

package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
	"github.com/NVIDIA/go-nvml/pkg/nvml/mock/dgxa100"
	"github.com/NVIDIA/go-nvml/pkg/nvml/mock/dgxh100"
	"github.com/NVIDIA/go-nvml/pkg/nvml/mock/dgxh200"
	mocks "github.com/NVIDIA/go-nvml/pkg/nvml/mock/server"

	"berth/internal/machine/gpu"
)

// onlySymbols has a mock box be one of a driver with these optional calls.
func onlySymbols(box *mocks.Server, has ...symbol) {
	box.LookupSymbolFunc = func(name string) error {
		for _, symbol := range has {
			for _, known := range symbolNames[symbol] {
				if known == name {
					return nil
				}
			}
		}
		return os.ErrNotExist
	}
}

func started(t *testing.T, box *mocks.Server) *driver {
	t.Helper()
	d := newDriver(box, page{word: new(uint32)}, allCards)
	if err := d.start(); err != nil {
		t.Fatal(err)
	}
	return d
}

func sampled(t *testing.T, d *driver) *gpu.Sample {
	t.Helper()
	s, err := d.sample(nil)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// seeds: T5
func TestNVIDIAsOwnBoxesAreRead(t *testing.T) {
	for _, row := range []struct {
		name     string
		box      *mocks.Server
		card     string
		totalMiB int64
		driver   string
	}{
		{"a DGX A100", dgxa100.New(), "Mock NVIDIA A100-SXM4-40GB", 40960, "550.54.15"},
		{"a DGX H100", dgxh100.New(), "NVIDIA H100 80GB HBM3", 81920, "550.54.15"},
		{"a DGX H200", dgxh200.New(), "NVIDIA H200 141GB HBM3e", 144384, "550.54.15"},
	} {
		t.Run(row.name, func(t *testing.T) {
			onlySymbols(row.box, minorNumber, migMode, migHandles, driverVersion)
			d := started(t, row.box)
			facts, err := d.facts(nil)
			if err != nil || facts.Driver != row.driver || facts.Events || facts.MemoryLimits {
				t.Errorf("facts %+v, %v", facts, err)
			}
			s := sampled(t, d)
			if len(s.Devices) != 8 || s.Faults != nil {
				t.Fatalf("sample %+v", s)
			}
			for i, device := range s.Devices {
				want := gpu.Unknown(i, row.box.Devices[i].(*mocks.Device).UUID, row.card)
				want.Minor, want.TotalMiB = i, row.totalMiB
				if !reflect.DeepEqual(device, want) {
					t.Errorf("card %d\n%+v\nwant\n%+v", i, device, want)
				}
			}
		})
	}
}

func TestADriverThatRefusesTheSecondMemoryCallIsAskedTheFirst(t *testing.T) {
	for _, refusal := range []nvml.Return{nvml.ERROR_NOT_SUPPORTED, nvml.ERROR_ARGUMENT_VERSION_MISMATCH} {
		box := dgxa100.New()
		onlySymbols(box, memoryV2)
		for i, card := range box.Devices {
			card := card.(*mocks.Device)
			card.MemoryInfo.Used = 3 << 30
			card.GetMemoryInfo_v2Func = func() (nvml.Memory_v2, nvml.Return) {
				if i == 0 {
					return nvml.Memory_v2{}, refusal
				}
				return nvml.Memory_v2{Total: 40 << 30, Reserved: 1 << 30, Used: 2 << 30}, nvml.SUCCESS
			}
		}
		devices := sampled(t, started(t, box)).Devices
		if devices[0].UsedMiB != 3072 || devices[0].ReservedMiB != 0 || devices[1].UsedMiB != 2048 || devices[1].ReservedMiB != 1024 {
			t.Errorf("%v: %+v and %+v", refusal, devices[0], devices[1])
		}
	}
}

func TestACardLostInTheMiddleOfASampleIsLost(t *testing.T) {
	box := dgxa100.New()
	onlySymbols(box, temperature)
	for i, card := range box.Devices {
		card.(*mocks.Device).GetTemperatureFunc = func(nvml.TemperatureSensors) (uint32, nvml.Return) {
			if i == 5 {
				return 0, nvml.ERROR_GPU_IS_LOST
			}
			return 40, nvml.SUCCESS
		}
	}
	s := sampled(t, started(t, box))
	if len(s.Devices) != 7 || len(s.Faults) != 1 || s.Faults[0].Index != 5 || s.Faults[0].Kind != gpu.FaultLost || s.Faults[0].UUID == "" {
		t.Errorf("%d devices, faults %+v", len(s.Devices), s.Faults)
	}
}

func TestACardThatIsNeverContentWithItsRoomTellsNoProcesses(t *testing.T) {
	box := dgxa100.New()
	onlySymbols(box, computeList)
	for i, card := range box.Devices {
		card.(*mocks.Device).GetComputeRunningProcessesFunc = func() ([]nvml.ProcessInfo, nvml.Return) {
			room := uint32(1)
			for i == 3 { // as go-nvml does where the driver always asks for more
				_ = make([]nvml.ProcessInfo, room)[0]
				room <<= 16 // in fewer steps
			}
			return []nvml.ProcessInfo{{Pid: 5_000_000, UsedGpuMemory: 7 << 20}}, nvml.SUCCESS
		}
	}
	d := started(t, box)
	for range 2 {
		s := sampled(t, d)
		if len(s.Devices) != 8 || len(s.Faults) != 0 {
			t.Fatalf("%d devices, faults %+v", len(s.Devices), s.Faults)
		}
		for _, device := range s.Devices {
			if known := device.ProcessesKnown; known != (device.Index != 3) || known && device.Processes[0].PID != 5_000_000 {
				t.Errorf("card %d: %+v", device.Index, device.Processes)
			}
		}
		d.look()
	}
}

// part is a MIG device of a mock card: what NVML gives for a handle of one.
func part(uuid, name string, gpuInstance, computeInstance int) *mocks.Device {
	p := &mocks.Device{}
	p.GetUUIDFunc = func() (string, nvml.Return) { return uuid, nvml.SUCCESS }
	p.GetNameFunc = func() (string, nvml.Return) { return name, nvml.SUCCESS }
	p.GetGpuInstanceIdFunc = func() (int, nvml.Return) { return gpuInstance, nvml.SUCCESS }
	p.GetComputeInstanceIdFunc = func() (int, nvml.Return) { return computeInstance, nvml.SUCCESS }
	p.GetMemoryInfoFunc = func() (nvml.Memory, nvml.Return) {
		return nvml.Memory{Total: 9984 << 20, Used: 5 << 20}, nvml.SUCCESS
	}
	p.GetAttributesFunc = func() (nvml.DeviceAttributes, nvml.Return) {
		return nvml.DeviceAttributes{GpuInstanceSliceCount: 3, ComputeInstanceSliceCount: 1, MemorySizeMB: 40192}, nvml.SUCCESS
	}
	return p
}

func TestPartsSayWhatOpensThem(t *testing.T) {
	box := dgxa100.New()
	box.Devices = box.Devices[:2]
	onlySymbols(box, minorNumber, migMode, migHandles, migAttributes)
	split := box.Devices[1].(*mocks.Device)
	split.MigMode = nvml.DEVICE_MIG_ENABLE
	parts := map[int]*mocks.Device{0: part("MIG-a", "NVIDIA A100 MIG 2g.10gb", 3, 0), 4: part("MIG-b", "an older driver's name", 9, 1)}
	split.GetMaxMigDeviceCountFunc = func() (int, nvml.Return) { return 7, nvml.SUCCESS }
	split.GetMigDeviceHandleByIndexFunc = func(n int) (nvml.Device, nvml.Return) {
		if p := parts[n]; p != nil {
			return p, nvml.SUCCESS
		}
		return nil, nvml.ERROR_NOT_FOUND
	}
	d := started(t, box)
	d.caps = t.TempDir()
	for path, text := range map[string]string{
		"gpu1/mig/gi3/access": "DeviceFileMinor: 30\nDeviceFileMode: 292\n", "gpu1/mig/gi3/ci0/access": "DeviceFileMinor: 31\nDeviceFileMode: 292\n",
		"gpu1/mig/gi9/access": "DeviceFileMinor: 84\n", // its compute instance says nothing
	} {
		path = filepath.Join(d.caps, path)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	s := sampled(t, d)
	if len(s.Devices) != 3 {
		t.Fatalf("devices %v, faults %+v", uuids(s.Devices), s.Faults)
	}
	for i, want := range []struct {
		index int
		uuid  string
		part  gpu.Part
	}{
		{200, "MIG-a", gpu.Part{Of: 1, Profile: "2g.10gb", Caps: []int{30, 31}}},
		{204, "MIG-b", gpu.Part{Of: 1, Profile: "1c.3g.40gb"}},
	} {
		got := s.Devices[i+1]
		if got.Index != want.index || got.DriverIndex != want.index || got.UUID != want.uuid || !reflect.DeepEqual(*got.Part, want.part) {
			t.Errorf("part %+v, want %+v", got, want)
		}
		if got.Minor != 1 || got.TotalMiB != 9984 || got.UsedMiB != 5 || got.Name != "Mock NVIDIA A100-SXM4-40GB MIG "+want.part.Profile {
			t.Errorf("part %+v", got)
		}
	}
}

func TestABugIsAnsweredAndEndsIt(t *testing.T) {
	box := dgxa100.New() // a call that the mock does not have panics
	var out bytes.Buffer
	s := &server{driver: newDriver(box, page{word: new(uint32)}, allCards), out: &out, ticker: time.NewTicker(time.Hour)}
	lines := make(chan request, 1)
	lines <- request{text: []byte(`{"id":7,"do":"sample"}`)}
	if status := s.loop(lines, nil); status != exitFailed {
		t.Errorf("exit status %d", status)
	}
	var reply gpu.HelperReply
	if err := json.Unmarshal(out.Bytes(), &reply); err != nil || strings.Count(out.String(), "\n") != 1 {
		t.Fatalf("it wrote %q: %v", out.String(), err)
	}
	if reply.ID != 7 || !strings.HasPrefix(reply.Error, "bug in berth-gpu: ") {
		t.Errorf("reply %+v", reply)
	}
}

func TestOnceGivesUpOnADriverThatHangs(t *testing.T) {
	for _, row := range []struct {
		name string
		hang func(box *mocks.Server, ever chan struct{})
		want string
	}{
		{"about a card", func(box *mocks.Server, ever chan struct{}) {
			box.Devices[3].(*mocks.Device).GetUUIDFunc = func() (string, nvml.Return) { <-ever; return "", nvml.ERROR_GPU_IS_LOST }
		}, "berth-gpu: the driver does not answer about GPU 3\n"},
		{"about none", func(box *mocks.Server, ever chan struct{}) {
			box.InitFunc = func() nvml.Return { <-ever; return nvml.ERROR_UNKNOWN }
		}, "berth-gpu: the driver does not answer\n"},
	} {
		t.Run(row.name, func(t *testing.T) {
			box, ever := dgxa100.New(), make(chan struct{})
			onlySymbols(box)
			defer close(ever)
			row.hang(box, ever)
			var out, errs bytes.Buffer
			if status := once(box, &out, &errs, allCards, 100*time.Millisecond); status != exitFailed || out.Len() > 0 || errs.String() != row.want {
				t.Errorf("%q, %q, exit status %d", out.String(), errs.String(), status)
			}
		})
	}
}

func TestEventsAreKeptUpToABound(t *testing.T) {
	var e events
	where := place{uuid: "GPU-a", busID: "0000:3b:00"}
	for range 3 {
		e.add(nvml.EventData{EventType: nvml.EventTypeGpuRecoveryAction}, where)
	}
	e.add(nvml.EventData{EventType: nvml.EventTypeGpuRecoveryAction}, place{uuid: "GPU-b"})
	if xids, _ := e.drain(); len(xids) != 2 || xids[0].Code != 154 || xids[0].UUID != "GPU-a" || xids[1].UUID != "GPU-b" {
		t.Errorf("an event that is told again is one, but here are %+v", xids)
	}
	for code := range maxXids + 3 {
		e.add(nvml.EventData{EventType: nvml.EventTypeXidCriticalError, EventData: uint64(code)}, where)
	}
	xids, problems := e.drain()
	if len(xids) != maxXids || xids[0].Code != 3 || xids[maxXids-1].Code != maxXids+2 || len(problems) != 1 || !strings.HasPrefix(problems[0], "3 driver events") {
		t.Errorf("%d Xids from %d, problems %q", len(xids), xids[0].Code, problems)
	}
	if xids, problems := e.drain(); xids != nil || problems != nil {
		t.Errorf("left over: %+v, %q", xids, problems)
	}
}

func TestBusIDsAreWrittenAsTheKernelDoes(t *testing.T) {
	for is, want := range map[string]string{"00000000:3B:00.0": "0000:3b:00", "0001:AF:00.0": "0001:af:00", "": "", "odd": ""} {
		if got := kernelBusID(is); got != want {
			t.Errorf("%q is %q, want %q", is, got, want)
		}
	}
}
