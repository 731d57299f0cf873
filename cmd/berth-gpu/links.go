//go:build cgo

package main

import (
	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"berth/internal/machine/gpu"
)

// links are the NVLinks of each card, by UUID. Reading them is the most
// expensive part of a sample, so they are cached until the card's settings are
// read again.
type links struct {
	count int
	cards map[string]ends
}

// ends are the far ends of a card's NVLinks.
type ends struct {
	cards    map[address]int
	switches int
}

// addLinks adds the number of NVLinks between the cards of a sample.
func (d *driver) addLinks(count int, s *gpu.Sample) {
	if !d.has[linkState] || !d.has[linkRemote] {
		return
	}
	if d.links.cards == nil || d.links.count != count {
		d.links = links{count: count, cards: map[string]ends{}}
	}
	for i := range s.Devices {
		device := &s.Devices[i]
		if device.Part != nil { // parts have no links of their own
			continue
		}
		if _, read := d.links.cards[device.UUID]; !read {
			d.page.about(device.DriverIndex)
			d.links.cards[device.UUID] = d.readLinks(device.DriverIndex)
		}
	}
	for i := range s.Devices {
		s.Devices[i].Links = d.between(s.Devices, i)
	}
}

// between are the links of one card to the others. If both have links to
// switches, the one with fewer determines their number.
func (d *driver) between(devices []gpu.Device, i int) map[int]int {
	from, is := d.links.cards[devices[i].UUID]
	if !is || len(from.cards) == 0 && from.switches == 0 {
		return nil
	}
	var counts map[int]int
	for j := range devices {
		to, is := d.links.cards[devices[j].UUID]
		if !is || i == j {
			continue
		}
		count := from.cards[d.known[devices[j].UUID].pci] + min(from.switches, to.switches)
		if count == 0 {
			continue
		}
		if counts == nil {
			counts = map[int]int{}
		}
		counts[devices[j].DriverIndex] = count
	}
	return counts
}

// readLinks asks a card where each of its links leads.
func (d *driver) readLinks(card int) ends {
	var found ends
	handle, ret := d.nvml.DeviceGetHandleByIndex(card)
	if ret != nvml.SUCCESS {
		return found
	}
	for link := range nvml.NVLINK_MAX_LINKS {
		active, ret := handle.GetNvLinkState(link)
		if ret != nvml.SUCCESS { // there are no more
			break
		}
		if active != nvml.FEATURE_ENABLED {
			continue
		}
		if d.has[linkType] {
			if kind, ret := handle.GetNvLinkRemoteDeviceType(link); ret == nvml.SUCCESS && kind != nvml.NVLINK_DEVICE_TYPE_GPU {
				if kind == nvml.NVLINK_DEVICE_TYPE_SWITCH {
					found.switches++
				}
				continue
			}
		}
		pci, ret := handle.GetNvLinkRemotePciInfo(link)
		if ret != nvml.SUCCESS {
			continue
		}
		if found.cards == nil {
			found.cards = map[address]int{}
		}
		found.cards[address{pci.Domain, pci.Bus, pci.Device}]++
	}
	return found
}
