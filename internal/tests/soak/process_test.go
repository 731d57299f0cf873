package soak

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// process is a living process of a site.
type process struct {
	pid   int
	words []string // of its command line
	token string   // BERTH_TOKEN: supervisor, job and attempt
	keep  bool     // it is a supervisor
}

func (p process) String() string {
	return fmt.Sprintf("%d %s %s", p.pid, p.token, strings.Join(p.words, " "))
}

// processes lists what lives of a site: jobs and all they started, by the
// environment they inherited; supervisors, whose environment is their own, by
// the files they hold open.
func (s *site) processes() []process {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		s.t.Fatal(err)
	}
	var found []process
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		if p, ours := s.process(pid); ours {
			found = append(found, p)
		}
	}
	return found
}

func (s *site) process(pid int) (p process, ours bool) {
	dir := "/proc/" + strconv.Itoa(pid)
	// A zombie has neither environment nor program.
	if _, err := os.Readlink(dir + "/exe"); err != nil {
		return p, false
	}
	p.pid = pid
	if isKeep(dir) {
		ours = holdsFileBelow(dir, s.dir)
		// A job that has been forked and is not a program of its own yet looks
		// like its supervisor in every other respect.
		p.keep = !isKeep("/proc/" + parentOf(dir))
	}
	environ, _ := os.ReadFile(dir + "/environ")
	for entry := range bytes.SplitSeq(environ, []byte{0}) {
		name, value, _ := strings.Cut(string(entry), "=")
		ours = ours || name == "SOAK" && value == s.dir
		if name == "BERTH_TOKEN" {
			p.token = value
		}
	}
	cmdline, _ := os.ReadFile(dir + "/cmdline")
	p.words = strings.Split(strings.TrimSuffix(string(cmdline), "\x00"), "\x00")
	return p, ours
}

func isKeep(proc string) bool {
	program, _ := os.Readlink(proc + "/exe")
	return filepath.Base(program) == "berth-keep"
}

// parentOf is the number of a process's parent.
func parentOf(proc string) string {
	status, _ := os.ReadFile(proc + "/status")
	for line := range strings.Lines(string(status)) {
		if number, found := strings.CutPrefix(line, "PPid:"); found {
			return strings.TrimSpace(number)
		}
	}
	return "0"
}

func holdsFileBelow(proc, below string) bool {
	entries, _ := os.ReadDir(proc + "/fd")
	for _, e := range entries {
		path, _ := os.Readlink(proc + "/fd/" + e.Name())
		if strings.HasPrefix(path, below+"/") {
			return true
		}
	}
	return false
}

// keeps lists the site's living supervisors by token.
func (s *site) keeps() map[string]process {
	found := map[string]process{}
	for _, p := range s.processes() {
		if p.keep {
			found[p.words[len(p.words)-1]] = p
		}
	}
	return found
}

// jobProcesses lists the processes of one job, or of all jobs for "".
func (s *site) jobProcesses(id string) []process {
	var found []process
	for _, p := range s.processes() {
		words := strings.Split(p.token, ":")
		if len(words) == 3 && (id == "" || words[1] == id) {
			found = append(found, p)
		}
	}
	return found
}

// mustBeClean checks that a clean end leaves neither a process nor a
// supervisor's directory. A queue that a run came back to may end after it.
func (s *site) mustBeClean() {
	s.t.Helper()
	s.awaitNoQueue()
	for _, p := range s.processes() {
		s.t.Errorf("left over: %s", p)
	}
	left, err := os.ReadDir(filepath.Join(s.logDir, "keep"))
	if err != nil && !os.IsNotExist(err) {
		s.t.Error(err)
	}
	for _, e := range left {
		s.t.Errorf("left over: keep/%s", e.Name())
	}
}
