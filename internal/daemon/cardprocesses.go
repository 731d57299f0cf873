package daemon

import (
	"fmt"
	"os"
	"strings"
	"syscall"

	"berth/internal/api"
	"berth/internal/engine"
	"berth/internal/gpu"
)

// maxListed bounds the processes that are shown of one card.
const maxListed = 256

// listedProcess is a process that is still to be given its names: those are
// read from /proc, which is not the engine's goroutine's to wait for.
type listedProcess struct {
	card, place int // in the list of cards, and in its processes
	visible     bool
}

// listProcesses puts a card's processes under it, and adds them to those that
// want names. A number of another PID namespace means another process here.
func (d *Daemon) listProcesses(t *engine.Turn, listed []listedProcess, card int, g *api.GPU, dev gpu.Device) []listedProcess {
	if !dev.ProcessesKnown {
		return listed
	}
	g.Processes = []api.GPUProcess{}
	for _, p := range dev.Processes[:min(len(dev.Processes), maxListed)] {
		owner, known := t.OwnerOf(p.PID)
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

// nameProcesses says whose the processes are and what they are called. Where
// users' processes are hidden from one another, ps does not tell everyone, and
// berth does not either.
func (d *Daemon) nameProcesses(c api.Caller, cards []api.GPU, listed []listedProcess, hidden bool) {
	for _, l := range listed {
		p := &cards[l.card].Processes[l.place]
		if !l.visible {
			continue
		}
		uid, command, ok := procNames("/proc", p.PID)
		if !ok || hidden && !c.Admin && uid != c.UID {
			continue
		}
		p.Command, p.User = command, d.userName(uid)
		d.wish(uid)
	}
}

// wish has a user looked up in the background, so that the next who asks gets
// a name.
func (d *Daemon) wish(uid int) {
	if _, ok := d.users.Cached(uid, known); ok {
		return
	}
	select {
	case d.wantUser <- uid:
	default:
	}
}

// procNames are the owner of a process and the short name that the kernel
// keeps of it.
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

// mountsOf is what is mounted, as the kernel tells this process.
func mountsOf() string {
	text, err := os.ReadFile("/proc/self/mounts")
	if err != nil {
		return ""
	}
	return string(text)
}

// procHides is true where users do not see one another's processes.
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
