package run

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"berth/internal/keep"
)

// Facts are what this host gives jobs by way of cgroups.
type Facts struct {
	Version string   // "v2", "hybrid" (both), "v1" or "none"
	Path    string   // where jobs' cgroups go; empty: jobs have none
	CPU     string   // which version holds a job to its CPUs: "v2", "v1" or ""
	Memory  string   // the same for its memory
	Kill    bool     // a whole cgroup can be killed at once
	Freeze  bool     // and frozen
	Devices bool     // a job can be kept from opening cards it was not given
	Why     []string // what is missing and why, one sentence each
}

// Facts looks at the place that this Runner uses.
func (r *Runner) Facts() Facts {
	if r.noCgroup {
		return Facts{Version: hostVersion(), Why: []string{"cgroups are turned off"}}
	}
	f := factsOf(r.cgroup)
	if r.cgroup != "" {
		f.filters(r.Filters())
	}
	return f
}

// filters says whether devices can be filtered. Without a cgroup it needs no
// word: that there is none has been said.
func (f *Facts) filters(why error) {
	if f.Devices = why == nil; !f.Devices {
		f.Why = append(f.Why, "a job can open cards it was not given: "+why.Error())
	}
}

func factsOf(dir string) Facts {
	f := Facts{Version: hostVersion(), Path: dir}
	if dir == "" {
		f.Why = append(f.Why, "no cgroup of its own for a job: "+whyNoCgroup())
	} else {
		f.probe(dir)
	}
	if f.Memory == "" {
		f.Memory = f.olderPlace(memoryController, "memory.limit_in_bytes", "a job's host memory limit is not enforced")
	}
	if f.CPU == "" {
		f.CPU = f.olderPlace(cpuController, "cpu.cfs_quota_us", "a job's CPU limit is not enforced")
	}
	return f
}

// probe makes a cgroup as a job would get it and looks what is in it.
func (f *Facts) probe(dir string) {
	name := filepath.Join(dir, fmt.Sprintf("probe-%d", os.Getpid()))
	if err := os.Mkdir(name, 0o755); err != nil {
		f.Why = append(f.Why, "no cgroup of its own for a job: "+err.Error())
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
	if f.Kill = has("cgroup.kill"); !f.Kill {
		f.Why = append(f.Why, "a cgroup cannot be killed at once: this needs Linux 5.14")
	}
	if f.Freeze = has("cgroup.freeze"); !f.Freeze {
		f.Why = append(f.Why, "a cgroup cannot be frozen: this needs Linux 5.2")
	}
}

// olderPlace looks for the limit in version 1, and says why there is none at
// all if there is none.
func (f *Facts) olderPlace(controller, file, without string) string {
	older, err := ownV1(controller)
	if err == nil {
		if err = unix.Access(older, unix.W_OK); err == nil {
			// The root of a hierarchy has no limit, so what it has is asked of
			// a directory that berth makes for it.
			err = probeV1(older, file)
		}
	}
	if err == nil {
		return "v1"
	}
	f.Why = append(f.Why, fmt.Sprintf("%s: %s; version 1: %v", without, whyNot(f.Path, controller), err))
	return ""
}

func probeV1(dir, file string) error {
	name := filepath.Join(dir, fmt.Sprintf("berth-probe-%d", os.Getpid()))
	if err := os.Mkdir(name, 0o755); err != nil {
		return err
	}
	defer unix.Rmdir(name)
	return unix.Access(filepath.Join(name, file), unix.W_OK)
}

// whyNot says why version 2 does not hand the controller on.
func whyNot(dir, controller string) string {
	if dir == "" {
		return "version 2: no cgroup"
	}
	available, err := os.ReadFile(filepath.Join(dir, "cgroup.controllers"))
	if err != nil {
		return "version 2: " + err.Error()
	}
	if !slices.Contains(strings.Fields(string(available)), controller) {
		return fmt.Sprintf("version 2: the %s controller is not handed on to %s", controller, dir)
	}
	return fmt.Sprintf("version 2: %s may not hand the %s controller on", dir, controller)
}

func whyNoCgroup() string {
	own := ownCgroup()
	if own == "" {
		return "version 2 cgroups are not mounted here"
	}
	return own + " may not be written to; a service with Delegate=yes may"
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

// enableControllers has a place hand on to jobs' cgroups what it has, and what
// its parent has if that is berth's as well. What cannot be had is told by the
// facts, and noted with the jobs that ask for it.
func enableControllers(dir string, parentToo bool) {
	for _, controller := range []string{cpuController, memoryController, "pids"} {
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

// dropCgroup removes what a supervisor that died could not. The kernel keeps it
// if a process is in it, and a later berth sweeps.
func (r *Runner) dropCgroup(record keep.Record) {
	if record.Cgroup != "" {
		_ = keep.RemoveCgroup(record.Cgroup)
	}
	r.places.forget(record.Token)
}
