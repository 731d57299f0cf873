package gpu

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"

	"berth/internal/machine/keep"
)

// maxPlaces bounds the cache of bus addresses.
const maxPlaces = 4096

// sysfs is what the kernel knows about the location of cards.
type sysfs struct {
	root string // "/" except in tests

	mu     sync.Mutex
	places map[string]place // by bus id
	minors map[string]int   // likewise, of those that were looked up
}

// place is the location of a card. It does not change while the machine runs.
type place struct {
	numa int      // -1: unknown
	cpus string   // the CPUs near it
	path []string // the host bridge, and the bridges down to the card
}

func newSysfs(root string) *sysfs {
	return &sysfs{root: root, places: map[string]place{}, minors: map[string]int{}}
}

// fill adds what the kernel knows to devices: the minor of the device file,
// the NUMA node, the CPUs, and how close cards are to each other.
func (s *sysfs) fill(devices []Device) {
	places := make([]place, len(devices))
	for i := range devices {
		d := &devices[i]
		places[i] = s.place(d.BusID)
		if d.Minor < 0 {
			d.Minor = s.minor(d.BusID)
		}
		if places[i].numa >= 0 {
			d.NUMA = places[i].numa
		}
		if places[i].cpus != "" {
			d.CPUs = places[i].cpus
		}
		places[i].numa = d.NUMA
	}
	for i := range devices {
		near := map[int]int{}
		for j := range devices {
			if i == j || devices[i].BusID == devices[j].BusID {
				continue // itself, or another part of the same card
			}
			if nearness := places[i].near(places[j]); nearness > 0 {
				near[devices[j].Index] = nearness
			}
		}
		if len(near) > 0 {
			devices[i].Near = near
		}
	}
}

// near is how close two places are; 0: unknown.
func (p place) near(o place) int {
	if len(p.path) > 0 && len(o.path) > 0 && p.path[0] == o.path[0] {
		// A port of the host bridge leads to one device. If it leads to two
		// cards, that device is a switch.
		if len(p.path) > 2 && len(o.path) > 2 && p.path[1] == o.path[1] {
			return nearSwitch
		}
		return nearHost
	}
	switch {
	case p.numa < 0 || o.numa < 0:
		return 0
	case p.numa == o.numa:
		return nearNode
	}
	return nearSystem
}

func (s *sysfs) place(busID string) place {
	busID = normalBusID(busID)
	if busID == "" {
		return place{numa: -1}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if p, known := s.places[busID]; known {
		return p
	}
	p, found := s.read(busID)
	if len(s.places) >= maxPlaces {
		clear(s.places)
	}
	if found { // a card that is missing now may be there later
		s.places[busID] = p
	}
	return p
}

func (s *sysfs) read(busID string) (place, bool) {
	p := place{numa: -1}
	dir := filepath.Join(s.root, "sys/bus/pci/devices", busID)
	real, err := filepath.EvalSymlinks(dir)
	if err != nil {
		return p, false
	}
	if _, below, found := strings.Cut(real, "/sys/devices/"); found {
		p.path = strings.Split(below, "/")
	}
	nodes, _ := filepath.Glob(filepath.Join(s.root, "sys/devices/system/node/node[0-9]*")) // the pattern is ours
	node, err := strconv.Atoi(s.text(dir, "numa_node"))
	switch {
	case err == nil && node >= 0:
		p.numa = node
	case len(nodes) <= 1:
		p.numa = 0 // it is the only node
	}
	if list := s.text(dir, "local_cpulist"); p.numa >= 0 {
		if cpus, err := keep.ParseCPUs(list); err == nil {
			p.cpus = FormatCPUs(cpus)
		}
	}
	return p, true
}

// forgetMinors makes them be read again: a reloaded driver numbers them anew.
func (s *sysfs) forgetMinors() {
	s.mu.Lock()
	defer s.mu.Unlock()
	clear(s.minors)
}

// minor is the minor of a card's device file; -1: unknown. It is read only if
// the source did not supply it, because the file belongs to the driver:
// reading it may hang like any driver call.
func (s *sysfs) minor(busID string) int {
	busID = normalBusID(busID)
	if busID == "" {
		return -1
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	minor, known := s.minors[busID]
	if !known {
		if minor = s.readMinor(busID); minor >= 0 && len(s.minors) < maxPlaces {
			s.minors[busID] = minor
		}
	}
	return minor
}

func (s *sysfs) readMinor(busID string) int {
	text := s.text(filepath.Join(s.root, "proc/driver/nvidia/gpus", busID), "information")
	for line := range strings.Lines(text) {
		if value, found := strings.CutPrefix(line, "Device Minor:"); found {
			if minor, err := strconv.Atoi(strings.TrimSpace(value)); err == nil && minor >= 0 {
				return minor
			}
		}
	}
	return -1
}

// text is the content of a small file, or "" if it cannot be read.
func (s *sysfs) text(dir, name string) string {
	data, err := os.ReadFile(filepath.Join(dir, name))
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(data))
}

// normalBusID is a bus id in the form of sysfs: 0000:3b:00.0. NVML uses eight
// digits for the domain and capitals, the kernel log omits the function. "" if
// it is invalid.
func normalBusID(id string) string {
	parts := strings.Split(strings.ToLower(strings.TrimSpace(id)), ":")
	if len(parts) == 2 {
		parts = append([]string{"0"}, parts...)
	}
	if len(parts) != 3 {
		return ""
	}
	device, function, found := strings.Cut(parts[2], ".")
	if !found {
		function = "0"
	}
	var numbers [4]uint64
	for i, digits := range []string{parts[0], parts[1], device, function} {
		n, err := strconv.ParseUint(digits, 16, 32)
		if err != nil || i == 1 && n > 0xff || i == 2 && n > 0x1f || i == 3 && n > 7 {
			return ""
		}
		numbers[i] = n
	}
	return hexPad(numbers[0], 4) + ":" + hexPad(numbers[1], 2) + ":" + hexPad(numbers[2], 2) + "." + hexPad(numbers[3], 1)
}

func hexPad(n uint64, width int) string {
	text := strconv.FormatUint(n, 16)
	return strings.Repeat("0", max(0, width-len(text))) + text
}
