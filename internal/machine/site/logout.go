package site

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// EndsAtLogout reports whether this machine kills a user's own daemon and its
// jobs when the user logs out, with the reason and the remedy. It is false
// without systemd.
func EndsAtLogout(ctx context.Context, uid int) (ends bool, why string) {
	return endsAtLogout(ctx, here(), uid)
}

func endsAtLogout(ctx context.Context, m machine, uid int) (bool, string) {
	if !m.hasSystemd() || lingers(m, uid) {
		return false, ""
	}
	const help = "; `loginctl enable-linger` prevents this"
	// The user's own systemd ends in any case, whatever logind's settings.
	if h, ok := unified(m, m.pid); ok && strings.Contains(h.dir, fmt.Sprintf("/user@%d.service/", uid)) {
		return true, "your systemd instance ends at logout, with this daemon and its jobs" + help
	}
	if killsUserProcesses(ctx, m, uid) {
		return true, "this machine kills a user's processes at logout (KillUserProcesses=yes)" + help
	}
	return false, ""
}

// lingers reports whether the user's systemd keeps running after logout.
func lingers(m machine, uid int) bool {
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

// killsUserProcesses asks logind, and reads its files if it does not answer.
// The built-in default is a comment in logind.conf.
func killsUserProcesses(ctx context.Context, m machine, uid int) bool {
	configured := systemdSettings(m, "logind.conf", "Login")
	if exceptedFromKill(ctx, m, uid, configured) {
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

// exceptedFromKill reports whether logind spares this user's processes.
func exceptedFromKill(ctx context.Context, m machine, uid int, configured map[string]string) bool {
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
