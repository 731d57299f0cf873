package site

import (
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"berth/internal/machine/keep"
)

// hierarchy is one mounted cgroup hierarchy and a process's place in it.
type hierarchy struct {
	version     int
	controllers []string // version 1 only; version 2 lists them in files
	mount       string   // mount point, without machine.root
	dir         string   // the process's directory below mount
}

// hierarchies lists a process's cgroups, version 2 first.
func hierarchies(m machine, pid int) []hierarchy {
	places := cgroupPaths(m, pid)
	var all []hierarchy
	for _, mount := range keep.ParseMounts(m.read("/proc/self/mountinfo")) {
		h := hierarchy{mount: mount.Point}
		var path string
		var member bool
		switch mount.Type {
		case "cgroup2":
			h.version = 2
			path, member = places[""]
		case "cgroup":
			h.version = 1
			h.controllers = mount.Options
			path, member = placeOf(places, h.controllers)
		}
		// In a container, only a subtree of the hierarchy may be mounted.
		inside, within := below(path, mount.Root)
		if h.version == 0 || !member || !within {
			continue
		}
		h.dir = filepath.Join(h.mount, inside)
		all = append(all, h)
	}
	slices.SortStableFunc(all, func(a, b hierarchy) int { return b.version - a.version })
	return all
}

// cgroupPaths maps controllers to a process's paths; the path for version 2 is
// under "".
func cgroupPaths(m machine, pid int) map[string]string {
	places := make(map[string]string)
	for line := range strings.Lines(m.read("/proc/" + strconv.Itoa(pid) + "/cgroup")) {
		parts := strings.SplitN(strings.TrimSuffix(line, "\n"), ":", 3)
		if len(parts) != 3 {
			continue
		}
		for name := range strings.SplitSeq(parts[1], ",") {
			places[name] = parts[2]
		}
	}
	return places
}

func placeOf(places map[string]string, controllers []string) (string, bool) {
	for _, name := range controllers {
		if path, ok := places[name]; ok {
			return path, true
		}
	}
	return "", false
}

// below is the part of path under top.
func below(path, top string) (string, bool) {
	if top == "/" {
		return path, true
	}
	rest, ok := strings.CutPrefix(path, top)
	return rest, ok && (rest == "" || rest[0] == '/')
}

// unified is the process's place in the version 2 hierarchy.
func unified(m machine, pid int) (hierarchy, bool) {
	for _, h := range hierarchies(m, pid) {
		if h.version == 2 {
			return h, true
		}
	}
	return hierarchy{}, false
}

// upwards lists the directories from a process's own to the mount.
func (h hierarchy) upwards() []string {
	dirs := []string{h.dir}
	for dir := h.dir; dir != h.mount && len(dir) > len(h.mount); {
		dir = filepath.Dir(dir)
		dirs = append(dirs, dir)
	}
	return dirs
}
