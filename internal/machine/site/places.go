package site

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
)

// Places are the directories and files of a daemon.
type Places struct {
	StateDir string
	Socket   string
	Config   string
	Shared   bool // one daemon for all users, started as root
}

// elsewhere is the directory that the places of the machine are in. Only programs that
// are built for tests have one: a daemon that runs on this machine, or is installed, is
// not theirs.
var elsewhere string

// SharedPlaces are those of the shared daemon.
func SharedPlaces() Places {
	return Places{StateDir: elsewhere + "/var/lib/berth", Socket: elsewhere + "/run/berth/berth.sock", Config: elsewhere + "/etc/berth/config.toml", Shared: true}
}

// PrivatePlaces are those of a user's own daemon. Its socket is in the state
// directory, not the runtime directory: that one is removed at logout, and
// jobs may outlive a logout.
func PrivatePlaces(getenv func(string) string) (Places, error) {
	return privatePlaces(here(), getenv)
}

func privatePlaces(m machine, getenv func(string) string) (Places, error) {
	// A relative path would depend on the working directory.
	state, config := getenv("XDG_STATE_HOME"), getenv("XDG_CONFIG_HOME")
	if !filepath.IsAbs(state) || !filepath.IsAbs(config) {
		home, err := homeDir(m, getenv)
		if err != nil {
			return Places{}, err
		}
		if !filepath.IsAbs(state) {
			state = filepath.Join(home, ".local", "state")
		}
		if !filepath.IsAbs(config) {
			config = filepath.Join(home, ".config")
		}
	}
	dir := filepath.Join(state, "berth")
	return Places{StateDir: dir, Socket: filepath.Join(dir, "berth.sock"), Config: filepath.Join(config, "berth", "config.toml")}, nil
}

// homeDir is the user's home directory. Without HOME, as under cron and in
// containers, it comes from the user database.
func homeDir(m machine, getenv func(string) string) (string, error) {
	if home := getenv("HOME"); filepath.IsAbs(home) {
		return home, nil
	}
	user, err := m.passwd(context.Background(), fmt.Sprint(m.uid))
	if err != nil {
		return "", fmt.Errorf("HOME is not set, and the home directory of user %d cannot be looked up: %w", m.uid, err)
	}
	if !filepath.IsAbs(user.Home) {
		return "", fmt.Errorf("HOME is not set, and user %d has no home directory", m.uid)
	}
	return user.Home, nil
}

// SelfDir is the directory of this program, or "" if unknown.
func SelfDir() string {
	path, err := os.Executable()
	if err != nil {
		return ""
	}
	return filepath.Dir(path)
}
