package run

import (
	"os"
	"path/filepath"
	"strings"

	"berth/internal/machine/keep"
)

// hostNamespace is the initial pid namespace of the machine.
const hostNamespace = "pid:[4026531836]"

// maxDescriptors bounds the search for the driver among a process's open
// files.
const maxDescriptors = 4096

// inNamespace reports whether this process is not in the host's pid namespace,
// or may not be.
func inNamespace(proc string) bool {
	name, err := os.Readlink(filepath.Join(proc, "self", "ns", "pid"))
	return err != nil || name != hostNamespace
}

// believable reports whether the process with this pid is the one the driver
// means: in a container the pid may be the host's, and any other process can
// have it here. A process that has the driver open is the one. A dead process
// has no open files, and counts if it is a child of a job.
func (w world) believable(p keep.Process, owned bool) bool {
	if p.State == 'Z' || p.State == 'X' {
		return owned
	}
	return w.usesDriver(p.PID)
}

// usesDriver reports whether the process has one of the driver's files open,
// as far as this user may see that.
func (w world) usesDriver(pid int) bool {
	dir, err := os.Open(w.file(pid, "fd"))
	if err != nil {
		return false
	}
	defer dir.Close()
	names, _ := dir.Readdirnames(maxDescriptors)
	for _, name := range names {
		target, err := os.Readlink(filepath.Join(dir.Name(), name))
		if err == nil && strings.HasPrefix(target, "/dev/nvidia") {
			return true
		}
	}
	return false
}
