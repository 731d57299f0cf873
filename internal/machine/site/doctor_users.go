package site

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"berth/internal/text"
)

// systemd checks what restarts berth after a crash or a reboot.
func (e exam) systemd(context.Context) Finding {
	const anyVerb = "after a crash or a reboot, queued jobs go on with your next berth command"
	switch {
	case !e.hasSystemd() && e.places.Shared:
		return warn("start `berth serve` from your init system", "this machine does not run systemd: nothing starts berth after a reboot")
	case !e.hasSystemd():
		return warn("start `berth serve` from your init system, or run `berth start`", "this machine does not run systemd: %s", anyVerb)
	case systemService(e.machine):
		return ok("systemd is running, and berth is installed as a service")
	case e.places.Shared:
		return ok("systemd is running; berth is not installed as a service (`make install-service`)")
	case !userService(e.machine, e.getenv):
		return ok("%s; as a user service (`systemctl --user enable --now berth`) it goes on by itself", anyVerb)
	case !lingers(e.machine, e.uid):
		return ok("your user service goes on with queued jobs after a crash, and after a reboot once you log in (at boot with `loginctl enable-linger`)")
	}
	return ok("your user service goes on with queued jobs after a crash or a reboot")
}

func (e exam) logout(ctx context.Context) Finding {
	if e.places.Shared || e.isRoot() {
		return ok("jobs keep running after logout")
	}
	if ends, why := endsAtLogout(ctx, e.machine, e.uid); ends {
		return warn("loginctl enable-linger", "jobs end at logout: %s", why)
	}
	return ok("jobs keep running after logout")
}

func (e exam) getentFinding(context.Context) Finding {
	if _, err := e.command("getent"); err == nil {
		return ok("users are looked up with getent")
	}
	for _, database := range []string{"passwd", "group"} {
		for _, source := range e.sourcesOf(database) {
			if source != "files" && source != "systemd" && source != "compat" {
				return fail("install getent (libc-bin, glibc-common)", "getent is missing: users from %q cannot be looked up", text.Said(source))
			}
		}
	}
	return warn("install getent (libc-bin, glibc-common)", "getent is missing: only users in /etc/passwd are known")
}

func (e exam) users(ctx context.Context) Finding {
	user, err := e.byUID(ctx, e.uid)
	if errors.Is(err, ErrUnknownUser) {
		return fail("add the user to the user database", "user %d is not in the user database", e.uid)
	}
	if err != nil {
		return fail("check that the services named in /etc/nsswitch.conf are running: "+strings.Join(e.sourcesOf("passwd"), ", "), "the user database does not answer: %v", err)
	}
	return ok("the user database answers: %s, %s", text.Said(user.Name), text.Count(len(user.Groups), "group"))
}

// AdminGroup is the group whose members administer a shared daemon beside root,
// unless its config names another one.
const AdminGroup = "berth-admin"

func (e exam) admins(ctx context.Context) Finding {
	if !e.places.Shared {
		return ok("a private daemon has one user")
	}
	if e.adminGroup == "" {
		return ok("only root is an administrator; the daemon's config names no group (access.admin_group)")
	}
	gid, known, err := e.groupNumber(ctx, e.adminGroup)
	switch {
	case err != nil:
		return warn("check that the services named in /etc/nsswitch.conf are running", "the group database does not answer, so only root is an administrator: %v", err)
	case !known:
		return ok("only root is an administrator; to add more, create the group %s (`groupadd --system %s`)", e.adminGroup, e.adminGroup)
	}
	return ok("administrators: root and the members of group %s (%d)", e.adminGroup, gid)
}

const (
	wantedOpenFiles  = 4096
	wantedLockedByte = 64 << 20
)

// limits checks the resource limits that this user's jobs will have.
func (e exam) limits(ctx context.Context) Finding {
	user, err := e.byUID(ctx, e.uid)
	if err != nil {
		user = User{Name: strconv.Itoa(e.uid), UID: e.uid, GID: -1}
	}
	limits, err := loginLimits(e.machine, user, e.groupNumber)
	if err != nil {
		return fail("make /etc/security/limits.conf and limits.d owned by root and writable by root only", "cannot determine the login limits: %v", err)
	}
	if wanted, err := wantedLimits(e.machine, user, e.groupNumber); err == nil && e.isRoot() && !slices.Equal(wanted, limits) {
		return warn("give the container the capability CAP_SYS_RESOURCE", "root may not raise limits here: jobs get this process's limits, not their user's login limits")
	}
	files, locked := limits[unix.RLIMIT_NOFILE], limits[unix.RLIMIT_MEMLOCK]
	switch {
	case files.Hard < wantedOpenFiles:
		return warn("raise nofile in /etc/security/limits.d", "at most %d open files: data loaders with many workers need more", files.Hard)
	case locked.Hard < wantedLockedByte:
		return warn("set `* - memlock unlimited` in /etc/security/limits.d", "at most %d KiB of locked memory: RDMA and some pinned buffers need more", locked.Hard>>10)
	}
	return ok("open files %s (hard limit %s), locked memory %s", amount(files.Soft), amount(files.Hard), amount(locked.Soft))
}

func amount(value uint64) string {
	if value == unlimited {
		return "unlimited"
	}
	return strconv.FormatUint(value, 10)
}
