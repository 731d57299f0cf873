package run

import (
	"slices"
	"strings"
	"sync"

	"berth/internal/job"
	"berth/internal/keep"
)

// Holder is what Attribution knows of one running job. Empty fields match
// nothing.
type Holder struct {
	Key     string
	KeepPID int
	Session int
	Cgroup  string // its directory
	Token   string
	Root    job.Stranger // a process that berth did not start: it and all below it
}

// Attribution says whose a process is. An owner it found is remembered for as
// long as neither the process nor the jobs change.
type Attribution struct {
	mount string // of the cgroup hierarchy

	mu      sync.Mutex
	holders []Holder
	known   map[processKey]string // the owner of what has one
}

type processKey struct {
	pid   int
	start uint64
}

const (
	// maxAnswers bounds the memory; at the bound everything is asked anew.
	maxAnswers = 4096
	// maxAncestors bounds the walk to the root of the process tree.
	maxAncestors = 256
)

// NewAttribution makes one that knows of no job.
func NewAttribution() *Attribution {
	return &Attribution{mount: cgroupMount(), known: make(map[processKey]string)}
}

// Set says which jobs are running.
func (a *Attribution) Set(holders []Holder) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if slices.Equal(a.holders, holders) {
		return
	}
	a.holders = slices.Clone(holders)
	clear(a.known)
}

// Owner is the job that the process belongs to. known is false when there is
// no such process here: it is gone, or its number is another pid namespace's.
func (a *Attribution) Owner(pid int) (key string, ok bool, known bool) {
	if pid <= 0 {
		return "", false, false
	}
	p, err := keep.ReadProcess(pid)
	if err != nil {
		return "", false, false
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	id := processKey{p.PID, p.Start}
	if key, ok = a.known[id]; ok {
		return key, true, true
	}
	if key, ok = a.find(p); !ok {
		// Not remembered: a process in the middle of an exec shows no
		// environment for a moment.
		return "", false, true
	}
	if len(a.known) >= maxAnswers {
		clear(a.known)
	}
	a.known[id] = key
	return key, true, true
}

// find tries what cannot be changed by the process first.
func (a *Attribution) find(p keep.Process) (key string, ok bool) {
	if key, ok = a.byCgroup(p.PID); ok {
		return key, true
	}
	for _, h := range a.holders {
		if h.Session > 0 && h.Session == p.Session {
			return h.Key, true
		}
	}
	if key, ok = a.byAncestry(p); ok {
		return key, true
	}
	return a.byToken(p.PID)
}

func (a *Attribution) byCgroup(pid int) (key string, ok bool) {
	path, err := cgroupOf(pid)
	if err != nil || a.mount == "" {
		return "", false
	}
	dir := strings.TrimSuffix(a.mount, "/") + path
	for _, h := range a.holders {
		if h.Cgroup != "" && (dir == h.Cgroup || strings.HasPrefix(dir, h.Cgroup+"/")) {
			return h.Key, true
		}
	}
	return "", false
}

// byAncestry climbs from the process to a supervisor, or to the root of what
// berth did not start. A supervisor itself is
// nobody's job.
func (a *Attribution) byAncestry(p keep.Process) (key string, ok bool) {
	for range maxAncestors {
		for _, h := range a.holders {
			if h.KeepPID > 0 && h.KeepPID == p.Parent || h.Root.PID > 0 && h.Root.PID == p.PID && h.Root.Start == p.Start {
				return h.Key, true
			}
		}
		if p.Parent <= 1 {
			return "", false
		}
		parent, err := keep.ReadProcess(p.Parent)
		if err != nil {
			return "", false
		}
		p = parent
	}
	return "", false
}

func (a *Attribution) byToken(pid int) (key string, ok bool) {
	value, found := tokenOf(pid)
	if !found {
		return "", false
	}
	for _, h := range a.holders {
		if h.Token != "" && (value == h.Token || strings.HasPrefix(value, h.Token+":")) {
			return h.Key, true
		}
	}
	return "", false
}
