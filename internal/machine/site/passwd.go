package site

import (
	"bufio"
	"cmp"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"berth/internal/text"
)

// User is one entry of the user database, with all groups.
type User struct {
	Name   string
	UID    int
	GID    int
	Groups []int // supplementary, sorted, including the primary group
	Home   string
	Shell  string
	At     time.Time // when it was looked up

	as Edition // of the files then
}

// ErrUnknownUser means that the user database answered: there is no such user.
// Any other error means that it could not answer.
var ErrUnknownUser = errors.New("no such user")

// errNoEntry means that the databases that were asked have no such entry.
var errNoEntry = errors.New("no such entry")

// maxID is the largest user or group id; to the kernel the next one means
// "unchanged".
const maxID = 1<<32 - 2

func parseID(written string) (int, error) {
	id, err := strconv.ParseUint(written, 10, 32)
	if err != nil || id > maxID {
		return 0, fmt.Errorf("expected a user or group id, found %q", text.Said(written))
	}
	return int(id), nil
}

// parsePasswd reads one line of the passwd format.
func parsePasswd(line string) (User, error) {
	fields := strings.Split(strings.TrimSuffix(line, "\n"), ":")
	if len(fields) != 7 || fields[0] == "" {
		return User{}, fmt.Errorf("expected a passwd entry, found %q", text.Said(line))
	}
	uid, err := parseID(fields[2])
	if err != nil {
		return User{}, fmt.Errorf("user %s: %w", text.Said(fields[0]), err)
	}
	gid, err := parseID(fields[3])
	if err != nil {
		return User{}, fmt.Errorf("user %s: %w", text.Said(fields[0]), err)
	}
	user := User{Name: fields[0], UID: uid, GID: gid, Home: fields[5], Shell: fields[6]}
	user.Home = cmp.Or(user.Home, "/")
	user.Shell = cmp.Or(user.Shell, "/bin/sh")
	return user, nil
}

// group is one entry of the group database.
type group struct {
	name    string
	gid     int
	members []string
}

func parseGroup(line string) (group, error) {
	fields := strings.Split(strings.TrimSuffix(line, "\n"), ":")
	if len(fields) != 4 || fields[0] == "" {
		return group{}, fmt.Errorf("expected a group entry, found %q", text.Said(line))
	}
	gid, err := parseID(fields[2])
	if err != nil {
		return group{}, fmt.Errorf("group %s: %w", text.Said(fields[0]), err)
	}
	members := strings.FieldsFunc(fields[3], func(r rune) bool { return r == ',' || r == ' ' })
	return group{name: fields[0], gid: gid, members: members}, nil
}

// checkKey refuses a name that would mean something else to getent or in the
// files: an option, a second line, another field.
func checkKey(key string) error {
	if key == "" || len(key) > 256 || strings.ContainsAny(key[:1], "-+ ") || strings.ContainsAny(key, ":\n\r\t\x00/,") {
		return fmt.Errorf("expected the name of a user or group, found %q", text.Said(key))
	}
	return nil
}

func isNumber(key string) bool {
	_, err := strconv.ParseUint(key, 10, 64)
	return err == nil
}

// eachLine visits the lines of a local database. Like the C library, it skips
// references to other services ("+name") and damaged lines.
func (m machine) eachLine(name string, visit func(line string) (stop bool)) error {
	file, err := os.Open(m.path(name))
	if err != nil {
		return fmt.Errorf("read the user database: %w", err)
	}
	defer file.Close()
	lines := bufio.NewScanner(file)
	lines.Buffer(nil, maxCommandOutput)
	for lines.Scan() {
		if visit(lines.Text()) {
			return nil
		}
	}
	if err := lines.Err(); err != nil {
		return fmt.Errorf("read %s: %w", name, err)
	}
	return nil
}

// passwdFile looks up a user in the local file, by id or name.
func (m machine) passwdFile(key string) (user User, err error) {
	found := false
	err = m.eachLine("/etc/passwd", func(line string) bool {
		entry, err := parsePasswd(line)
		if err == nil && (entry.Name == key || strconv.Itoa(entry.UID) == key) {
			user, found = entry, true
		}
		return found
	})
	if err == nil && !found {
		err = errNoEntry
	}
	return user, err
}

func (m machine) groupFile(key string) (entry group, err error) {
	found := false
	err = m.eachLine("/etc/group", func(line string) bool {
		g, err := parseGroup(line)
		if err == nil && (g.name == key || strconv.Itoa(g.gid) == key) {
			entry, found = g, true
		}
		return found
	})
	if err == nil && !found {
		err = errNoEntry
	}
	return entry, err
}

// groupsFile lists the groups of a user in the local file.
func (m machine) groupsFile(name string) (gids []int, err error) {
	err = m.eachLine("/etc/group", func(line string) bool {
		g, err := parseGroup(line)
		if err != nil {
			return false
		}
		for _, member := range g.members {
			if member == name {
				gids = append(gids, g.gid)
			}
		}
		return false
	})
	return gids, err
}
