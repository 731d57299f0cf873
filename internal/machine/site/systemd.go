package site

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

var unitDirs = []string{
	"/etc/systemd/system", "/run/systemd/system", "/usr/local/lib/systemd/system", "/usr/lib/systemd/system", "/lib/systemd/system",
}

// SystemService reports whether a shared daemon is installed on this machine,
// running or not. If so, berth never starts a private one unasked.
func SystemService() bool {
	m := here()
	m.root = elsewhere
	return systemService(m)
}

func systemService(m machine) bool {
	for _, unit := range []string{"berth.service", "berth.socket"} {
		if unitInstalled(m, unit) {
			return true
		}
	}
	return false
}

// unitInstalled looks at the first directory that has the unit: an administrator
// masks a unit with a link to /dev/null there.
func unitInstalled(m machine, unit string) bool {
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

// userUnit is the service of a private daemon in its user's own systemd.
const userUnit = "berth.service"

// UserService reports whether the user's own systemd starts the private daemon:
// at login, at boot if the user lingers, and after a crash. A service knows
// nothing of a state directory that was moved with XDG_STATE_HOME.
func UserService(getenv func(string) string) bool { return userService(here(), getenv) }

func userService(m machine, getenv func(string) string) bool {
	if !m.hasSystemd() || getenv("XDG_STATE_HOME") != "" {
		return false
	}
	dirs := []string{"/etc/systemd/user"}
	if home, err := homeDir(m, getenv); err == nil {
		dirs = append(dirs, filepath.Join(home, ".config/systemd/user"))
	}
	for _, dir := range dirs {
		for _, link := range []string{"default.target.wants/" + userUnit, "sockets.target.wants/berth.socket"} {
			if _, err := os.Lstat(m.path(filepath.Join(dir, link))); err == nil {
				return true
			}
		}
	}
	return false
}

// IsUserService reports whether a process is the user service's.
func IsUserService(pid int) bool { return isUserService(here(), pid) }

func isUserService(m machine, pid int) bool {
	path := cgroupPaths(m, pid)[""]
	return strings.Contains(path, fmt.Sprintf("/user@%d.service/", m.uid)) && strings.Contains(path+"/", "/"+userUnit+"/")
}

// StartUserService has the user's own systemd start the private daemon.
func StartUserService(ctx context.Context) error {
	return tellUserService(ctx, here(), "start", "--no-block")
}

// RestartUserService has the user's own systemd restart the private daemon, and
// returns when the new one is ready. Unlike after a stop, systemd keeps its port.
func RestartUserService(ctx context.Context) error { return tellUserService(ctx, here(), "restart") }

func tellUserService(ctx context.Context, m machine, verb string, flags ...string) error {
	args := append(append([]string{"--user", verb}, flags...), userUnit)
	said, err := m.run(ctx, call{name: "systemctl", args: args, env: managerEnv(m, true)})
	if err == nil && said.exit != 0 {
		err = fmt.Errorf("systemctl: %s", said.firstLine())
	}
	if err != nil {
		return fmt.Errorf("%s the user service %s: %w", verb, userUnit, err)
	}
	return nil
}
