package site

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"berth/internal/text"
)

// getentNotFound is getent's exit status for a missing entry.
const getentNotFound = 2

// getent looks up one entry of a system database. A static program reaches the
// name services only through programs that are linked with them.
func (m machine) getent(ctx context.Context, database, key string) (string, error) {
	said, err := m.run(ctx, call{name: "getent", args: []string{database, key}})
	if err != nil {
		return "", err
	}
	line, _, _ := strings.Cut(said.stdout, "\n")
	switch {
	case said.exit == getentNotFound:
		return "", errNoEntry
	case said.exit != 0:
		return "", fmt.Errorf("getent %s: status %d: %s", database, said.exit, said.firstLine())
	case line == "":
		return "", fmt.Errorf("getent %s: no output", database)
	}
	return line, nil
}

// passwd looks up a user by id or name, without groups.
func (m machine) passwd(ctx context.Context, key string) (User, error) {
	if err := checkKey(key); err != nil {
		return User{}, fmt.Errorf("%w: %w", ErrUnknownUser, err)
	}
	user, err := m.passwdEntry(ctx, key)
	if errors.Is(err, errNoEntry) {
		return User{}, m.unknown(ctx, key)
	}
	if err != nil {
		return User{}, fmt.Errorf("look up user %s: %w", key, err)
	}
	return user, nil
}

func (m machine) passwdEntry(ctx context.Context, key string) (User, error) {
	line, err := m.getent(ctx, "passwd", key)
	if errors.Is(err, errNotInstalled) {
		return m.passwdFile(key)
	}
	if err != nil {
		return User{}, err
	}
	return parsePasswd(line)
}

// unknown decides what "no such entry" means: getent says the same if a
// service that might know the user could not be reached.
func (m machine) unknown(ctx context.Context, key string) error {
	if err := m.settled(ctx, "passwd"); err != nil {
		return fmt.Errorf("look up user %s: %w", key, err)
	}
	return fmt.Errorf("user %s: %w", key, ErrUnknownUser)
}

// user looks up a user with all groups, or fails: a user with groups missing
// would have other permissions.
func (m machine) user(ctx context.Context, key string) (User, error) {
	user, err := m.passwd(ctx, key)
	if err != nil {
		return User{}, err
	}
	groups, err := m.groupsOf(ctx, user)
	if err != nil {
		return User{}, fmt.Errorf("look up the groups of user %s: %w", user.Name, err)
	}
	groups = append(groups, user.GID)
	slices.Sort(groups)
	user.Groups = slices.Compact(groups)
	return user, nil
}

func (m machine) groupsOf(ctx context.Context, user User) ([]int, error) {
	// The C library silently skips a service that does not answer.
	if user.UID != 0 {
		if err := m.reachable(ctx, "group", "initgroups"); err != nil {
			return nil, err
		}
	}
	said, err := m.run(ctx, call{name: "getent", args: []string{"initgroups", user.Name}})
	if err == nil && said.exit == 0 {
		// A name from a directory service may contain spaces.
		list, found := strings.CutPrefix(strings.TrimSpace(said.stdout), user.Name)
		if !found {
			return nil, fmt.Errorf("getent initgroups: unexpected output %q", text.Said(said.stdout))
		}
		return parseGroups(list)
	}
	if err != nil && !errors.Is(err, errNotInstalled) {
		return nil, err
	}
	// The getent of smaller C libraries lacks initgroups.
	said, err = m.run(ctx, call{name: "id", args: []string{"-G", user.Name}})
	switch {
	case errors.Is(err, errNotInstalled):
		return m.groupsFile(user.Name)
	case err != nil:
		return nil, err
	case said.exit != 0:
		return nil, fmt.Errorf("id -G: status %d: %s", said.exit, said.firstLine())
	}
	return parseGroups(said.stdout)
}

// maxGroups is the kernel's bound on supplementary groups.
const maxGroups = 65536

func parseGroups(list string) ([]int, error) {
	words := strings.Fields(list)
	if len(words) > maxGroups {
		return nil, fmt.Errorf("expected at most %d groups, found %d", maxGroups, len(words))
	}
	gids := make([]int, 0, len(words)+1)
	for _, word := range words {
		gid, err := parseID(word)
		if err != nil {
			return nil, err
		}
		gids = append(gids, gid)
	}
	return gids, nil
}

// groupNumber is the id of a group, or false if there is no such group.
func (m machine) groupNumber(ctx context.Context, name string) (int, bool, error) {
	if err := checkKey(name); err != nil {
		return 0, false, err
	}
	entry, err := m.groupEntry(ctx, name)
	if errors.Is(err, errNoEntry) {
		if err := m.settled(ctx, "group"); err != nil {
			return 0, false, fmt.Errorf("look up group %s: %w", name, err)
		}
		return 0, false, nil
	}
	if err != nil {
		return 0, false, fmt.Errorf("look up group %s: %w", name, err)
	}
	// getent takes a name made of digits for an id.
	if isNumber(name) && entry.name != name {
		return 0, false, nil
	}
	return entry.gid, true, nil
}

func (m machine) groupEntry(ctx context.Context, name string) (group, error) {
	line, err := m.getent(ctx, "group", name)
	if errors.Is(err, errNotInstalled) {
		return m.groupFile(name)
	}
	if err != nil {
		return group{}, err
	}
	return parseGroup(line)
}

// byUID and byName check that the entry is the one asked for.
func (m machine) byUID(ctx context.Context, uid int) (User, error) {
	key := strconv.Itoa(uid)
	user, err := m.user(ctx, key)
	if err == nil && user.UID != uid {
		return User{}, fmt.Errorf("look up user %d: the user database returned user %d", uid, user.UID)
	}
	return user, err
}

func (m machine) byName(ctx context.Context, name string) (User, error) {
	user, err := m.user(ctx, name)
	if err == nil && isNumber(name) && user.Name != name {
		return User{}, fmt.Errorf("user %s: %w", name, ErrUnknownUser)
	}
	return user, err
}
