package keep

import (
	"fmt"
	"path/filepath"
	"strconv"
	"strings"
)

// Credential is whom a job runs as. Only a supervisor of root's can become
// somebody else; without one a job runs as its supervisor does, with the
// limits and the mask that berth itself was started with.
type Credential struct {
	UID, GID int
	Groups   []int // all supplementary groups, and no others
	Rlimits  []Rlimit
	Umask    int    // -1: as it is
	Home     string // becomes HOME where the environment has none
}

// Rlimit is one resource limit. Unlimited is Infinity.
type Rlimit struct {
	Resource   int // as in setrlimit
	Soft, Hard uint64
}

// Infinity is a limit that limits nothing.
const Infinity = ^uint64(0)

// What the kernel has room for.
const (
	maxID       = 1<<32 - 2
	maxGroups   = 65536
	maxResource = 15
)

// check refuses what no process could be given.
func (c *Credential) check() error {
	switch {
	case !isID(c.UID) || !isID(c.GID):
		return fmt.Errorf("no user %d:%d", c.UID, c.GID)
	case len(c.Groups) > maxGroups:
		return fmt.Errorf("%d groups, at most %d", len(c.Groups), maxGroups)
	case c.Umask < -1 || c.Umask > 0o777:
		return fmt.Errorf("no umask %d", c.Umask)
	}
	for _, gid := range c.Groups {
		if !isID(gid) {
			return fmt.Errorf("no group %d", gid)
		}
	}
	for _, limit := range c.Rlimits {
		if limit.Resource < 0 || limit.Resource > maxResource || limit.Soft > limit.Hard {
			return fmt.Errorf("no limit %+v", limit)
		}
	}
	return nil
}

func isID(n int) bool { return n >= 0 && n <= maxID }

// checkFiles refuses paths that would depend on where the supervisor is.
func (o Order) checkFiles() error {
	if !filepath.IsAbs(o.Dir) || !filepath.IsAbs(o.Log) {
		return fmt.Errorf("directory %q and log %q must be whole paths", o.Dir, o.Log)
	}
	return nil
}

// fields is the credential as an order carries it; nil has none.
func (c *Credential) fields() []Field {
	if c == nil {
		return nil
	}
	fields := []Field{
		{"uid", strconv.Itoa(c.UID)}, {"gid", strconv.Itoa(c.GID)},
		{"umask", strconv.Itoa(c.Umask)}, {"home", c.Home},
	}
	for _, gid := range c.Groups {
		fields = append(fields, Field{"group", strconv.Itoa(gid)})
	}
	for _, l := range c.Rlimits {
		fields = append(fields, Field{"rlimit", fmt.Sprintf("%d %d %d", l.Resource, l.Soft, l.Hard)})
	}
	return fields
}

// credentialOf reads them back. An order either names a user whole or none.
func credentialOf(f Frame) (*Credential, error) {
	if f.Get("uid") == "" && f.Get("gid") == "" {
		return nil, nil
	}
	c := &Credential{Home: strings.Clone(f.Get("home"))}
	var err error
	number := func(text string) int {
		n, parseErr := strconv.Atoi(text)
		if parseErr != nil && err == nil {
			err = fmt.Errorf("%w: credential: %w", ErrFrame, parseErr)
		}
		return n
	}
	c.UID, c.GID, c.Umask = number(f.Get("uid")), number(f.Get("gid")), number(f.Get("umask"))
	for _, gid := range f.all("group") {
		c.Groups = append(c.Groups, number(gid))
	}
	for _, text := range f.all("rlimit") {
		var l Rlimit
		if _, scanErr := fmt.Sscanf(text, "%d %d %d", &l.Resource, &l.Soft, &l.Hard); scanErr != nil {
			return nil, fmt.Errorf("%w: rlimit %q", ErrFrame, text)
		}
		c.Rlimits = append(c.Rlimits, l)
	}
	return c, err
}
