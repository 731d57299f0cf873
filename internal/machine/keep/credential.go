package keep

import (
	"fmt"
	"path/filepath"
	"strconv"
	"strings"
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

// credentialOf reads them back. An order has a complete user or none.
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
