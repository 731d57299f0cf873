package daemon

import (
	"fmt"
	"os"
	"strings"
	"syscall"

	"berth/internal/api"
	"berth/internal/machine/gpu"
	"berth/internal/queue/engine"
)

// maxListed bounds the processes listed per card.
const maxListed = 256

// listedProcess is a process whose names are still to be read from /proc, which
// the engine's goroutine must not wait for.
type listedProcess struct {
	card, place int // in the list of cards, and in its processes
	visible     bool
}

// listProcesses adds a card's processes to it, and to those that need names. A
// number from another PID namespace would name another process here, so it is
// left out.
func listProcesses(t *engine.Turn, listed []listedProcess, card int, g *api.GPU, dev gpu.Device) []listedProcess {
	if !dev.ProcessesKnown {
		return listed
	}
	g.Processes = []api.GPUProcess{}
	for _, p := range dev.Processes[:min(len(dev.Processes), maxListed)] {
		owner, known := t.Bookings().OwnerOf(p.PID)
		shown := api.GPUProcess{PID: p.PID, UsedMiB: orNil(p.UsedMiB), Graphics: p.Graphics}
		for i := range g.Jobs {
			on := &g.Jobs[i]
			if owner == "" || on.ID != owner || on.Other {
				continue
			}
			shown.Job = owner
			if p.UtilPct >= 0 && !g.Stale {
				sum := p.UtilPct
				if on.Util != nil {
					sum += *on.Util
				}
				on.Util = &sum
			}
		}
		listed = append(listed, listedProcess{card: card, place: len(g.Processes), visible: known})
		g.Processes = append(g.Processes, shown)
	}
	return listed
}

// nameProcesses adds the owner and the name of each process. Where the system
// hides users' processes from each other (hidepid), so does berth.
func (h *cards) nameProcesses(c api.Caller, cards []api.GPU, listed []listedProcess, hidden bool) {
	for _, l := range listed {
		p := &cards[l.card].Processes[l.place]
		if !l.visible {
			continue
		}
		uid, command, ok := procNames("/proc", p.PID)
		if !ok || hidden && !c.Admin && uid != c.UID {
			continue
		}
		p.Command, p.User = command, h.svc.people.Name(uid)
		h.svc.people.Want(uid)
	}
}

// procNames reads the owner and the short name of a process.
func procNames(proc string, pid int) (uid int, command string, ok bool) {
	dir := fmt.Sprintf("%s/%d", proc, pid)
	info, err := os.Stat(dir)
	if err != nil {
		return 0, "", false
	}
	stat, isUnix := info.Sys().(*syscall.Stat_t)
	text, err := os.ReadFile(dir + "/comm")
	if err != nil || !isUnix {
		return 0, "", false
	}
	return int(stat.Uid), strings.TrimSuffix(string(text), "\n"), true
}

// mountsOf reads the mount table of this process.
func mountsOf() string {
	text, err := os.ReadFile("/proc/self/mounts")
	if err != nil {
		return ""
	}
	return string(text)
}

// procHides reports whether users cannot see each other's processes.
func procHides(mounts string) bool {
	for line := range strings.Lines(mounts) {
		fields := strings.Fields(line)
		if len(fields) < 4 || fields[1] != "/proc" || fields[2] != "proc" {
			continue
		}
		for option := range strings.SplitSeq(fields[3], ",") {
			value, found := strings.CutPrefix(option, "hidepid=")
			if found && value != "0" && value != "off" {
				return true
			}
		}
	}
	return false
}
