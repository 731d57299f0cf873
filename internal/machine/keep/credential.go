package keep

import (
	"fmt"
	"path/filepath"
	"strconv"
)

// Credential is the user a job runs as. Only a supervisor that is root can
// change users. Without one, a job runs as its supervisor does, with berth's
// own limits and umask.
type Credential struct {
	UID, GID int
	Groups   []int // all supplementary groups, and no others
	Rlimits  []Rlimit
	Umask    int    // -1: unchanged
	Home     string // becomes HOME if the environment has none
}

// Rlimit is one resource limit. Unlimited is Infinity.
type Rlimit struct {
	Resource   int // as in setrlimit
	Soft, Hard uint64
}

// Infinity is the absence of a limit.
const Infinity = ^uint64(0)

// The kernel's bounds.
const (
	maxID       = 1<<32 - 2
	maxGroups   = 65536
	maxResource = 15
)

// check refuses values that no process can have.
func (c *Credential) check() error {
	switch {
	case !isID(c.UID) || !isID(c.GID):
		return fmt.Errorf("expected a user and a group, found %d:%d", c.UID, c.GID)
	case len(c.Groups) > maxGroups:
		return fmt.Errorf("expected at most %d groups, found %d", maxGroups, len(c.Groups))
	case c.Umask < -1 || c.Umask > 0o777:
		return fmt.Errorf("expected a umask, found %d", c.Umask)
	}
	for _, gid := range c.Groups {
		if !isID(gid) {
			return fmt.Errorf("expected a group, found %d", gid)
		}
	}
	for _, limit := range c.Rlimits {
		if limit.Resource < 0 || limit.Resource > maxResource || limit.Soft > limit.Hard {
			return fmt.Errorf("expected a resource limit, found %+v", limit)
		}
	}
	return nil
}

func isID(n int) bool { return n >= 0 && n <= maxID }

// checkFiles refuses paths that would depend on the supervisor's directory.
func (o Order) checkFiles() error {
	if !filepath.IsAbs(o.Dir) || !filepath.IsAbs(o.Log) && !o.Helper {
		return fmt.Errorf("expected absolute paths, found directory %q and log %q", o.Dir, o.Log)
	}
	return nil
}

// passCredential passes the credential of an order, which has a complete user or
// none.
func passCredential(c *codec, to **Credential) {
	if c.reading && (c.has("uid") || c.has("gid")) {
		*to = &Credential{}
	}
	o := *to
	if o == nil {
		return
	}
	c.strict = true
	c.int("uid", &o.UID)
	c.int("gid", &o.GID)
	c.int("umask", &o.Umask)
	c.strict = false
	c.text("home", &o.Home)
	groups, limits := make([]string, len(o.Groups)), make([]string, len(o.Rlimits))
	for i, gid := range o.Groups {
		groups[i] = strconv.Itoa(gid)
	}
	for i, l := range o.Rlimits {
		limits[i] = fmt.Sprintf("%d %d %d", l.Resource, l.Soft, l.Hard)
	}
	c.texts("group", &groups)
	c.texts("rlimit", &limits)
	if !c.reading {
		return
	}
	for _, text := range groups {
		gid, err := strconv.Atoi(text)
		c.fail("group", err)
		o.Groups = append(o.Groups, gid)
	}
	for _, text := range limits {
		var l Rlimit
		_, err := fmt.Sscanf(text, "%d %d %d", &l.Resource, &l.Soft, &l.Hard)
		c.fail("rlimit", err)
		o.Rlimits = append(o.Rlimits, l)
	}
}
