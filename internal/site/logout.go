package site

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// EndsAtLogout reports whether this machine ends what a user's own daemon runs
// when the user logs out, and says why and what helps. It is false where there
// is no systemd.
func EndsAtLogout(ctx context.Context, uid int) (ends bool, why string) {
	return here().endsAtLogout(ctx, uid)
}

func (m machine) endsAtLogout(ctx context.Context, uid int) (bool, string) {
	if !m.hasSystemd() || m.lingers(uid) {
		return false, ""
	}
	const help = "; `loginctl enable-linger` keeps it running"
	// Of the user's own systemd nothing is left, whatever logind is told.
	if h, ok := m.unified(m.pid); ok && strings.Contains(h.dir, fmt.Sprintf("/user@%d.service/", uid)) {
		return true, "this user's systemd ends at logout, and this daemon and its jobs with it" + help
	}
	if m.killsUserProcesses(ctx, uid) {
		return true, "this machine ends a user's processes at logout (KillUserProcesses=yes)" + help
	}
	return false, ""
}

// lingers reports whether the user's systemd stays when nobody is logged in.
func (m machine) lingers(uid int) bool {
	if user, err := m.passwd(context.Background(), strconv.Itoa(uid)); err == nil {
		if m.exists("/var/lib/systemd/linger/" + user.Name) {
			return true
		}
	}
	said, err := m.run(context.Background(), call{
		name: "loginctl", args: []string{"show-user", strconv.Itoa(uid), "--property=Linger", "--value"}, deadline: 5 * time.Second,
	})
	return err == nil && said.exit == 0 && strings.TrimSpace(said.stdout) == "yes"
}

// killsUserProcesses asks logind, and where it does not answer its files. What
// is in none of them was decided when systemd was built; its file has that as
// a comment.
func (m machine) killsUserProcesses(ctx context.Context, uid int) bool {
	configured := m.systemdSettings("logind.conf", "Login")
	if m.excepted(ctx, uid, configured) {
		return false
	}
	said, err := m.run(ctx, call{name: "busctl", deadline: 5 * time.Second, args: []string{
		"get-property", "org.freedesktop.login1", "/org/freedesktop/login1", "org.freedesktop.login1.Manager", "KillUserProcesses",
	}})
	if err == nil && said.exit == 0 {
		return strings.TrimSpace(said.stdout) == "b true"
	}
	if value, ok := configured["KillUserProcesses"]; ok {
		return isYes(value)
	}
	built, _ := lineWith(m.read("/etc/systemd/logind.conf")+m.read("/usr/lib/systemd/logind.conf"), "#KillUserProcesses=")
	return isYes(strings.TrimSpace(built))
}

// excepted reports whether logind leaves this user's processes alone.
func (m machine) excepted(ctx context.Context, uid int, configured map[string]string) bool {
	name := strconv.Itoa(uid)
	if user, err := m.passwd(ctx, name); err == nil {
		name = user.Name
	}
	if only := strings.Fields(configured["KillOnlyUsers"]); len(only) > 0 && !slices.Contains(only, name) {
		return true
	}
	excluded, set := configured["KillExcludeUsers"]
	if !set {
		excluded = "root"
	}
	return slices.Contains(strings.Fields(excluded), name)
}

func isYes(value string) bool {
	return slices.Contains([]string{"1", "yes", "y", "true", "t", "on"}, strings.ToLower(value))
}
