package site

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// Versions of the driver from which on something works.
const (
	driverMPSLimits    = 495 // CUDA 11.5: a limit of device memory for MPS clients
	driverCheckpoint   = 570
	driverMemoryLimits = 615
)

// isolation guesses whether jobs can be kept from opening cards that are not
// theirs. A daemon that answers knows better.
func (e exam) isolation(helperSaid) Finding {
	const loose = "jobs could open cards that they were not given"
	_, unified := e.unified(e.pid)
	switch {
	case !unified:
		return warn("boot with systemd.unified_cgroup_hierarchy=1", "there is no cgroup version 2: %s", loose)
	case e.isRoot() || e.places.Shared:
		return ok("a daemon of root's lets a job open no cards but its own")
	}
	return warn("use the machine's own berth (`make install-service` as root)", "only root can put up a device filter: %s", loose)
}

// xid says where errors of the cards are heard of.
func (e exam) xid(h helperSaid) Finding {
	if e.places.Shared && !e.isRoot() {
		return ok("a daemon of root's reads errors of the cards (Xid) from the kernel's log")
	}
	fd, err := unix.Open(e.path("/dev/kmsg"), unix.O_RDONLY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err == nil {
		unix.Close(fd)
		return ok("errors of the cards (Xid) are read from the kernel's log")
	}
	const fix = "use the machine's own berth, or let users read the log (sysctl kernel.dmesg_restrict=0, and read permission on /dev/kmsg)"
	if h.err == nil && h.Facts.Events {
		return warn(fix, "the kernel's log cannot be read (%v): of errors of the cards only what NVML tells is known", err)
	}
	return warn(fix, "the kernel's log cannot be read (%v), and NVML tells nothing: errors of the cards (Xid) go unnoticed", err)
}

// mps says whether jobs can have a hard limit of device memory.
func (e exam) mps(h helperSaid) Finding {
	version, branch := e.driverVersion(h)
	_, err := e.command("nvidia-cuda-mps-control")
	switch {
	case err != nil:
		return ok("CUDA MPS is not installed; only --cap mps needs it (nvidia-cuda-mps-control comes with the driver's compute tools)")
	case branch > 0 && branch < driverMPSLimits:
		return ok("CUDA MPS is installed, but driver %s cannot limit memory with it: --cap mps needs %d or newer", version, driverMPSLimits)
	case e.runs("nvidia-cuda-mps"):
		return ok("CUDA MPS of driver %s is installed, and a daemon of it runs; a job with --cap mps gets one of its own", version)
	}
	return ok("CUDA MPS of driver %s is installed; --cap mps needs a job that declares --vram or a share", version)
}

// memoryLimits says whether the driver itself can hold a cgroup to an amount.
func (e exam) memoryLimits(h helperSaid) Finding {
	version, branch := e.driverVersion(h)
	switch {
	case h.Facts.MemoryLimits:
		return ok("driver %s can hold a job's cgroup to an amount of device memory", version)
	case branch >= driverMemoryLimits:
		return ok("driver %s has limits of device memory by cgroup, but they do not work here", version)
	}
	return ok("driver %s has no limits of device memory by cgroup (%d and newer do): caps are MPS's or the frameworks' own", version, driverMemoryLimits)
}

// checkpoint says whether the driver could set a running job aside.
func (e exam) checkpoint(h helperSaid) Finding {
	version, branch := e.driverVersion(h)
	switch {
	case e.arch != "amd64":
		return ok("jobs cannot be parked: the driver can set programs aside on x86-64 only")
	case branch < driverCheckpoint:
		return ok("driver %s cannot set a running program aside (%d and newer can): jobs cannot be parked", version, driverCheckpoint)
	}
	return ok("driver %s can set a running program aside: jobs could be parked", version)
}

const dockerSocket = "/var/run/docker.sock"

// containers says whether the memory of a job's containers is told from other
// people's.
func (e exam) containers(helperSaid) Finding {
	const label = "--label berth.token=$BERTH_TOKEN"
	switch {
	case !e.exists(dockerSocket):
		return ok("there is no docker here; podman's and apptainer's containers are told by their processes")
	case e.isRoot() || e.places.Shared:
		return ok("what a job starts with docker run %s counts as the job's", label)
	case unix.Access(e.path(dockerSocket), unix.R_OK|unix.W_OK) != nil:
		return warn("use the machine's own berth; it may ask docker", "%s is not yours to open: what containers use counts as other people's", dockerSocket)
	}
	return ok("what a job starts with docker run %s counts as the job's", label)
}

// nvidiaVendor and displayClass are how the PCI bus tells a card.
const (
	nvidiaVendor = "0x10de"
	displayClass = "0x03"
)

// topology says whether it is known which CPUs are next to which card.
func (e exam) topology(helperSaid) Finding {
	nodes, _ := filepath.Glob(e.path("/sys/devices/system/node/node[0-9]*")) // the pattern is ours
	devices, _ := filepath.Glob(e.path("/sys/bus/pci/devices/*"))
	cards, placed, withCPUs := 0, 0, 0
	for _, dir := range devices {
		read := func(name string) string {
			text, err := os.ReadFile(filepath.Join(dir, name))
			if err != nil {
				return ""
			}
			return strings.TrimSpace(string(text))
		}
		if read("vendor") != nvidiaVendor || !strings.HasPrefix(read("class"), displayClass) {
			continue
		}
		cards++
		if node := read("numa_node"); node != "" && node != "-1" {
			placed++
		}
		if read("local_cpulist") != "" {
			withCPUs++
		}
	}
	what := fmt.Sprintf("%d NUMA nodes", max(1, len(nodes)))
	if len(nodes) < 2 {
		what = "one NUMA node"
	}
	switch {
	case cards == 0:
		return ok("%s; the PCI bus shows no cards, so that which are close is not known", what)
	case len(nodes) > 1 && placed < cards:
		return warn("enable NUMA (SRAT) in the firmware, or pass the topology to the virtual machine", "%s, but %d of %d cards do not say which they belong to: jobs on several cards may get distant ones", what, cards-placed, cards)
	case withCPUs < cards:
		return ok("%s; which CPUs are next to a card is not known, and --pin does nothing", what)
	}
	if cards == 1 {
		return ok("%s; which CPUs are next to the card is known", what)
	}
	return ok("%s; all %d cards say which CPUs are next to them", what, cards)
}
