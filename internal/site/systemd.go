package site

import (
	"os"
	"path/filepath"
)

var unitDirs = []string{
	"/etc/systemd/system", "/run/systemd/system", "/usr/local/lib/systemd/system", "/usr/lib/systemd/system", "/lib/systemd/system",
}

// SystemService reports whether a shared daemon is installed on this machine,
// running or not. If so, berth never starts a private one unasked.
func SystemService() bool { return here().systemService() }

func (m machine) systemService() bool {
	for _, unit := range []string{"berth.service", "berth.socket"} {
		if m.installed(unit) {
			return true
		}
	}
	return false
}

// installed looks at the first directory that has the unit: an administrator
// masks a unit with a link to /dev/null there.
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
