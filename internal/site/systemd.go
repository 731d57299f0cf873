package site

import (
	"os"
	"path/filepath"
)

var unitDirs = []string{
	"/etc/systemd/system", "/run/systemd/system", "/usr/local/lib/systemd/system", "/usr/lib/systemd/system", "/lib/systemd/system",
}

// SystemService reports whether this machine has a berth for all its users
// installed, running or not: then nobody is given a private one unasked.
func SystemService() bool { return here().systemService() }

func (m machine) systemService() bool {
	for _, unit := range []string{"berth.service", "berth.socket"} {
		if m.installed(unit) {
			return true
		}
	}
	return false
}

// installed looks at the first directory that has the unit: a link to
// /dev/null there is how an administrator forbids one further down.
func (m machine) installed(unit string) bool {
	for _, dir := range unitDirs {
		path := m.path(filepath.Join(dir, unit))
		info, err := os.Lstat(path)
		if err != nil {
			continue
		}
		if info.Mode()&os.ModeSymlink != 0 {
			target, _ := os.Readlink(path)
			return target != "/dev/null"
		}
		return info.Mode().IsRegular() && info.Size() > 0
	}
	return false
}
