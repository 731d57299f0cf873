//go:build cgo

package main

import (
	"errors"
	"fmt"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"berth/internal/machine/gpu"
)

var errNoLimits = errors.New("this driver does not support memory limits")

// cgroupRoot is a cgroup that exists wherever memory limits can work.
const cgroupRoot = "/sys/fs/cgroup"

// facts describe the driver. Cards to skip are not asked.
func (d *driver) facts(skip []int) (gpu.Facts, error) {
	facts := d.systemFacts()
	count, err := d.count()
	if err != nil {
		return facts, err
	}
	d.now = d.clock()
	defer d.page.idle()
	for _, card := range d.cards(count, skip) {
		d.page.about(card)
		d.cardFacts(card, &facts)
	}
	facts.Events = d.events.listen(d.nvml)
	if !facts.Events {
		facts.Notes = append(facts.Notes, "no GPU reports Xids through NVML")
	}
	if !d.has[memoryV2] {
		facts.Notes = append(facts.Notes, "this driver counts its own reserve as used memory")
	}
	return facts, nil
}

func (d *driver) systemFacts() gpu.Facts {
	d.page.system()
	defer d.page.idle()
	facts := gpu.Facts{Source: "NVML"}
	if d.has[driverVersion] {
		if version, ret := d.nvml.SystemGetDriverVersion(); ret == nvml.SUCCESS {
			facts.Driver = version
		}
	}
	if d.has[nvmlVersion] {
		if version, ret := d.nvml.SystemGetNVMLVersion(); ret == nvml.SUCCESS {
			facts.NVML = version
		}
	}
	if d.has[cudaVersion] {
		if version, ret := d.nvml.SystemGetCudaDriverVersion(); ret == nvml.SUCCESS {
			facts.CUDA = fmt.Sprintf("%d.%d", version/1000, version%1000/10)
		}
	}
	return facts
}

// cardFacts adds what one card reports. An unreadable card adds nothing: it
// shows up in the sample.
func (d *driver) cardFacts(card int, facts *gpu.Facts) {
	handle, ret := d.nvml.DeviceGetHandleByIndex(card)
	if ret != nvml.SUCCESS {
		return
	}
	r := reader{driver: d, card: card, handle: handle, last: &lastRead{}}
	if id, err := r.identify(); err == nil {
		d.byCard[card] = id.uuid
		d.events.register(d, handle, id, r.partitioned())
	}
	if d.has[persistence] {
		if mode, ret := handle.GetPersistenceMode(); ret == nvml.SUCCESS {
			on := mode == nvml.FEATURE_ENABLED && (facts.Persistence == nil || *facts.Persistence)
			facts.Persistence = &on // of all cards
		}
	}
	if d.has[setLimits] && d.has[getLimits] && !facts.MemoryLimits {
		_, ret := handle.GetMemoryLimits_v1(cgroupRoot)
		facts.MemoryLimits = ret == nvml.SUCCESS || ret == nvml.ERROR_NOT_FOUND
	}
}

// limit limits the memory of a cgroup on a card.
func (d *driver) limit(l *gpu.MemoryLimit, skip []int) error {
	if l == nil || l.Cgroup == "" || l.UUID == "" || l.SoftMiB < 0 || l.HardMiB < 0 {
		return errors.New("expected a cgroup, the UUID of a GPU and sizes")
	}
	if !d.has[setLimits] {
		return errNoLimits
	}
	count, err := d.count()
	if err != nil {
		return err
	}
	hard := uint64(l.HardMiB) << mibShift
	if hard == 0 {
		hard = nvml.DEVICE_MEMORY_LIMIT_MAX
	}
	defer d.page.idle()
	for _, card := range d.cards(count, skip) {
		d.page.about(card)
		handle, ret := d.nvml.DeviceGetHandleByIndex(card)
		if ret != nvml.SUCCESS {
			continue
		}
		if uuid, ret := handle.GetUUID(); ret != nvml.SUCCESS || uuid != l.UUID {
			continue
		}
		switch ret := handle.SetMemoryLimits_v1(l.Cgroup, uint64(l.SoftMiB)<<mibShift, hard); ret {
		case nvml.SUCCESS:
			return nil
		case nvml.ERROR_NOT_SUPPORTED:
			return errNoLimits
		default:
			return fmt.Errorf("limit %s on GPU %d: %w", l.Cgroup, card, failed(ret))
		}
	}
	return fmt.Errorf("limit %s: no GPU %s", l.Cgroup, l.UUID)
}
