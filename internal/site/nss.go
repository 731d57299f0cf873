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

// getent's exit status where the database has no such entry.
const getentNotFound = 2

// getent asks one of the system's databases for one entry. A static program
// has no way to the name services but the programs that are linked with them.
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
		return "", fmt.Errorf("getent %s: it printed nothing", database)
	}
	return line, nil
}

// passwd looks a user up by number or name, without groups.
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

// unknown decides what "no such entry" means. getent says the same when a
// service that might know the user could not be reached.
func (m machine) unknown(ctx context.Context, key string) error {
	if err := m.settled(ctx, "passwd"); err != nil {
		return fmt.Errorf("look up user %s: %w", key, err)
	}
	return fmt.Errorf("user %s: %w", key, ErrUnknownUser)
}

// user looks a user up with all groups, or fails: a user with too few groups
// would be another user.
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
	// The C library passes silently over a service that does not answer.
	if user.UID != 0 {
		if err := m.reachable(ctx, "group", "initgroups"); err != nil {
			return nil, err
		}
	}
	said, err := m.run(ctx, call{name: "getent", args: []string{"initgroups", user.Name}})
	if err == nil && said.exit == 0 {
		// The name may hold spaces where it comes from a directory service.
		list, found := strings.CutPrefix(strings.TrimSpace(said.stdout), user.Name)
		if !found {
			return nil, fmt.Errorf("getent initgroups: it answers %q", text.Said(said.stdout))
		}
		return parseGroups(list)
	}
	if err != nil && !errors.Is(err, errNotInstalled) {
		return nil, err
	}
	// Smaller C libraries have a getent that does not know initgroups.
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
		return nil, fmt.Errorf("%d groups are more than the kernel allows", len(words))
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

// groupNumber is the number of a group, by name; false: there is no such group.
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
	// A name of digits only is taken for a number by the databases' programs.
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

// byUID and byName make sure that the answer is to the question.
func (m machine) byUID(ctx context.Context, uid int) (User, error) {
	key := strconv.Itoa(uid)
	user, err := m.user(ctx, key)
	if err == nil && user.UID != uid {
		return User{}, fmt.Errorf("look up user %d: the user database answers with user %d", uid, user.UID)
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
