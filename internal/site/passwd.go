package site

import (
	"bufio"
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
	Groups []int // supplementary, sorted, the primary one among them
	Home   string
	Shell  string
	At     time.Time // when the database said so
}

// ErrUnknownUser says that the user database has answered: there is no such
// user. Any other error means that it could not answer.
var ErrUnknownUser = errors.New("no such user")

// errNoEntry is a database that has no such entry, as far as it was asked.
var errNoEntry = errors.New("no such entry")

// maxID is the largest user or group number; the one above it means "none" to
// the kernel.
const maxID = 1<<32 - 2

func parseID(written string) (int, error) {
	id, err := strconv.ParseUint(written, 10, 32)
	if err != nil || id > maxID {
		return 0, fmt.Errorf("%q is no user or group number", text.Said(written))
	}
	return int(id), nil
}

// parsePasswd reads one line of the passwd format.
func parsePasswd(line string) (User, error) {
	fields := strings.Split(strings.TrimSuffix(line, "\n"), ":")
	if len(fields) != 7 || fields[0] == "" {
		return User{}, fmt.Errorf("%q is no entry of a user", text.Said(line))
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
	if user.Home == "" {
		user.Home = "/"
	}
	if user.Shell == "" {
		user.Shell = "/bin/sh"
	}
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
		return group{}, fmt.Errorf("%q is no entry of a group", text.Said(line))
	}
	gid, err := parseID(fields[2])
	if err != nil {
		return group{}, fmt.Errorf("group %s: %w", text.Said(fields[0]), err)
	}
	members := strings.FieldsFunc(fields[3], func(r rune) bool { return r == ',' || r == ' ' })
	return group{name: fields[0], gid: gid, members: members}, nil
}

// checkKey refuses what would mean something else to the programs that are
// asked: an option, a second line, another field.
func checkKey(key string) error {
	if key == "" || len(key) > 256 || strings.ContainsAny(key[:1], "-+ ") || strings.ContainsAny(key, ":\n\r\t\x00/,") {
		return fmt.Errorf("%q cannot be the name of a user or group", text.Said(key))
	}
	return nil
}

func isNumber(key string) bool {
	_, err := strconv.ParseUint(key, 10, 64)
	return err == nil
}

// eachLine visits the lines of a local database. Lines of other services
// ("+name") and damaged ones are passed over, as the C library does.
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

// passwdFile looks a user up in the local file, by number or by name.
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
