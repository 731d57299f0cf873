package site

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
)

// Places are where a berth keeps its things.
type Places struct {
	StateDir string
	Socket   string
	Config   string
	Shared   bool // one daemon, started as root, for all users
}

// SharedPlaces are those of the machine's own daemon.
func SharedPlaces() Places {
	return Places{StateDir: "/var/lib/berth", Socket: "/run/berth/berth.sock", Config: "/etc/berth/config.toml", Shared: true}
}

// PrivatePlaces are those of a user's own daemon. Its socket lies with its
// state and not in the user's runtime directory, which is gone after a logout
// that the jobs outlive.
func PrivatePlaces(getenv func(string) string) (Places, error) {
	return here().privatePlaces(getenv)
}

func (m machine) privatePlaces(getenv func(string) string) (Places, error) {
	// A relative path would mean another place in every directory.
	state, config := getenv("XDG_STATE_HOME"), getenv("XDG_CONFIG_HOME")
	if !filepath.IsAbs(state) || !filepath.IsAbs(config) {
		home, err := m.home(getenv)
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

// home is the user's, from the user database where the environment says
// nothing: cron and containers start programs without one.
func (m machine) home(getenv func(string) string) (string, error) {
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

// SelfDir is the directory of this program, or "" where that is not known.
func SelfDir() string {
	path, err := os.Executable()
	if err != nil {
		return ""
	}
	return filepath.Dir(path)
}
