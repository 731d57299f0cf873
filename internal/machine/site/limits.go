package site

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"berth/internal/machine/keep"
)

// Rlimit is one resource limit, in the form a supervisor takes.
type Rlimit = keep.Rlimit

const unlimited = keep.Infinity

// LoginLimits are the resource limits a user has after logging in: those of a
// fresh session, changed by limits.conf.
func (u *Users) LoginLimits(user User) ([]Rlimit, error) {
	limits, err := loginLimits(u.machine, user, u.groupNumber)
	if err != nil {
		return nil, fmt.Errorf("limits of user %s: %w", user.Name, err)
	}
	return limits, nil
}

// groupLookup turns the name of a group into its id.
type groupLookup func(ctx context.Context, name string) (gid int, known bool, err error)

// loginLimits are the login limits, as far as this process may set them.
func loginLimits(m machine, user User, groups groupLookup) ([]Rlimit, error) {
	limits, err := wantedLimits(m, user, groups)
	if err != nil || mayRaiseLimits(m) {
		return limits, err
	}
	own, err := parseProcLimits(m.read("/proc/self/limits"))
	if err != nil {
		return nil, fmt.Errorf("limits of this process: %w", err)
	}
	for i := range limits {
		limits[i].Hard = min(limits[i].Hard, own[i].Hard)
		limits[i].Soft = min(limits[i].Soft, limits[i].Hard)
	}
	return limits, nil
}

// mayRaiseLimits reports whether this process has CAP_SYS_RESOURCE, which root
// lacks in some containers. A login there is bounded in the same way.
func mayRaiseLimits(m machine) bool {
	const sysResource = 24 // the number of CAP_SYS_RESOURCE
	text, found := lineWith(m.read("/proc/self/status"), "CapEff:")
	capabilities, err := strconv.ParseUint(strings.TrimSpace(text), 16, 64)
	return found && err == nil && capabilities&(1<<sysResource) != 0
}

func wantedLimits(m machine, user User, groups groupLookup) ([]Rlimit, error) {
	base, err := sessionLimits(m)
	if err != nil {
		return nil, err
	}
	files, err := limitFiles(m)
	if err != nil {
		return nil, err
	}
	rules := newRules(user, base, openFilesBound(m), groups)
	for _, name := range files {
		if err := trusted(m.path(name), limitsOwner(m)); err != nil {
			return nil, err
		}
		text, err := os.ReadFile(m.path(name))
		if err != nil {
			return nil, fmt.Errorf("read limits: %w", err)
		}
		if err := rules.apply(string(text)); err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
	}
	return rules.result(), nil
}

// limitsOwner is the user that system files belong to: root, or in a test the user
// running it.
func limitsOwner(m machine) int {
	if m.root == "" {
		return 0
	}
	return os.Getuid()
}

// limitFiles lists the files in the order they apply: a later line of the same
// rank wins.
func limitFiles(m machine) ([]string, error) {
	var files []string
	if m.exists("/etc/security/limits.conf") {
		files = append(files, "/etc/security/limits.conf")
	}
	entries, err := os.ReadDir(m.path("/etc/security/limits.d"))
	if err != nil && !os.IsNotExist(err) {
		return nil, fmt.Errorf("read limits: %w", err)
	}
	for _, entry := range entries { // sorted by name
		if strings.HasSuffix(entry.Name(), ".conf") && !strings.HasPrefix(entry.Name(), ".") {
			files = append(files, filepath.Join("/etc/security/limits.d", entry.Name()))
		}
	}
	return files, nil
}

// openFilesBound is the number of open files that "unlimited" means to the
// kernel.
func openFilesBound(m machine) uint64 {
	bound, err := strconv.ParseUint(strings.TrimSpace(m.read("/proc/sys/fs/nr_open")), 10, 64)
	if err != nil {
		return 1 << 20
	}
	return bound
}
