//go:build cgo

package main

import (
	"encoding/binary"
	"errors"
	"fmt"
	"strings"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"berth/internal/machine/gpu"
)

const (
	mibShift     = 20
	milliwattsPW = 1000
)

// identity is what does not change about a card or a MIG part.
type identity struct {
	uuid, name, busID string
	minor             int // -1: unknown
	pci               address
	part              *gpu.Part
}

// address is where a card is on the bus.
type address struct{ domain, bus, device uint32 }

// reader reads one card. If any call reports it as lost, it counts as lost.
type reader struct {
	*driver
	card   int
	handle nvml.Device
	uuid   string
	lost   bool
	last   *lastRead
	turn   bool // its tiers are read as soon as they are due
}

// ok reports whether a call succeeded, and notices a lost card.
func (r *reader) ok(ret nvml.Return) bool {
	if ret == nvml.ERROR_GPU_IS_LOST {
		r.lost = true
	}
	return ret == nvml.SUCCESS
}

// fault is the card as one that cannot be read. Its identity may be known from
// before, unless that card now answers under another number.
func (r *reader) fault(text string) gpu.Fault {
	uuid := r.uuid
	if uuid == "" {
		uuid = r.byCard[r.card]
		for card, other := range r.byCard {
			if other == uuid && card != r.card {
				uuid = ""
			}
		}
	}
	kind := gpu.FaultUnreadable
	if r.lost {
		kind, text = gpu.FaultLost, "has fallen off the bus ("+text+")" // shown to users; NVML's own words say little
	}
	return gpu.Fault{Index: r.card, UUID: uuid, Kind: kind, Text: text}
}

// identify finds out which card this is; what does not change is read once.
func (r *reader) identify() (identity, error) {
	uuid, ret := r.handle.GetUUID()
	if !r.ok(ret) {
		return identity{}, fmt.Errorf("read the UUID: %w", failed(ret))
	}
	r.uuid = uuid
	if id, known := r.known[uuid]; known {
		return id, nil
	}
	name, ret := r.handle.GetName()
	if !r.ok(ret) {
		return identity{}, fmt.Errorf("read the name: %w", failed(ret))
	}
	id := identity{uuid: uuid, name: name, minor: -1}
	if pci, ret := r.handle.GetPciInfo(); r.ok(ret) {
		id.busID = text(pci.BusId[:])
		id.pci = address{pci.Domain, pci.Bus, pci.Device}
	}
	if r.has[minorNumber] {
		if minor, ret := r.handle.GetMinorNumber(); r.ok(ret) {
			id.minor = minor
		}
	}
	if r.lost {
		return identity{}, errors.New("the GPU was lost while it was read")
	}
	r.remember(id)
	return id, nil
}

func (d *driver) remember(id identity) {
	if len(d.known) >= maxKnown { // MIG layouts that came and went
		clear(d.known)
	}
	d.known[id.uuid] = id
}

// text is a C string.
func text(chars []int8) string {
	var out strings.Builder
	for _, c := range chars {
		if c == 0 {
			break
		}
		out.WriteByte(byte(c))
	}
	return out.String()
}

// read reads everything about a whole card.
func (r *reader) read(id identity) (gpu.Device, error) {
	device := gpu.Unknown(r.card, id.uuid, id.name)
	device.BusID, device.Minor = id.busID, id.minor
	if err := r.readMemory(r.handle, &device); err != nil {
		return device, err
	}
	if r.has[utilisation] {
		if rates, ret := r.handle.GetUtilizationRates(); r.ok(ret) {
			device.UtilPct = float64(rates.Gpu)
		}
	}
	r.tellSenses(&device)
	device.Condition = r.condition()
	r.readProcesses(r.handle, &device)
	if r.lost {
		return device, errors.New("the GPU was lost while it was read")
	}
	return device, nil
}

