package site

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// The first driver versions with each feature.
const (
	driverMPSLimits    = 495 // CUDA 11.5: memory limits for MPS clients
	driverCheckpoint   = 570
	driverMemoryLimits = 615
)

// isolation estimates whether jobs can be kept off GPUs they were not
// allocated. A running daemon knows better.
func (c *cardFacts) isolation(helperSaid) Finding {
	const loose = "a job can open GPUs that were not allocated to it"
	_, unified := unified(c.exam.machine, c.exam.pid)
	switch {
	case !unified:
		return warn("boot with systemd.unified_cgroup_hierarchy=1", "cgroup version 2 is missing: %s", loose)
	case c.exam.isRoot() || c.exam.places.Shared:
		return ok("the shared daemon lets a job open only its own GPUs")
	}
	return warn("use a shared daemon (`make install-service` as root)", "only root can install a device filter: %s", loose)
}

// xid reports where GPU errors are read from.
func (c *cardFacts) xid(h helperSaid) Finding {
	if c.exam.places.Shared && !c.exam.isRoot() {
		return ok("the shared daemon reads GPU errors (Xid) from the kernel log")
	}
	fd, err := unix.Open(c.exam.path("/dev/kmsg"), unix.O_RDONLY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err == nil {
		unix.Close(fd)
		return ok("GPU errors (Xid) are read from the kernel log")
	}
	const fix = "use a shared daemon, or let users read the log (sysctl kernel.dmesg_restrict=0, and read permission on /dev/kmsg)"
	if h.err == nil && h.Facts.Events {
		return warn(fix, "cannot read the kernel log (%v): only the GPU errors (Xid) that NVML reports are seen", err)
	}
	return warn(fix, "cannot read the kernel log (%v), and NVML reports no events: GPU errors (Xid) go unnoticed", err)
}

// mps reports whether jobs can have a hard limit on GPU memory.
func (c *cardFacts) mps(h helperSaid) Finding {
	version, branch := c.driverVersion(h)
	_, err := c.exam.command("nvidia-cuda-mps-control")
	switch {
	case err != nil:
		return ok("CUDA MPS is not installed; only --cap mps needs it (nvidia-cuda-mps-control comes with the driver's compute tools)")
	case branch > 0 && branch < driverMPSLimits:
		return ok("CUDA MPS is installed, but driver %s cannot limit memory with it: --cap mps needs %d or newer", version, driverMPSLimits)
	case c.runs("nvidia-cuda-mps"):
		return ok("CUDA MPS of driver %s is installed and running; a job with --cap mps gets an MPS daemon of its own", version)
	}
	return ok("CUDA MPS of driver %s is installed; a job with --cap mps has to declare --vram or a share", version)
}

// memoryLimits reports whether the driver can limit the GPU memory of a
// cgroup.
func (c *cardFacts) memoryLimits(h helperSaid) Finding {
	version, branch := c.driverVersion(h)
	switch {
	case h.Facts.MemoryLimits:
		return ok("driver %s can limit a job's GPU memory by cgroup", version)
	case branch >= driverMemoryLimits:
		return ok("driver %s supports GPU memory limits by cgroup, but they do not work here", version)
	}
	return ok("driver %s cannot limit GPU memory by cgroup (%d and newer can): caps rely on MPS or on the framework", version, driverMemoryLimits)
}

// checkpoint reports whether the driver could park a running job.
func (c *cardFacts) checkpoint(h helperSaid) Finding {
	version, branch := c.driverVersion(h)
	switch {
	case c.exam.arch != "amd64":
		return ok("jobs cannot be parked: the driver supports CUDA checkpoints on x86-64 only")
	case branch < driverCheckpoint:
		return ok("driver %s cannot checkpoint a running program (%d and newer can): jobs cannot be parked", version, driverCheckpoint)
	}
	if h.park != nil {
		return warn("check that libcuda.so.1 is that of the loaded driver; reboot after an upgrade", "jobs cannot be parked: %v", h.park)
	}
	if c.exam.helper.path == "" {
		return ok("driver %s can checkpoint a running program, but jobs cannot be parked without berth-gpu", version)
	}
	what := fmt.Sprintf("driver %s can checkpoint a running program: jobs can be parked; the host has %d GiB of memory available", version, freeMiB(c.exam.machine, "")>>10)
	if pages, err := os.ReadFile(c.exam.path("/sys/kernel/mm/transparent_hugepage/enabled")); err == nil && !strings.Contains(string(pages), "[always]") {
		what += "; with transparent huge pages set to always, parking is nearly twice as fast"
	}
	return ok("%s", what)
}

const dockerSocket = "/var/run/docker.sock"

// containers reports whether GPU memory used in a job's containers is counted
// as the job's.
func (c *cardFacts) containers(helperSaid) Finding {
	const label = "--label berth.token=$BERTH_TOKEN"
	switch {
	case !c.exam.exists(dockerSocket):
		return ok("docker is not installed; podman and apptainer containers are recognised by their processes")
	case c.exam.isRoot() || c.exam.places.Shared:
		return ok("containers that a job starts with `docker run %s` count as the job's", label)
	case unix.Access(c.exam.path(dockerSocket), unix.R_OK|unix.W_OK) != nil:
		return warn("use a shared daemon, which may ask docker", "you may not open %s: GPU memory used in docker containers counts as external", dockerSocket)
	}
	return ok("containers that a job starts with `docker run %s` count as the job's", label)
}

// nvidiaVendor and displayClass identify a GPU on the PCI bus.
const (
	nvidiaVendor = "0x10de"
	displayClass = "0x03"
)

// topology reports whether the CPUs near each GPU are known.
func (c *cardFacts) topology(helperSaid) Finding {
	nodes, _ := filepath.Glob(c.exam.path("/sys/devices/system/node/node[0-9]*")) // the pattern is ours
	devices, _ := filepath.Glob(c.exam.path("/sys/bus/pci/devices/*"))
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
		return ok("%s; the PCI bus shows no GPUs, so their distance is unknown", what)
	case len(nodes) > 1 && placed < cards:
		return warn("enable NUMA (SRAT) in the firmware, or pass the topology to the virtual machine", "%s, but %d of %d GPUs do not report theirs: jobs on several GPUs may get distant ones", what, cards-placed, cards)
	case withCPUs < cards:
		return ok("%s; the CPUs near each GPU are unknown, so --pin does nothing", what)
	}
	if cards == 1 {
		return ok("%s; the CPUs near the GPU are known", what)
	}
	return ok("%s; the CPUs near each of the %d GPUs are known", what, cards)
}
