package run

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// byEnvironment recognises a job by the token in a process's environment. The
// token is not secret: it is in the supervisor's command line and the cgroup's
// name, and any user can put it into an environment. So the process has to run
// as the job's user, or as root.
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

// byToken recognises a job by its token. A supervisor's next job has the same
// one, so the job is compared as well.
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

// realUser is the real user of a process: a setuid program still belongs to
// the user who started it.
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
