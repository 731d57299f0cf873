//go:build cgo

package main

import (
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"berth/internal/machine/gpu"
)

const (
	minWatch = 5 * time.Millisecond
	maxWatch = time.Minute // without a sample in between
)

// watch reads memory between two samples, so that short peaks are seen.
type watch struct {
	looks map[string]*look // by UUID, of the last sample
	// looked means that memory was read since the last sample; otherwise there
	// is nothing to report.
	looked bool
}

// look is one card or part that is watched.
type look struct {
	card   int // driver index, for the page
	handle nvml.Device
	used   uint64
	peaks  map[int]int64 // MiB by pid, since the last sample
	fresh  bool          // read in the sample in progress
	failed bool          // skip it until it is read again
}

// seen starts or continues to watch what a sample reads.
func (w *watch) seen(uuid string, card int, handle nvml.Device, used uint64) {
	if w.looks == nil {
		w.looks = map[string]*look{}
	}
	l := w.looks[uuid]
	if l == nil {
		l = &look{peaks: map[int]int64{}}
		w.looks[uuid] = l
	}
	l.card, l.handle, l.used, l.fresh, l.failed = card, handle, used, true, false
}

// peaks adds the peak of each process since the last sample.
func (w *watch) peaks(uuid string, processes []gpu.Process) {
	l := w.looks[uuid]
	if !w.looked || l == nil {
		return
	}
	for i := range processes {
		processes[i].PeakMiB = max(l.peaks[processes[i].PID], processes[i].UsedMiB, 0)
	}
}

// sampled ends a sample: what it did not read is not watched.
func (w *watch) sampled() {
	w.looked = false
	for uuid, l := range w.looks {
		if !l.fresh {
			delete(w.looks, uuid)
			continue
		}
		l.fresh = false
		clear(l.peaks)
	}
}

// look reads all memory once, and the processes if it changed.
func (d *driver) look() {
	defer d.page.idle()
	d.watch.looked = true
	for _, l := range d.watch.looks {
		if l.failed {
			continue
		}
		d.page.about(l.card)
		_, _, used, ret := d.memory(l.handle)
		if ret != nvml.SUCCESS {
			l.failed = true
			continue
		}
		if used == l.used {
			continue
		}
		l.used = used
		processes, ret := d.boundedProcesses(l.handle)
		if ret != nvml.SUCCESS {
			continue
		}
		for _, process := range processes {
			l.peaks[process.PID] = max(l.peaks[process.PID], process.UsedMiB)
		}
	}
}
