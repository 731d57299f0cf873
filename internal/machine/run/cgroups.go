package run

import (
	"log/slog"
	"os"
	"path/filepath"
	"sync"

	"golang.org/x/sys/unix"

	"berth/internal/machine/keep"
)

// Cgroups are those of one queue's jobs and helpers.
type Cgroups struct {
	Parent string // of the jobs' cgroups; "": they have none

	off   bool // switched off
	owned bool // this berth created the parent
	log   *slog.Logger

	probe sync.Once
	why   error // why device filters do not work here

	mu          sync.Mutex
	helpersWall string            // what the filter of helpers allows, as buildWall returned it
	older       map[string]string // directories of cgroup v1 by controller; "" where the host has none
}

func (c *Cgroups) open(parent string, log *slog.Logger) {
	c.Parent, c.log = parent, log
	switch parent {
	case "none":
		c.Parent, c.off = "", true
	case "":
		c.Parent = detectCgroup()
		c.owned = c.Parent != ""
	default:
		if err := os.Mkdir(parent, 0o755); err != nil && !os.IsExist(err) {
			log.Warn("cannot create the jobs' cgroup", "error", err)
		}
		enableControllers(parent, true)
	}
}

// limit is the version 1 directory for a limit that version 2 cannot enforce, or "".
// It is looked up when it is first needed.
func (c *Cgroups) limit(controller string) string {
	c.mu.Lock()
	defer c.mu.Unlock()
	dir, looked := c.older[controller]
	if !looked && !c.off {
		dir, _ = detectV1(controller)
		if c.older == nil {
			c.older = map[string]string{}
		}
		c.older[controller] = dir
	}
	return dir
}

func (c *Cgroups) eachOlder(do func(dir string)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, dir := range c.older {
		if dir != "" {
			do(dir)
		}
	}
}

// drop removes the cgroups of a dead supervisor's job. The kernel keeps any that
// has a process, and a later berth removes it.
func (c *Cgroups) drop(record keep.Record) {
	if record.Cgroup != "" {
		_ = keep.RemoveCgroup(record.Cgroup)
	}
	if record.Token != "" {
		c.eachOlder(func(dir string) { _ = keep.RemoveCgroup(filepath.Join(dir, record.Token)) })
	}
}

// close removes what is empty. The kernel keeps the directories in use, and a later
// berth removes them.
func (c *Cgroups) close() {
	if c.Parent != "" {
		_ = keep.RemoveCgroup(filepath.Join(c.Parent, helperWalls+keep.FilteredSuffix))
	}
	if c.owned {
		_ = unix.Rmdir(c.Parent)
	}
	c.eachOlder(func(dir string) { unix.Rmdir(dir) })
}
