package site

import (
	"os"
	"path/filepath"
	"strings"
)

// machine is the host as this package sees it. Tests replace it with a
// directory instead of /, and a fake for every program.
type machine struct {
	root string // prefix of every absolute path; "" for the real machine
	run  runner
	uid  int // effective uid of this process
	pid  int
}

func here() machine { return machine{run: runCommand, uid: os.Geteuid(), pid: os.Getpid()} }

func (m machine) path(name string) string {
	if m.root == "" {
		return name
	}
	return filepath.Join(m.root, name)
}

// read is the text of a small system file, or "" if it cannot be read.
func (m machine) read(name string) string {
	text, err := os.ReadFile(m.path(name))
	if err != nil {
		return ""
	}
	return string(text)
}

func (m machine) exists(name string) bool {
	_, err := os.Stat(m.path(name))
	return err == nil
}

// hasSystemd reports whether systemd is process 1, in the way its own
// libraries do.
func (m machine) hasSystemd() bool {
	info, err := os.Lstat(m.path("/run/systemd/system"))
	return err == nil && info.IsDir()
}

// settings reads the assignments in one section of a file in systemd's format.
// The last one of a name counts.
func settings(text, section string) map[string]string {
	values, current := make(map[string]string), ""
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if strings.HasPrefix(line, "[") && strings.HasSuffix(line, "]") {
			current = line[1 : len(line)-1]
			continue
		}
		name, value, found := strings.Cut(line, "=")
		if !found || current != section || strings.ContainsAny(line[:1], "#;") {
			continue
		}
		values[strings.TrimSpace(name)] = strings.TrimSpace(value)
	}
	return values
}
