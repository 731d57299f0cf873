//go:build cgo

package main

import (
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
)

// question is a call that samples make about a card, so that it can be
// measured alone.
type question struct {
	what  string
	every time.Duration // 0: in each sample
	call  symbol        // unless always is set
	// always is the name of a call that every driver has.
	always string
	ask    func(d *driver, card int, handle nvml.Device) nvml.Return
}

// name is that of the call in this driver's library; "" if it has none.
func (q question) name(d *driver) string {
	if q.always != "" {
		return q.always
	}
	if !d.has[q.call] {
		return ""
	}
	for _, name := range symbolNames[q.call] {
		if d.nvml.Extensions().LookupSymbol(name) == nil {
			return name
		}
	}
	return ""
}

// ask is a question whose answer is discarded.
func ask[T any](call func(nvml.Device) (T, nvml.Return)) func(*driver, int, nvml.Device) nvml.Return {
	return func(_ *driver, _ int, handle nvml.Device) nvml.Return {
		_, ret := call(handle)
		return ret
	}
}

func clockOf(kind nvml.ClockType) func(nvml.Device) (uint32, nvml.Return) {
	return func(handle nvml.Device) (uint32, nvml.Return) { return handle.GetClockInfo(kind) }
}

func eccOf(kind nvml.MemoryErrorType) func(nvml.Device) (uint64, nvml.Return) {
	return func(handle nvml.Device) (uint64, nvml.Return) {
		return handle.GetTotalEccErrors(kind, nvml.VOLATILE_ECC)
	}
}

// questions are all the calls of a sample about a known whole card.
var questions = []question{
	{what: "handle", always: "nvmlDeviceGetHandleByIndex_v2", ask: func(d *driver, card int, _ nvml.Device) nvml.Return {
		_, ret := d.nvml.DeviceGetHandleByIndex(card)
		return ret
	}},
	{what: "UUID", always: "nvmlDeviceGetUUID", ask: ask(nvml.Device.GetUUID)},
	{what: "MIG mode", every: ageLimits[layout], call: migMode, ask: func(_ *driver, _ int, handle nvml.Device) nvml.Return {
		_, _, ret := handle.GetMigMode()
		return ret
	}},
	{what: "memory", always: "nvmlDeviceGetMemoryInfo", ask: func(d *driver, _ int, handle nvml.Device) nvml.Return {
		_, _, _, ret := d.memory(handle)
		return ret
	}},
	{what: "utilisation", call: utilisation, ask: ask(nvml.Device.GetUtilizationRates)},
	{what: "computing processes", call: computeList, ask: ask(nvml.Device.GetComputeRunningProcesses)},
	{what: "clients of MPS", call: mpsList, ask: ask(nvml.Device.GetMPSComputeRunningProcesses)},
	{what: "drawing processes", call: graphicsList, ask: ask(nvml.Device.GetGraphicsRunningProcesses)},
	{what: "utilisation of processes", every: ageLimits[shares], call: processUtilisation, ask: func(d *driver, _ int, handle nvml.Device) nvml.Return {
		_, ret := handle.GetProcessUtilization(d.utilisationSince())
		return ret
	}},
	{what: "temperature", every: ageLimits[senses], call: temperature, ask: ask(func(handle nvml.Device) (uint32, nvml.Return) {
		return handle.GetTemperature(nvml.TEMPERATURE_GPU)
	})},
	{what: "power", every: ageLimits[senses], call: powerUsage, ask: ask(nvml.Device.GetPowerUsage)},
	{what: "clock of the SMs", every: ageLimits[senses], call: clocks, ask: ask(clockOf(nvml.CLOCK_SM))},
	{what: "clock of the memory", every: ageLimits[senses], call: clocks, ask: ask(clockOf(nvml.CLOCK_MEM))},
	{what: "uncorrected ECC errors", every: ageLimits[health], call: eccErrors, ask: ask(eccOf(nvml.MEMORY_ERROR_TYPE_UNCORRECTED))},
	{what: "corrected ECC errors", every: ageLimits[health], call: eccErrors, ask: ask(eccOf(nvml.MEMORY_ERROR_TYPE_CORRECTED))},
	{what: "remapped rows", every: ageLimits[health], call: remappedRows, ask: func(_ *driver, _ int, handle nvml.Device) nvml.Return {
		_, _, _, _, ret := handle.GetRemappedRows()
		return ret
	}},
	{what: "recovery action", every: ageLimits[health], call: fieldValues, ask: func(_ *driver, _ int, handle nvml.Device) nvml.Return {
		return handle.GetFieldValues(recoveryField())
	}},
	{what: "power limit", every: ageLimits[settings], call: powerLimit, ask: ask(nvml.Device.GetEnforcedPowerLimit)},
	{what: "all NVLinks", every: ageLimits[settings], call: linkState, ask: func(d *driver, card int, _ nvml.Device) nvml.Return {
		d.readLinks(card)
		return nvml.SUCCESS
	}},
}
