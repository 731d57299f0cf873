package run

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// byEnvironment knows a job by the token in a process's environment. That is no
// secret, since it is in the supervisor's command line and in the cgroup's name,
// and anybody can write it into an environment of their own. So the process has
// to be the job's user's, or root's.
func (a *Attribution) byEnvironment(pid int) (key string, ok bool) {
	value, found := a.world.token(pid)
	if !found {
		return "", false
	}
	if !a.world.root {
		return a.byToken(value, func(Holder) bool { return true })
	}
	uid, known := realUser(a.world.proc, pid)
	return a.byToken(value, func(h Holder) bool { return known && (uid == h.UID || uid == 0) })
}

// byToken knows a job by its token. A supervisor's next job has the same one, so
// the job is looked at as well.
func (a *Attribution) byToken(value string, mayBe func(Holder) bool) (key string, ok bool) {
	for _, h := range a.holders {
		rest, found := strings.CutPrefix(value, h.Token)
		if h.Token != "" && found && (rest == "" || strings.HasPrefix(rest, ":"+h.Key+":")) && mayBe(h) {
			return h.Key, true
		}
	}
	return "", false
}

func (w world) token(pid int) (value string, ok bool) {
	environ, err := os.ReadFile(w.file(pid, "environ"))
	if err != nil {
		return "", false
	}
	return tokenIn(environ)
}

// realUser is whom the kernel counts the process as: a program that runs as its
// file's owner is still whoever started it.
func realUser(proc string, pid int) (uid int, ok bool) {
	status, err := os.ReadFile(filepath.Join(proc, strconv.Itoa(pid), "status"))
	if err != nil {
		return 0, false
	}
	for line := range strings.Lines(string(status)) {
		if value, found := strings.CutPrefix(line, "Uid:"); found {
			fields := strings.Fields(value)
			if len(fields) == 0 {
				return 0, false
			}
			uid, err = strconv.Atoi(fields[0])
			return uid, err == nil
		}
	}
	return 0, false
}
