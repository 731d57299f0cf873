package site

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// rank is how specifically a line of limits.conf names the user. A more
// specific line wins, whatever the order.
type rank int

const (
	none     rank = iota // the value at the start of a session
	everyone             // *
	theGroup             // @group
	theUser              // the user's name or id
)

// rules apply limits.conf to one user.
type rules struct {
	user       User
	groups     groupLookup
	nofile     uint64
	base       []Rlimit
	limits     []Rlimit
	soft, hard []rank
	exempt     bool // a line exempts this user from all limits
}

func newRules(user User, base []Rlimit, nofile uint64, groups groupLookup) *rules {
	return &rules{
		user: user, groups: groups, nofile: nofile, base: base, limits: slices.Clone(base),
		soft: make([]rank, len(base)), hard: make([]rank, len(base)),
	}
}

// apply takes in one file. Like a login, it skips a line it cannot read; a
// group lookup that fails is an error.
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

// rankOf is how specifically a domain names the user, or none. Only lines with
// root's own name limit root.
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

// inGroup takes the name of a group, the id of any group, or a range of ids
// for the primary group.
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
		return
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

var errBadValue = errors.New("not the value of a limit")

// value converts a line's units into the kernel's.
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
	// As at login, anything after the number is ignored, and a number that is
	// too large becomes the largest one.
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

// result lowers soft limits to their hard limits, as the kernel requires.
func (r *rules) result() []Rlimit {
	if r.exempt {
		return r.base
	}
	for i, limit := range r.limits {
		r.limits[i].Soft = min(limit.Soft, limit.Hard)
	}
	return r.limits
}
