package site

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// A line of limits.conf counts over another by how closely it names the user,
// whatever their order.
type rank int

const (
	none     rank = iota // what the session begins with
	everyone             // *
	theGroup             // @group
	theUser              // the user's name or number
)

// rules apply limits.conf to one user.
type rules struct {
	user       User
	groups     groupLookup
	nofile     uint64
	base       []Rlimit
	limits     []Rlimit
	soft, hard []rank
	exempt     bool // a line says that no limits are set for this user
}

func newRules(user User, base []Rlimit, nofile uint64, groups groupLookup) *rules {
	return &rules{
		user: user, groups: groups, nofile: nofile, base: base, limits: slices.Clone(base),
		soft: make([]rank, len(base)), hard: make([]rank, len(base)),
	}
}

// apply takes in one file. A line that cannot be read is passed over, as it is
// at login; a group that cannot be looked up is not.
func (r *rules) apply(text string) error {
	for line := range strings.Lines(text) {
		line, _, _ = strings.Cut(line, "#")
		fields := strings.Fields(line)
		if len(fields) != 2 && len(fields) < 4 {
			continue
		}
		kind := strings.ToLower(fields[1])
		matches, err := r.rankOf(fields[0])
		if err != nil {
			return err
		}
		switch {
		case matches == none || r.exempt:
		case len(fields) == 2:
			r.exempt = kind == "-" && matches > everyone
		default:
			r.set(matches, kind, strings.ToLower(fields[2]), strings.ToLower(fields[3]))
		}
	}
	return nil
}

// rankOf says how closely a domain names the user, or that it does not. Only
// root's own name limits root.
func (r *rules) rankOf(domain string) (rank, error) {
	switch {
	case domain == r.user.Name:
		return theUser, nil
	case r.user.UID == 0:
		return none, nil
	case domain == "*":
		return everyone, nil
	case strings.HasPrefix(domain, "@"):
		in, err := r.inGroup(domain[1:])
		if in {
			return theGroup, err
		}
		return none, err
	}
	if low, high, ok := parseRange(domain); ok && low <= r.user.UID && r.user.UID <= high {
		return theUser, nil
	}
	return none, nil
}

// inGroup takes a name, the number of any group, or a range for the primary
// one.
func (r *rules) inGroup(domain string) (bool, error) {
	if low, high, ok := parseRange(domain); ok {
		exactly := strings.HasPrefix(domain, ":") && slices.Contains(r.user.Groups, low)
		return exactly || low <= r.user.GID && r.user.GID <= high, nil
	}
	if checkKey(domain) != nil {
		return false, nil
	}
	gid, known, err := r.groups(context.Background(), domain)
	if err != nil || !known {
		return false, err
	}
	return gid == r.user.GID || slices.Contains(r.user.Groups, gid), nil
}

// parseRange reads "low:high", "low:" and ":exactly".
func parseRange(text string) (low, high int, ok bool) {
	first, second, found := strings.Cut(text, ":")
	if !found || first == "" && second == "" {
		return 0, 0, false
	}
	low, high = 0, maxID
	var err, secondErr error
	if first != "" {
		low, err = parseID(first)
	}
	if second != "" {
		high, secondErr = parseID(second)
	}
	if first == "" {
		low = high
	}
	return low, high, err == nil && secondErr == nil
}

// set applies one line.
func (r *rules) set(matches rank, kind, item, text string) {
	resource := slices.IndexFunc(limitNames, func(n struct{ proc, conf, systemd string }) bool { return n.conf == item })
	if resource < 0 {
		return // maxlogins, priority and others say nothing about a limit
	}
	value, err := r.value(resource, text)
	if err != nil {
		return
	}
	if (kind == "soft" || kind == "-") && matches >= r.soft[resource] {
		r.limits[resource].Soft, r.soft[resource] = value, matches
	}
	if (kind == "hard" || kind == "-") && matches >= r.hard[resource] {
		r.limits[resource].Hard, r.hard[resource] = value, matches
	}
}

var errBadValue = errors.New("not a value of a limit")

// value turns a line's units into the kernel's.
func (r *rules) value(resource int, text string) (uint64, error) {
	if resource == unix.RLIMIT_NICE {
		nice, err := strconv.Atoi(text)
		if err != nil {
			return 0, errBadValue
		}
		return uint64(20 - min(max(nice, -20), 19)), nil
	}
	if slices.Contains([]string{"-1", "unlimited", "infinity"}, text) {
		if resource == unix.RLIMIT_NOFILE {
			return r.nofile, nil
		}
		return unlimited, nil
	}
	// What follows the number is not looked at, and one that is too large is
	// the largest there is.
	digits := len(text) - len(strings.TrimLeft(text, "0123456789"))
	value, err := strconv.ParseUint(text[:digits], 10, 64)
	if err != nil && !errors.Is(err, strconv.ErrRange) {
		return 0, errBadValue
	}
	unit := uint64(1)
	switch resource {
	case unix.RLIMIT_CPU:
		unit = 60
	case unix.RLIMIT_FSIZE, unix.RLIMIT_DATA, unix.RLIMIT_STACK, unix.RLIMIT_CORE, unix.RLIMIT_RSS, unix.RLIMIT_MEMLOCK, unix.RLIMIT_AS:
		unit = 1024
	case unix.RLIMIT_NOFILE:
		return min(value, r.nofile), nil // the kernel refuses more
	}
	if value > unlimited/unit {
		return unlimited, nil
	}
	return value * unit, nil
}

// result is what the kernel accepts: no soft limit above its hard one.
func (r *rules) result() []Rlimit {
	if r.exempt {
		return r.base
	}
	for i, limit := range r.limits {
		r.limits[i].Soft = min(limit.Soft, limit.Hard)
	}
	return r.limits
}
