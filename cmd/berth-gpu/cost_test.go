//go:build cgo

package main

import (
	"bytes"
	"encoding/json"
	"maps"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"berth/internal/tests/fakenvml"
)

// runCost runs "berth-gpu cost" on a box.
func runCost(t *testing.T, box *fakenvml.Box, args ...string) (out, errs string, status int) {
	t.Helper()
	var said, wrong bytes.Buffer
	cmd := exec.Command(program(t), append([]string{"cost"}, args...)...)
	cmd.Env, cmd.Stdout, cmd.Stderr = append(os.Environ(), box.Env()...), &said, &wrong
	_ = cmd.Run() // its state says how it ended
	return said.String(), wrong.String(), cmd.ProcessState.ExitCode()
}

func TestCostsAreMeasured(t *testing.T) {
	box := fakenvml.New(t, fakenvml.H100(0), fakenvml.RTX2080(1), fakenvml.Partitioned(2, 1))
	box.SetProcesses(0, fakenvml.Process{PID: 9, UsedMiB: 10, SMPct: 5})
	read := func(args ...string) (costs, map[string]callCost) {
		t.Helper()
		out, errs, status := runCost(t, box, append(args, "-json", "-n", "40")...)
		var got costs
		if err := json.Unmarshal([]byte(out), &got); err != nil || status != 0 {
			t.Fatalf("%q, %q, exit status %d: %v", out, errs, status, err)
		}
		calls := map[string]callCost{}
		for _, call := range got.Calls {
			calls[call.What] = call
		}
		return got, calls
	}
	got, calls := read()
	s := got.Sample
	if got.Cards != 3 || s.Samples != costSamples || s.Every != costPace || s.CPU <= 0 || s.Wall <= 0 || s.CardCPU != s.CPU/3 || s.AllCPU <= 0 {
		t.Errorf("costs %+v", got)
	}
	if len(calls) != len(questions) {
		t.Errorf("%d calls were measured, want %d", len(calls), len(questions))
	}
	for what, call := range calls {
		if call.Wall <= 0 || !strings.HasPrefix(call.Call, "nvmlDevice") {
			t.Errorf("%s costs %+v", what, call)
		}
	}
	if c := calls["temperature"]; c.Call != "nvmlDeviceGetTemperature" || c.Every != 2*time.Second || c.Refused != "" {
		t.Errorf("temperature %+v", c)
	}
	if c := calls["remapped rows"]; c.Refused != "Not Supported" { // by the second card
		t.Errorf("remapped rows %+v", c)
	}
	if one, calls := read("-only", "0"); one.Cards != 1 || calls["remapped rows"].Refused != "" {
		t.Errorf("of one card: %+v", one)
	}
	box.Slow(1)
	if _, calls := read("-only", "0", "-n", "3"); calls["power"].Wall < time.Millisecond {
		t.Errorf("a call that takes a millisecond takes %v", calls["power"].Wall)
	}
}

func TestCostsAreATableForPeople(t *testing.T) {
	box := fakenvml.New(t, fakenvml.H100(0), fakenvml.H100(1))
	box.Miss(fakenvml.ProcessesV3...)
	out, errs, status := runCost(t, box, "-n", "1")
	if errs != "" || status != 0 {
		t.Fatalf("%q, exit status %d", errs, status)
	}
	lines := strings.Split(strings.TrimSpace(out), "\n")
	if len(lines) != len(questions)+2 {
		t.Errorf("%d lines:\n%s", len(lines), out)
	}
	for _, want := range []string{"WHAT", "nvmlDeviceGetMemoryInfo ", "nvmlDeviceGetComputeRunningProcesses_v2", "sample  ", "  5 s", "  60 s", " µs"} {
		if !strings.Contains(out, want) {
			t.Errorf("no %q in\n%s", want, out)
		}
	}
	if last := lines[len(lines)-1]; !strings.HasPrefix(last, "sample: ") || !strings.Contains(last, "ms of CPU per GPU, ") || !strings.Contains(last, " for all 2, ten times a second") {
		t.Errorf("the last line is %q", last)
	}
}

func TestWithoutACardNothingIsMeasured(t *testing.T) {
	box := fakenvml.New(t, fakenvml.H100(0))
	box.Lose(0)
	if out, errs, status := runCost(t, box); out != "" || errs != "berth-gpu: no readable GPU\n" || status != exitFailed {
		t.Errorf("%q, %q, exit status %d", out, errs, status)
	}
	box.FailInit(9)
	if _, errs, status := runCost(t, box); errs != "berth-gpu: start NVML: Driver Not Loaded\n" || status != exitFailed {
		t.Errorf("%q, exit status %d", errs, status)
	}
}

func TestMeasuringGivesUpOnADriverThatHangs(t *testing.T) {
	d, ever := newDial(t, 2, true), make(chan struct{})
	defer close(ever)
	left := 300 // in the middle
	d.cards[1].GetUtilizationRatesFunc = func() (nvml.Utilization, nvml.Return) {
		if left--; left < 0 {
			<-ever
		}
		return nvml.Utilization{}, nvml.SUCCESS
	}
	var out, errs bytes.Buffer
	status := cost(d.driver.nvml, &out, &errs, costOptions{only: allCards, calls: 1}, 2*time.Second)
	if status != exitFailed || out.Len() > 0 || errs.String() != "berth-gpu: the driver does not answer about GPU 1\n" {
		t.Errorf("%q, %q, exit status %d", out.String(), errs.String(), status)
	}
}

func TestCostsAreOfTheSamplesThatBerthTakes(t *testing.T) {
	d := newDial(t, 1, true)
	found, err := measure(d.driver, 3, func() {})
	if err != nil {
		t.Fatal(err)
	}
	// The first sample, three that read everything, the first of the minute and
	// those of the minute, then the call by itself.
	for name, want := range map[string]int{
		"GetMemoryInfo_v2": 1 + 3 + 1 + 600 + 3, "GetTemperature": 1 + 3 + 1 + 30 + 3, "GetRemappedRows": 1 + 3 + 1 + 12 + 3,
		"GetProcessUtilization": 1 + 3 + 1 + 4 + 3, "GetEnforcedPowerLimit": 1 + 3 + 1 + 1 + 3,
	} {
		if got := called(d.cards[0])[name]; got != want {
			t.Errorf("%d calls of %s, want %d", got, name, want)
		}
	}
	if found.Cards != 1 || found.Sample.Samples != 600 {
		t.Errorf("costs %+v", found)
	}
}

func TestEveryCallOfASampleIsAmongThoseMeasured(t *testing.T) {
	d := newDial(t, 1, true)
	d.after(0)
	before := called(d.cards[0])
	d.after(time.Hour)
	sample := called(d.cards[0])
	measureCalls(d.driver, 1, func() {})
	asked := slices.Sorted(maps.Keys(since(sample, called(d.cards[0]))))
	if want := slices.Sorted(maps.Keys(since(before, sample))); !slices.Equal(asked, want) {
		t.Errorf("measured are\n%v\nand made in a sample\n%v", asked, want)
	}
	if len(asked) < 15 {
		t.Errorf("only %v", asked)
	}
}
