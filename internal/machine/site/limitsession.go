package site

import (
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"berth/internal/text"
)

// limitNames are the resource limits by their number in the kernel, as named
// in /proc, limits.conf and systemd.
var limitNames = []struct{ proc, conf, systemd string }{
	unix.RLIMIT_CPU:        {"Max cpu time", "cpu", "CPU"},
	unix.RLIMIT_FSIZE:      {"Max file size", "fsize", "FSIZE"},
	unix.RLIMIT_DATA:       {"Max data size", "data", "DATA"},
	unix.RLIMIT_STACK:      {"Max stack size", "stack", "STACK"},
	unix.RLIMIT_CORE:       {"Max core file size", "core", "CORE"},
	unix.RLIMIT_RSS:        {"Max resident set", "rss", "RSS"},
	unix.RLIMIT_NPROC:      {"Max processes", "nproc", "NPROC"},
	unix.RLIMIT_NOFILE:     {"Max open files", "nofile", "NOFILE"},
	unix.RLIMIT_MEMLOCK:    {"Max locked memory", "memlock", "MEMLOCK"},
	unix.RLIMIT_AS:         {"Max address space", "as", "AS"},
	unix.RLIMIT_LOCKS:      {"Max file locks", "locks", "LOCKS"},
	unix.RLIMIT_SIGPENDING: {"Max pending signals", "sigpending", "SIGPENDING"},
	unix.RLIMIT_MSGQUEUE:   {"Max msgqueue size", "msgqueue", "MSGQUEUE"},
	unix.RLIMIT_NICE:       {"Max nice priority", "nice", "NICE"},
	unix.RLIMIT_RTPRIO:     {"Max realtime priority", "rtprio", "RTPRIO"},
	unix.RLIMIT_RTTIME:     {"Max realtime timeout", "rttime", "RTTIME"},
}

// sessionLimits are the limits a fresh session starts with: those of process
// 1, or under systemd the defaults of its services, sshd among them. systemd's
// own limits are far higher.
func sessionLimits(m machine) ([]Rlimit, error) {
	limits, err := parseProcLimits(m.read("/proc/1/limits"))
	if err != nil {
		return nil, fmt.Errorf("limits of process 1: %w", err)
	}
	if !m.hasSystemd() {
		return limits, nil
	}
	limits[unix.RLIMIT_NOFILE] = Rlimit{Resource: unix.RLIMIT_NOFILE, Soft: 1024, Hard: 524288}
	limits[unix.RLIMIT_MEMLOCK] = Rlimit{Resource: unix.RLIMIT_MEMLOCK, Soft: 8 << 20, Hard: 8 << 20}
	configured := systemdSettings(m, "system.conf", "Manager")
	for resource, name := range limitNames {
		soft, hard, ok := systemdLimit(configured["DefaultLimit"+name.systemd])
		if ok {
			limits[resource] = Rlimit{Resource: resource, Soft: soft, Hard: hard}
		}
	}
	return limits, nil
}

// parseProcLimits reads /proc/<pid>/limits. Every limit has to be there: for a
// missing one, the job would inherit the daemon's.
func parseProcLimits(written string) ([]Rlimit, error) {
	limits := make([]Rlimit, len(limitNames))
	for resource, name := range limitNames {
		line, ok := lineWith(written, name.proc+"  ")
		fields := strings.Fields(line)
		if !ok || len(fields) < 2 {
			return nil, fmt.Errorf("%q is missing", name.proc)
		}
		soft, softErr := parseProcLimit(fields[0])
		hard, hardErr := parseProcLimit(fields[1])
		if softErr != nil || hardErr != nil {
			return nil, fmt.Errorf("%q: expected two limits, found %q", name.proc, text.Said(strings.TrimSpace(line)))
		}
		limits[resource] = Rlimit{Resource: resource, Soft: soft, Hard: hard}
	}
	return limits, nil
}

func lineWith(text, prefix string) (rest string, found bool) {
	for line := range strings.Lines(text) {
		if rest, found = strings.CutPrefix(line, prefix); found {
			return rest, true
		}
	}
	return "", false
}

func parseProcLimit(word string) (uint64, error) {
	if word == "unlimited" {
		return unlimited, nil
	}
	return strconv.ParseUint(word, 10, 64)
}

// systemdSettings merges a systemd configuration file and its drop-ins. Of two
// drop-ins with the same name, the administrator's counts.
func systemdSettings(m machine, file, section string) map[string]string {
	dirs := []string{"/usr/lib/systemd", "/usr/local/lib/systemd", "/run/systemd", "/etc/systemd"}
	main, drops := "", make(map[string]string)
	for _, dir := range dirs {
		if path := filepath.Join(dir, file); m.exists(path) {
			main = path
		}
		found, _ := filepath.Glob(m.path(filepath.Join(dir, file+".d", "*.conf"))) // the pattern is ours
		for _, path := range found {
			name := filepath.Base(path)
			drops[name] = filepath.Join(dir, file+".d", name)
		}
	}
	order := []string{main}
	var names []string
	for name := range drops {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		order = append(order, drops[name])
	}
	values := make(map[string]string)
	for _, path := range order {
		for name, value := range settings(m.read(path), section) {
			values[name] = value
		}
	}
	return values
}

// systemdLimit reads "soft:hard" or one value for both. It ignores times: CPU
// time is never limited for all sessions.
func systemdLimit(text string) (soft, hard uint64, ok bool) {
	first, second, two := strings.Cut(text, ":")
	soft, ok = systemdSize(first)
	if !two || !ok {
		return soft, soft, ok
	}
	hard, ok = systemdSize(second)
	return soft, hard, ok && soft <= hard
}

func systemdSize(text string) (uint64, bool) {
	if text == "infinity" {
		return unlimited, true
	}
	shift := 0
	if n := len(text); n > 0 {
		if i := strings.IndexByte("KMGTPE", text[n-1]); i >= 0 {
			shift, text = 10*(i+1), text[:n-1]
		}
	}
	value, err := strconv.ParseUint(text, 10, 64)
	return value << shift, err == nil && value<<shift>>shift == value
}
