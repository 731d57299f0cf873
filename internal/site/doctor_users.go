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

func (e exam) systemd(context.Context) Finding {
	switch {
	case !e.hasSystemd():
		return warn("start `berth serve` from the init system that is there", "systemd does not run this machine: nothing starts berth after a reboot")
	case e.systemService():
		return ok("systemd runs this machine, and berth is installed as a service")
	}
	return ok("systemd runs this machine; berth is not installed as a service (`make install-service`)")
}

func (e exam) logout(ctx context.Context) Finding {
	if e.places.Shared || e.isRoot() {
		return ok("jobs do not depend on anybody being logged in")
	}
	if ends, why := e.endsAtLogout(ctx, e.uid); ends {
		return warn("loginctl enable-linger", "jobs end at logout: %s", why)
	}
	return ok("jobs go on after logout")
}

func (e exam) getentFinding(context.Context) Finding {
	if _, err := e.command("getent"); err == nil {
		return ok("users are looked up with getent")
	}
	for _, database := range []string{"passwd", "group"} {
		for _, source := range e.sourcesOf(database) {
			if source != "files" && source != "systemd" && source != "compat" {
				return fail("install getent (libc-bin, glibc-common)", "getent is missing, and users of %q cannot be looked up without it", text.Said(source))
			}
		}
	}
	return warn("install getent (libc-bin, glibc-common)", "getent is missing: only the users in /etc/passwd are known")
}

func (e exam) users(ctx context.Context) Finding {
	user, err := e.byUID(ctx, e.uid)
	if errors.Is(err, ErrUnknownUser) {
		return fail("give the user an entry in the user database", "user %d is in no user database", e.uid)
	}
	if err != nil {
		return fail("see that the services of /etc/nsswitch.conf run: "+strings.Join(e.sourcesOf("passwd"), ", "), "the user database does not answer: %v", err)
	}
	return ok("the user database answers: %s, %s", text.Said(user.Name), text.Count(len(user.Groups), "group"))
}

// adminGroup is who administers the machine's berth beside root.
const adminGroup = "berth-admin"

func (e exam) admins(ctx context.Context) Finding {
	if !e.places.Shared {
		return ok("a private berth has one user")
	}
	gid, known, err := e.groupNumber(ctx, adminGroup)
	switch {
	case err != nil:
		return warn("see that the services of /etc/nsswitch.conf run", "the group database does not answer: only root administers: %v", err)
	case !known:
		return ok("only root administers; members of a group %s would, too (`groupadd --system %s`)", adminGroup, adminGroup)
	}
	return ok("root and the members of group %s (%d) administer", adminGroup, gid)
}

const (
	wantedOpenFiles  = 4096
	wantedLockedByte = 64 << 20
)

// limits looks at what a job of the user who asks will have.
func (e exam) limits(ctx context.Context) Finding {
	user, err := e.byUID(ctx, e.uid)
	if err != nil {
		user = User{Name: strconv.Itoa(e.uid), UID: e.uid, GID: -1}
	}
	limits, err := e.loginLimits(user, e.groupNumber)
	if err != nil {
		return fail("see that /etc/security/limits.conf and limits.d belong to root and nobody else may write to them", "limits at login cannot be told: %v", err)
	}
	if wanted, err := e.wantedLimits(user, e.groupNumber); err == nil && e.isRoot() && !slices.Equal(wanted, limits) {
		return warn("give the container the capability CAP_SYS_RESOURCE", "root may not raise limits here: jobs get what this process has, not what their users have at login")
	}
	files, locked := limits[unix.RLIMIT_NOFILE], limits[unix.RLIMIT_MEMLOCK]
	switch {
	case files.Hard < wantedOpenFiles:
		return warn("raise nofile in /etc/security/limits.d", "at most %d open files: data loaders with many workers run into that", files.Hard)
	case locked.Hard < wantedLockedByte:
		return warn("set `* - memlock unlimited` in /etc/security/limits.d", "at most %d KiB of locked memory: RDMA and some pinned buffers need more", locked.Hard>>10)
	}
	return ok("open files %s to %s, locked memory %s", amount(files.Soft), amount(files.Hard), amount(locked.Soft))
}

func amount(value uint64) string {
	if value == unlimited {
		return "unlimited"
	}
	return strconv.FormatUint(value, 10)
}
