package gpu

import (
	"context"
	"errors"
	"path/filepath"
	"strings"
	"time"
)

// NoSource is the name of the source of a machine without a GPU.
const NoSource = "none"

// noCards is that source: it always reads nothing.
type noCards struct{}

// None is a source without cards.
func None() Source { return noCards{} }

func (noCards) Name() string { return NoSource }

// Cheap is true: there is nothing to read.
func (noCards) Cheap() bool { return true }

func (noCards) Sample(context.Context) (Sample, error) { return Sample{At: time.Now()}, nil }

func (noCards) Close() error { return nil }

func (noCards) Facts() Facts { return Facts{Source: NoSource} }

var errNoSMI = errors.New("nvidia-smi is not in PATH")

// driverMissing reports whether the cards could not be opened because no driver
// is installed: nvidia-smi and the library are missing and the kernel has none.
// A driver that is installed but fails or hangs may be repaired or late, so its
// cards are never taken for missing. Without a helper that works, the library
// cannot be looked for; then a card on the PCI bus is reason enough to expect a
// driver.
func driverMissing(root string, err error) bool {
	if !errors.Is(err, errNoSMI) || driverTraces(root) {
		return false
	}
	return errors.Is(err, errNoLibrary) || !errors.Is(err, errNoNVML) && !cardOnBus(root)
}

// driverTraces reports whether the kernel has the driver, natively, on a Jetson
// or in WSL.
func driverTraces(root string) bool {
	for _, pattern := range []string{"proc/driver/nvidia", "dev/nvidia*", "dev/nvhost*", "dev/dxg"} {
		if found, _ := filepath.Glob(filepath.Join(root, pattern)); len(found) > 0 { // the pattern is ours
			return true
		}
	}
	return false
}

// nvidiaVendor and displayClass identify a card on the PCI bus.
const (
	nvidiaVendor = "0x10de"
	displayClass = "0x03"
)

func cardOnBus(root string) bool {
	places, _ := filepath.Glob(filepath.Join(root, "sys/bus/pci/devices/*")) // the pattern is ours
	bus := newSysfs(root)
	for _, dir := range places {
		if bus.text(dir, "vendor") == nvidiaVendor && strings.HasPrefix(bus.text(dir, "class"), displayClass) {
			return true
		}
	}
	return false
}
