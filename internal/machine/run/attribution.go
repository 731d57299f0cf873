package run

import (
	"cmp"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"berth/internal/job"
	"berth/internal/machine/keep"
)

// Holder is what Attribution knows of one running job. Empty fields match
// nothing.
type Holder struct {
	Key     string
	KeepPID int
	Session int
	Cgroup  string // its directory
	Token   string
	UID     int // the user it runs as
	// Root is an external process: it and its descendants belong to the key.
	Root job.Process
}

// Attribution finds the job that a process belongs to. An owner is remembered
// until the process or the jobs change, and the lack of one for a moment. It
// never waits for anything but /proc.
type Attribution struct {
	world world

	containers *containers

	mu       sync.Mutex
	holders  []Holder
	known    map[processKey]string  // processes with an owner
	external map[processKey]unowned // processes without one
}

// world is where Attribution looks.
type world struct {
	proc    string // the proc file system
	mount   string // of the cgroup hierarchy
	docker  string // the socket of the docker daemon
	now     func() time.Time
	process func(pid int) (keep.Process, error)
	// inside means that berth is in a pid namespace of its own, while the
	// driver may report pids of the host.
	inside bool
	// root means that berth can read every process's environment, whose content
	// any user can choose.
	root bool
}

type processKey struct {
	pid      int
	start    uint64
	doubtful bool // the driver's pid may be another process here
}

// unowned is the lack of an owner, valid until then.
type unowned struct {
	known bool
	until time.Time
}

const (
	// maxAnswers bounds the memory; when it is full, everything is looked up
	// again.
	maxAnswers = 4096
	// maxAncestors bounds the walk to the root of the process tree.
	maxAncestors = 256
	// unownedFor is short, because a process in the middle of an exec shows no
	// environment for a moment.
	unownedFor = 2 * time.Second
)

// NewAttribution knows no jobs.
func NewAttribution() *Attribution {
	return newAttribution(world{
		proc: "/proc", mount: cgroupMount(), docker: dockerSocket,
		now: time.Now, process: keep.ReadProcess, inside: inNamespace("/proc"), root: os.Geteuid() == 0,
	})
}

func newAttribution(w world) *Attribution {
	return &Attribution{
		world: w, containers: newContainers(w.docker, w.now),
		known: make(map[processKey]string), external: make(map[processKey]unowned),
	}
}

// Set says which jobs are running.
func (a *Attribution) Set(holders []Holder) {
	holders = slices.SortedFunc(slices.Values(holders), func(x, y Holder) int {
		return cmp.Or(cmp.Compare(x.Key, y.Key), cmp.Compare(x.KeepPID, y.KeepPID), cmp.Compare(x.Token, y.Token))
	})
	a.mu.Lock()
	defer a.mu.Unlock()
	if slices.Equal(a.holders, holders) {
		return
	}
	a.holders = holders
	clear(a.known)
	clear(a.external)
}

// Owner is the job of a process that the driver listed. known is false if that
// cannot be determined: the pid may be of another pid namespace, or docker has
// not answered yet. A process that is gone is known to have no owner.
func (a *Attribution) Owner(pid int) (key string, ok bool, known bool) {
	return a.owner(pid, a.world.inside)
}

// Local is the job of a process that berth itself knows by that pid.
func (a *Attribution) Local(pid int) (key string, ok bool) {
	key, ok, _ = a.owner(pid, false)
	return key, ok
}

func (a *Attribution) owner(pid int, doubtful bool) (key string, ok bool, known bool) {
	if pid <= 0 {
		return "", false, false
	}
	p, err := a.world.process(pid)
	if err != nil {
		return "", false, gone(err) && !doubtful
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	id := processKey{p.PID, p.Start, doubtful}
	if key, ok = a.known[id]; ok {
		return key, true, true
	}
	now := a.world.now()
	if s, found := a.external[id]; found && now.Before(s.until) {
		return "", false, s.known
	}
	key, ok, pending := a.find(p)
	if doubtful && !a.world.believable(p, ok) {
		key, ok, known = "", false, false
	} else {
		known = !pending
	}
	a.remember(id, key, ok, unowned{known, now.Add(unownedFor)}, pending)
	return key, ok, known
}

func gone(err error) bool { return errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ESRCH) }

func (a *Attribution) remember(id processKey, key string, ok bool, s unowned, pending bool) {
	if len(a.known)+len(a.external) >= maxAnswers {
		clear(a.known)
		clear(a.external)
	}
	switch {
	case ok:
		a.known[id] = key
	case !pending:
		a.external[id] = s
	}
}

// find starts with what the process cannot change. pending means that the
// answer is on its way.
func (a *Attribution) find(p keep.Process) (key string, ok, pending bool) {
	path, container, users := a.world.cgroups(p.PID)
	if key, ok = a.byCgroup(path); ok {
		return key, true, false
	}
	for _, h := range a.holders {
		if h.Session > 0 && h.Session == p.Session {
			return h.Key, true, false
		}
	}
	if key, ok = a.byAncestry(p); ok {
		return key, true, false
	}
	if key, ok = a.byEnvironment(p.PID); ok {
		return key, true, false
	}
	if container == "" {
		return "", false, false
	}
	return a.byContainer(p, container, users)
}

func (a *Attribution) byCgroup(path string) (key string, ok bool) {
	if path == "" || a.world.mount == "" {
		return "", false
	}
	dir := strings.TrimSuffix(a.world.mount, "/") + path
	for _, h := range a.holders {
		if h.Cgroup != "" && (dir == h.Cgroup || strings.HasPrefix(dir, h.Cgroup+"/")) {
			return h.Key, true
		}
	}
	return "", false
}

// byAncestry climbs from the process to a supervisor or an adopted process,
// whichever is nearer. A supervisor itself belongs to no job.
func (a *Attribution) byAncestry(p keep.Process) (key string, ok bool) {
	for range maxAncestors {
		for _, h := range a.holders {
			if h.KeepPID > 0 && h.KeepPID == p.Parent || h.Root.PID > 0 && h.Root == (job.Process{PID: p.PID, Start: p.Start}) {
				return h.Key, true
			}
		}
		if p.Parent <= 1 {
			return "", false
		}
		parent, err := a.world.process(p.Parent)
		if err != nil {
			return "", false
		}
		p = parent
	}
	return "", false
}

// cgroups is a process's path in the version 2 hierarchy, and its container
// according to containerIn.
func (w world) cgroups(pid int) (path, container string, users bool) {
	text, err := os.ReadFile(w.file(pid, "cgroup"))
	if err != nil {
		return "", "", false
	}
	path, _ = unifiedPath(string(text))
	container, users = containerIn(string(text))
	return path, container, users
}

func (w world) file(pid int, name string) string {
	return filepath.Join(w.proc, strconv.Itoa(pid), name)
}
