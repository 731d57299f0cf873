//go:build cgo

package main

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"berth/internal/machine/gpu"
)

const (
	allCards = -1
	maxCards = 100 // berth's numbers for MIG parts begin there
	maxKnown = 1024
)

// driver holds NVML. Only one goroutine calls it.
type driver struct {
	nvml  nvml.Interface
	page  page
	only  int // the only card to read, or allCards
	has   [symbolCount]bool
	clock func() time.Time
	caps  string    // where the driver lists the capability devices of its MIG parts
	now   time.Time // of the sample in progress

	known  map[string]identity // by UUID
	byCard map[int]string      // the last UUID of each driver index
	parts  map[string][]string // the UUIDs of a card's MIG parts by position, by the card's UUID
	links  links
	events events
	watch  watch

	lastReads map[string]*lastRead // by the UUID of a whole card
	nextTurn  int                  // the card whose turn it is
}

func newDriver(library nvml.Interface, page page, only int) *driver {
	return &driver{
		nvml: library, page: page, only: only, clock: time.Now, caps: "/proc/driver/nvidia/capabilities",
		known: map[string]identity{}, byCard: map[int]string{}, parts: map[string][]string{},
		lastReads: map[string]*lastRead{},
	}
}

// failed is the error of a call. nvml.SUCCESS is a non-nil error value, so
// every return value of NVML goes through here.
func failed(ret nvml.Return) error {
	if ret == nvml.SUCCESS {
		return nil
	}
	return errors.New(ret.Error())
}

var errNoLibrary = errors.New("cannot load libnvidia-ml.so.1: the NVIDIA driver is missing, or not in the library path")

// start initialises NVML. Nothing else may be called before it has succeeded.
func (d *driver) start() error {
	d.page.system()
	defer d.page.idle()
	switch ret := d.nvml.Init(); ret {
	case nvml.SUCCESS:
	case nvml.ERROR_LIBRARY_NOT_FOUND:
		return fmt.Errorf("start NVML: %w", errNoLibrary)
	default:
		return fmt.Errorf("start NVML: %w", failed(ret))
	}
	d.has = lookUp(d.nvml)
	return nil
}

// stop shuts NVML down.
func (d *driver) stop() {
	d.events.stop()
	d.page.system()
	defer d.page.idle()
	_ = failed(d.nvml.Shutdown()) // the process ends either way
}

// count is the number of cards the driver lists.
func (d *driver) count() (int, error) {
	d.page.system()
	defer d.page.idle()
	count, ret := d.nvml.DeviceGetCount()
	if err := failed(ret); err != nil {
		return 0, fmt.Errorf("count GPUs: %w", err)
	}
	return min(count, maxCards), nil
}

// cards are the driver indices to read.
func (d *driver) cards(count int, skip []int) []int {
	var cards []int
	for i := range count {
		if (d.only == allCards || d.only == i) && !slices.Contains(skip, i) {
			cards = append(cards, i)
		}
	}
	return cards
}

// sample reads all cards except those to skip.
func (d *driver) sample(skip []int) (*gpu.Sample, error) {
	count, err := d.count()
	if err != nil {
		return nil, err
	}
	cards := d.cards(count, skip)
	for card := range d.byCard {
		if card >= count {
			delete(d.byCard, card)
		}
	}
	d.now = d.clock()
	d.takeTurns()
	s := &gpu.Sample{At: d.now, Devices: make([]gpu.Device, 0, len(cards))}
	// Events from here on wait for the next sample: an Xid is reported with the
	// card's health after it.
	s.Xids, s.Problems = d.events.drain()
	defer d.page.idle()
	for _, card := range cards {
		d.page.about(card)
		d.sampleCard(card, s)
	}
	d.events.listen(d.nvml)
	d.addLinks(count, s)
	d.watch.sampled()
	d.forget()
	return s, nil
}

// sampleCard reads one card, or its MIG parts, into a sample.
func (d *driver) sampleCard(card int, s *gpu.Sample) {
	handle, ret := d.nvml.DeviceGetHandleByIndex(card)
	r := reader{driver: d, card: card, handle: handle}
	if !r.ok(ret) {
		s.Faults = append(s.Faults, r.faults(fmt.Sprintf("get a handle: %v", failed(ret)))...)
		return
	}
	id, err := r.identify()
	if err != nil {
		s.Faults = append(s.Faults, r.faults(err.Error())...)
		return
	}
	d.byCard[card] = id.uuid
	r.recall(id, s.Xids)
	d.events.register(d, handle, id, r.partitioned())
	if r.partitioned() {
		r.sampleParts(id, s)
		return
	}
	delete(d.parts, id.uuid)
	if device, err := r.read(id); err != nil {
		s.Faults = append(s.Faults, r.fault(err.Error()))
	} else {
		r.last.read = true
		s.Devices = append(s.Devices, device)
	}
}