// memory is the use of a card or part in bytes. The first version of the call
// counts the driver's reserve as used.
func (d *driver) memory(handle nvml.Device) (total, reserved, used uint64, ret nvml.Return) {
	if d.has[memoryV2] {
		memory, ret := handle.GetMemoryInfo_v2()
		if ret != nvml.ERROR_NOT_SUPPORTED && ret != nvml.ERROR_ARGUMENT_VERSION_MISMATCH {
			return memory.Total, memory.Reserved, memory.Used, ret
		}
	}
	memory, ret := handle.GetMemoryInfo()
	return memory.Total, 0, memory.Used, ret
}

func (r *reader) readMemory(handle nvml.Device, device *gpu.Device) error {
	total, reserved, used, ret := r.memory(handle)
	if !r.ok(ret) {
		return fmt.Errorf("read the memory: %w", failed(ret))
	}
	device.TotalMiB, device.ReservedMiB, device.UsedMiB = int64(total>>mibShift), int64(reserved>>mibShift), int64(used>>mibShift)
	r.watch.seen(device.UUID, r.card, handle, used)
	return nil
}

// readCondition asks the driver about the health of the card.
func (r *reader) readCondition() gpu.Condition {
	condition := gpu.Condition{UncorrectedECC: -1, CorrectedECC: -1, RemappedRows: -1}
	if r.has[eccErrors] {
		if errors, ret := r.handle.GetTotalEccErrors(nvml.MEMORY_ERROR_TYPE_UNCORRECTED, nvml.VOLATILE_ECC); r.ok(ret) {
			condition.UncorrectedECC = int64(errors)
		}
		if errors, ret := r.handle.GetTotalEccErrors(nvml.MEMORY_ERROR_TYPE_CORRECTED, nvml.VOLATILE_ECC); r.ok(ret) {
			condition.CorrectedECC = int64(errors)
		}
	}
	if r.has[remappedRows] {
		if corrected, uncorrected, pending, failure, ret := r.handle.GetRemappedRows(); r.ok(ret) {
			condition.RemappedRows = int64(corrected) + int64(uncorrected)
			condition.RowsPending, condition.RowsFailed = pending, failure
		}
	}
	// Cards before Ampere retire pages instead, also at the next reset.
	if condition.RemappedRows < 0 && r.has[retiredPages] {
		if pending, ret := r.handle.GetRetiredPagesPendingStatus(); r.ok(ret) {
			condition.RowsPending = pending == nvml.FEATURE_ENABLED
		}
	}
	condition.Recovery = r.readRecovery()
	return condition
}

var recoveries = map[uint32]string{
	uint32(nvml.GPU_RECOVERY_ACTION_NONE):                gpu.RecoveryNone,
	uint32(nvml.GPU_RECOVERY_ACTION_GPU_RESET):           gpu.RecoveryReset,
	uint32(nvml.GPU_RECOVERY_ACTION_NODE_REBOOT):         gpu.RecoveryReboot,
	uint32(nvml.GPU_RECOVERY_ACTION_DRAIN_P2P):           gpu.RecoveryDrain,
	uint32(nvml.GPU_RECOVERY_ACTION_DRAIN_AND_RESET):     gpu.RecoveryDrainAndReset,
	uint32(nvml.GPU_RECOVERY_ACTION_RECOVER_IMEX_DOMAIN): gpu.RecoveryFabric,
	uint32(nvml.GPU_RECOVERY_ACTION_BUS_RESET):           gpu.RecoveryBusReset,
	uint32(nvml.GPU_RECOVERY_ACTION_SYSTEM_REBOOT):       gpu.RecoveryReboot,
}

func recoveryField() []nvml.FieldValue {
	return []nvml.FieldValue{{FieldId: nvml.FI_DEV_GET_GPU_RECOVERY_ACTION}}
}

// readRecovery is the action the driver asks for to repair the card; "" if it
// reports none.
func (r *reader) readRecovery() string {
	if !r.has[fieldValues] {
		return ""
	}
	values := recoveryField()
	if !r.ok(r.handle.GetFieldValues(values)) || nvml.Return(values[0].NvmlReturn) != nvml.SUCCESS {
		return ""
	}
	return recoveries[binary.NativeEndian.Uint32(values[0].Value[:4])]
}
