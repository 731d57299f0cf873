package run

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// Facts are what cgroups can do for jobs on this host.
type Facts struct {
	Version string   // "v2", "hybrid" (both), "v1" or "none"
	Path    string   // parent of the jobs' cgroups; "": jobs have none
	CPU     string   // the version that enforces CPU limits: "v2", "v1" or ""
	Memory  string   // likewise for memory limits
	Pids    string   // likewise for the number of a helper's processes
	Kill    bool     // a whole cgroup can be killed at once
	Freeze  bool     // and frozen
	Devices bool     // a job can be kept from opening GPUs that were not allocated to it
	Why     []string // what is missing and why, one sentence each
}

// Facts examines the cgroup of the jobs.
func (c *Cgroups) Facts() Facts {
	if c.off {
		return Facts{Version: hostVersion(), Why: []string{"cgroups are switched off"}}
	}
	f := factsOf(c.Parent)
	if c.Parent != "" {
		f.filters(c.Filters())
	}
	return f
}

// filters reports whether devices can be filtered. Without a cgroup it says
// nothing: the missing cgroup is reported already.
func (f *Facts) filters(why error) {
	if f.Devices = why == nil; !f.Devices {
		f.Why = append(f.Why, "a job can open GPUs that were not allocated to it: "+why.Error())
	}
}

func factsOf(dir string) Facts {
	f := Facts{Version: hostVersion(), Path: dir}
	if dir == "" {
		f.Why = append(f.Why, "jobs have no cgroup: "+whyNoCgroup())
	} else {
		f.probe(dir)
	}
	if f.Memory == "" {
		f.Memory = f.older(memoryController, "memory.limit_in_bytes", "host memory limits are not enforced")
	}
	if f.CPU == "" {
		f.CPU = f.older(cpuController, "cpu.cfs_quota_us", "CPU limits are not enforced")
	}
	if f.Pids == "" {
		f.Pids, _ = olderPlace(pidsController, "pids.max") // doctor says what is missing
	}
	return f
}

// probe makes a cgroup as for a job and looks at what it contains.
func (f *Facts) probe(dir string) {
	name := filepath.Join(dir, fmt.Sprintf("probe-%d", os.Getpid()))
	if err := os.Mkdir(name, 0o755); err != nil {
		f.Why = append(f.Why, "jobs have no cgroup: "+err.Error())
		return
	}
	defer unix.Rmdir(name)
	has := func(file string) bool { return unix.Access(filepath.Join(name, file), unix.W_OK) == nil }
	if has("memory.max") {
		f.Memory = "v2"
	}
	if has("cpu.max") {
		f.CPU = "v2"
	}
	if has("pids.max") {
		f.Pids = "v2"
	}
	if f.Kill = has("cgroup.kill"); !f.Kill {
		f.Why = append(f.Why, "a cgroup cannot be killed in one step, which needs Linux 5.14")
	}
	if f.Freeze = has("cgroup.freeze"); !f.Freeze {
		f.Why = append(f.Why, "a cgroup cannot be frozen, which needs Linux 5.2")
	}
}

// older looks for the limit in version 1, and reports why if there is none at
// all.
func (f *Facts) older(controller, file, without string) string {
	version, err := olderPlace(controller, file)
	if err != nil {
		f.Why = append(f.Why, fmt.Sprintf("%s: %s; version 1: %v", without, whyNot(f.Path, controller), err))
	}
	return version
}

func olderPlace(controller, file string) (version string, err error) {
	older, err := ownV1(controller)
	if err == nil {
		if err = unix.Access(older, unix.W_OK); err == nil {
			// The root of a hierarchy has no limit files, so berth makes a
			// directory and looks there.
			err = probeV1(older, file)
		}
	}
	if err != nil {
		return "", err
	}
	return "v1", nil
}

func probeV1(dir, file string) error {
	name := filepath.Join(dir, fmt.Sprintf("berth-probe-%d", os.Getpid()))
	if err := os.Mkdir(name, 0o755); err != nil {
		return err
	}
	defer unix.Rmdir(name)
	return unix.Access(filepath.Join(name, file), unix.W_OK)
}

// whyNot is why version 2 does not pass the controller on.
func whyNot(dir, controller string) string {
	if dir == "" {
		return "version 2: no cgroup"
	}
	available, err := os.ReadFile(filepath.Join(dir, "cgroup.controllers"))
	if err != nil {
		return "version 2: " + err.Error()
	}
	if !slices.Contains(strings.Fields(string(available)), controller) {
		return fmt.Sprintf("version 2: the %s controller is not passed on to %s", controller, dir)
	}
	return fmt.Sprintf("version 2: %s cannot pass the %s controller on", dir, controller)
}

func whyNoCgroup() string {
	own := ownCgroup()
	if own == "" {
		return "cgroup version 2 is not mounted"
	}
	return "berth may not write to " + own + " (a service with Delegate=yes may)"
}

func hostVersion() string {
	v2 := cgroupMount() != ""
	v1, _ := mountV1(memoryController)
	if v1 == "" {
		v1, _ = mountV1(cpuController)
	}
	switch {
	case v2 && v1 != "":
		return "hybrid"
	case v2:
		return "v2"
	case v1 != "":
		return "v1"
	}
	return "none"
}

// enableControllers passes the controllers of a cgroup on to jobs' cgroups,
// and those of its parent if that belongs to berth, too. Facts report what is
// missing, and it is noted with the jobs that ask for it.
func enableControllers(dir string, parentToo bool) {
	for _, controller := range []string{cpuController, memoryController, pidsController} {
		if parentToo {
			_ = handOn(filepath.Dir(dir), controller)
		}
		_ = handOn(dir, controller)
	}
}

func handOn(dir, controller string) error {
	file, err := os.OpenFile(filepath.Join(dir, "cgroup.subtree_control"), os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	defer file.Close()
	_, err = file.WriteString("+" + controller)
	return err
}
