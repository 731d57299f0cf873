package run

import (
	"os"
	"path/filepath"
	"strings"

	"berth/internal/keep"
)

// hostNamespace is the name of the pid namespace that the machine came up with.
const hostNamespace = "pid:[4026531836]"

// maxDescriptors bounds the search for the driver among what a process has open.
const maxDescriptors = 4096

// inNamespace reports whether this process is in another pid namespace than the
// host's, or could be.
func inNamespace(proc string) bool {
	name, err := os.Readlink(filepath.Join(proc, "self", "ns", "pid"))
	return err != nil || name != hostNamespace
}

// believable reports whether the process that has this number here is the one
// the driver means: in a container the number can be the host's, and any other
// process can have it here. One that has the driver open is the one. What is
// dead has nothing open any more, and is believed to be a job's if it is one's
// child.
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
