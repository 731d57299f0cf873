//go:build cgo

package main

import (
	"errors"
	"runtime"
	"slices"
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"berth/internal/machine/gpu"
)

const (
	notAvailable = ^uint64(0) // NVML's value for unknown memory
	// utilisationWindow is how old a process's utilisation may be; the driver
	// takes a few samples a second.
	utilisationWindow = 2 * time.Second
)

// readProcesses lists the processes on a card or part.
func (r *reader) readProcesses(handle nvml.Device, device *gpu.Device) {
	processes, ret := r.boundedProcesses(handle)
	if !r.ok(ret) {
		return
	}
	if device.Part == nil {
		r.tellShares(processes, device.UtilPct)
	}
	r.watch.peaks(device.UUID, processes)
	device.Processes, device.ProcessesKnown = processes, true
}

// boundedProcesses guards against a driver that is never content with the
// buffer it gets: go-nvml doubles it until the number overflows and it panics.
// Such a card reports no processes, and the others are read.
func (d *driver) boundedProcesses(handle nvml.Device) (processes []gpu.Process, ret nvml.Return) {
	defer func() {
		var overflow runtime.Error
		if bug := recover(); bug == nil {
			return
		} else if err, is := bug.(error); !is || !errors.As(err, &overflow) {
			panic(bug)
		}
		processes, ret = nil, nvml.ERROR_INSUFFICIENT_SIZE
	}()
	return d.processes(handle)
}

// processes merges the driver's three lists, by pid. Only the list of compute
// processes is required.
func (d *driver) processes(handle nvml.Device) ([]gpu.Process, nvml.Return) {
	if !d.has[computeList] {
		return nil, nvml.ERROR_NOT_SUPPORTED
	}
	infos, ret := handle.GetComputeRunningProcesses()
	if ret != nvml.SUCCESS {
		return nil, ret
	}
	processes := merge(nil, infos, false)
	if d.has[mpsList] {
		if infos, ret := handle.GetMPSComputeRunningProcesses(); ret == nvml.SUCCESS {
			processes = merge(processes, infos, false)
		}
	}
	if d.has[graphicsList] {
		if infos, ret := handle.GetGraphicsRunningProcesses(); ret == nvml.SUCCESS {
			processes = merge(processes, infos, true)
		}
	}
	slices.SortFunc(processes, func(a, b gpu.Process) int { return a.PID - b.PID })
	return processes, nvml.SUCCESS
}

// merge adds a list. A process that draws and computes counts as computing;
// each list then has the same memory.
func merge(processes []gpu.Process, infos []nvml.ProcessInfo, graphics bool) []gpu.Process {
	for _, info := range infos {
		used := int64(-1)
		if info.UsedGpuMemory != notAvailable {
			used = int64(info.UsedGpuMemory >> mibShift)
		}
		at := slices.IndexFunc(processes, func(p gpu.Process) bool { return p.PID == int(info.Pid) })
		if at >= 0 {
			processes[at].UsedMiB = max(processes[at].UsedMiB, used)
			continue
		}
		processes = append(processes, gpu.Process{PID: int(info.Pid), UsedMiB: used, UtilPct: -1, Graphics: graphics})
	}
	return processes
}

// readShares asks for each process's latest utilisation. A process without a
// sample did nothing.
func (r *reader) readShares(processes []gpu.Process) map[int]float64 {
	samples, ret := r.handle.GetProcessUtilization(r.utilisationSince())
	if !r.ok(ret) && ret != nvml.ERROR_NOT_FOUND {
		return nil
	}
	shares := make(map[int]float64, len(processes))
	for _, process := range processes {
		shares[process.PID] = 0
		latest := uint64(0)
		for _, sample := range samples {
			if int(sample.Pid) == process.PID && sample.TimeStamp >= latest {
				latest, shares[process.PID] = sample.TimeStamp, float64(sample.SmUtil)
			}
		}
	}
	return shares
}

// utilisationSince is the start of the utilisation window, in NVML's time.
func (d *driver) utilisationSince() uint64 {
	return uint64(d.now.Add(-utilisationWindow).UnixMicro())
}
