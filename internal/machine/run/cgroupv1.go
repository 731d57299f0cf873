package run

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"berth/internal/machine/keep"
)

// The controllers that enforce limits.
const (
	memoryController = "memory"
	cpuController    = "cpu"
	pidsController   = "pids" // of helper processes alone
)

// detectV1 makes a directory for jobs' limits in the version 1 hierarchy of
// that controller, in berth's own cgroup there.
func detectV1(controller string) (dir string, err error) {
	own, err := ownV1(controller)
	if err != nil {
		return "", err
	}
	sweepCgroups(own)
	return makeBerthDir(own)
}

// ownV1 is the directory of this process in that hierarchy.
func ownV1(controller string) (string, error) {
	mount, root := mountV1(controller)
	if mount == "" {
		return "", errors.New("no such controller")
	}
	text, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		return "", err
	}
	for line := range strings.Lines(string(text)) {
		fields := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if len(fields) == 3 && slices.Contains(strings.Split(fields[1], ","), controller) {
			// In a container only a subtree of the hierarchy is mounted.
			path := strings.TrimPrefix(fields[2], strings.TrimSuffix(root, "/"))
			return filepath.Join(mount, path), nil
		}
	}
	return "", errors.New("this process is not in its hierarchy")
}

// mountV1 is where the controller's hierarchy is mounted, and which directory
// of it.
func mountV1(controller string) (mount, root string) {
	info, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return "", ""
	}
	for _, mount := range keep.ParseMounts(string(info)) {
		if mount.Type == "cgroup" && slices.Contains(mount.Options, controller) {
			return mount.Point, mount.Root
		}
	}
	return "", ""
}
