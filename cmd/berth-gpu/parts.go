//go:build cgo

package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"berth/internal/machine/gpu"
)

// maxParts bounds the positions of a card that are checked for a part.
const maxParts = 16

// partitioned reports whether the card is in MIG mode. Then its parts are
// devices, and the card itself is not.
func (r *reader) partitioned() bool {
	if r.due(layout) {
		r.last.partitioned = false
		if r.has[migMode] && r.has[migHandles] {
			mode, _, ret := r.handle.GetMigMode()
			r.last.partitioned = r.ok(ret) && mode == nvml.DEVICE_MIG_ENABLE
		}
	}
	return r.last.partitioned
}

// sampleParts reads the parts of a card. An administrator may change the
// layout at any time.
func (r *reader) sampleParts(card identity, s *gpu.Sample) {
	places, ret := r.handle.GetMaxMigDeviceCount()
	if !r.ok(ret) {
		s.Faults = append(s.Faults, r.faults(fmt.Sprintf("count the parts: %v", failed(ret)))...)
		return
	}
	// Nothing else is reported about the card itself.
	r.last.at = [tierCount]time.Time{health: r.last.at[health], layout: r.last.at[layout]}
	condition := r.condition()
	before, faults := len(s.Devices)+len(s.Faults), len(s.Faults)
	parts := make([]string, min(places, maxParts))
	for n := range parts {
		handle, ret := r.handle.GetMigDeviceHandleByIndex(n)
		if ret == nvml.ERROR_NOT_FOUND {
			continue
		}
		if !r.ok(ret) {
			s.Faults = append(s.Faults, r.partFault(n, "", fmt.Sprintf("get a handle: %v", failed(ret))))
			continue
		}
		device, err := r.readPart(card, n, handle)
		parts[n] = device.UUID
		if err != nil {
			s.Faults = append(s.Faults, r.partFault(n, device.UUID, err.Error()))
			continue
		}
		device.Condition = condition
		s.Devices = append(s.Devices, device)
	}
	r.parts[card.uuid] = parts
	r.last.read = !r.lost && len(s.Faults) == faults
	if len(s.Devices)+len(s.Faults) == before {
		s.Problems = append(s.Problems, fmt.Sprintf("GPU %d is partitioned (MIG) and has no parts", r.card))
	}
}

// faults are those of a whole card, or of each of its parts if berth knows
// those.
func (r *reader) faults(text string) []gpu.Fault {
	whole := r.fault(text)
	var faults []gpu.Fault
	for n, uuid := range r.parts[whole.UUID] {
		if uuid != "" {
			faults = append(faults, r.partFault(n, uuid, text))
		}
	}
	if faults == nil {
		return []gpu.Fault{whole}
	}
	return faults
}

func (r *reader) partFault(n int, uuid, text string) gpu.Fault {
	fault := r.fault(text)
	fault.Index, fault.UUID = gpu.PartIndex(r.card, n), uuid
	return fault
}

// readPart reads everything about one part. Parts have no utilisation;
// temperature and power are the card's.
func (r *reader) readPart(card identity, n int, handle nvml.Device) (gpu.Device, error) {
	index := gpu.PartIndex(r.card, n)
	uuid, ret := handle.GetUUID()
	if !r.ok(ret) {
		return gpu.Device{}, fmt.Errorf("read the UUID: %w", failed(ret))
	}
	id, known := r.known[uuid]
	if !known {
		id = r.identifyPart(card, uuid, handle)
		r.remember(id)
	}
	device := gpu.Unknown(index, uuid, id.name)
	device.BusID, device.Minor = card.busID, card.minor
	part := *id.part
	part.Of = r.card
	device.Part = &part
	if err := r.readMemory(handle, &device); err != nil {
		return device, err
	}
	r.readProcesses(handle, &device)
	return device, nil
}

// identifyPart reads what does not change about a part.
func (r *reader) identifyPart(card identity, uuid string, handle nvml.Device) identity {
	profile := r.profile(handle)
	part := &gpu.Part{Profile: profile}
	gpuInstance, first := handle.GetGpuInstanceId()
	computeInstance, second := handle.GetComputeInstanceId()
	if r.ok(first) && r.ok(second) && card.minor >= 0 {
		part.Caps = r.capMinors(card.minor, gpuInstance, computeInstance)
	}
	return identity{uuid: uuid, name: strings.TrimSpace(card.name + " MIG " + profile), busID: card.busID, minor: card.minor, part: part}
}

// profile is the MIG profile of a part. Drivers report it in the name;
// otherwise it follows from the size.
func (r *reader) profile(handle nvml.Device) string {
	if name, ret := handle.GetName(); r.ok(ret) {
		if _, profile, found := strings.Cut(name, " MIG "); found {
			return profile
		}
	}
	if !r.has[migAttributes] {
		return ""
	}
	size, ret := handle.GetAttributes()
	if !r.ok(ret) {
		return ""
	}
	profile := fmt.Sprintf("%dg.%dgb", size.GpuInstanceSliceCount, (size.MemorySizeMB+1023)/1024)
	if size.ComputeInstanceSliceCount < size.GpuInstanceSliceCount {
		profile = fmt.Sprintf("%dc.%s", size.ComputeInstanceSliceCount, profile)
	}
	return profile
}

// capMinors are the minors of /dev/nvidia-caps that open a part: those of its
// GPU instance and its compute instance. Nil if either is unknown.
func (d *driver) capMinors(minor, gpuInstance, computeInstance int) []int {
	instance := filepath.Join(d.caps, fmt.Sprintf("gpu%d", minor), "mig", fmt.Sprintf("gi%d", gpuInstance))
	var minors []int
	for _, path := range []string{filepath.Join(instance, "access"), filepath.Join(instance, fmt.Sprintf("ci%d", computeInstance), "access")} {
		text, err := os.ReadFile(path)
		if err != nil {
			return nil
		}
		_, rest, found := strings.Cut(string(text), "DeviceFileMinor:")
		line, _, _ := strings.Cut(rest, "\n")
		cap, err := strconv.Atoi(strings.TrimSpace(line))
		if !found || err != nil {
			return nil
		}
		minors = append(minors, cap)
	}
	return minors
}
