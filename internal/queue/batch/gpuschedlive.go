package batch

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"berth/internal/job/jobfile"
	"berth/internal/machine/keep"
	"berth/internal/text"
	"berth/internal/text/problem"
)

// theirLog is the name of a job's log in gpusched, with the number of the job.
var theirLog = text.Pattern(`^job(\d+)_gpu[0-9-]+\.log$`)

// refuseBeside refuses to run beside a gpusched that still uses this log
// directory: both would start the same lines.
func (l layout) refuseBeside() error {
	table, err := keep.Processes()
	if err != nil {
		return nil // no sign of one
	}
	for _, p := range table {
		words := strings.Split(strings.TrimRight(readProc(p.PID, "cmdline"), "\x00"), "\x00")
		dir, ok := theirLogDir(words)
		if !ok || p.Dead() {
			continue
		}
		if !filepath.IsAbs(dir) {
			at, err := os.Readlink(procPath(p.PID, "cwd"))
			if err != nil {
				continue // another user's
			}
			dir = filepath.Join(at, dir)
		}
		if sameDir(dir, l.logDir) {
			return problem.Newf(problem.Unable, fmt.Sprintf("stop it and its jobs with kill -INT %d, which keeps finished jobs, or let it finish", p.PID),
				"gpusched itself is running on %s (pid %d); both would start the same lines", l.logDir, p.PID)
		}
	}
	return nil
}

// theirLogDir is the log directory in a command line of gpusched, which is a
// Python program.
func theirLogDir(words []string) (dir string, ok bool) {
	if !strings.HasPrefix(filepath.Base(words[0]), "python") {
		return "", false
	}
	rest := words[1:]
	for len(rest) > 0 && strings.HasPrefix(rest[0], "-") && rest[0] != "-m" {
		rest = rest[1:]
	}
	module := len(rest) > 1 && rest[0] == "-m" && (rest[1] == "gpusched" || rest[1] == "gpusched.cli")
	if !module && (len(rest) == 0 || filepath.Base(rest[0]) != "gpusched") {
		return "", false
	}
	dir, ok = jobfile.FlagValue(rest, "--log-dir")
	if !ok {
		dir = "gpusched_logs"
	}
	return dir, true
}

// findLeft looks for running jobs whose start gpusched did not record, as 0.3.0
// never does: such a job has the log with its number open.
func (l layout) findLeft(jobs []*theirJob) {
	byNumber := map[int]*theirJob{}
	for _, j := range jobs {
		if j.done == nil && j.group == 0 && j.number > 0 {
			byNumber[j.number] = j
		}
	}
	if len(byNumber) == 0 {
		return
	}
	table, err := keep.Processes()
	if err != nil {
		return
	}
	for _, p := range table {
		number, ok := l.logHeld(p.PID)
		j := byNumber[number]
		if !ok || j == nil || p.Dead() {
			continue
		}
		if leads := p.Group == p.Session; leads || !j.seen {
			j.group, j.seen = p.Group, true
		}
	}
}

// logHeld is the number of the log that is the output of a process.
func (l layout) logHeld(pid int) (number int, ok bool) {
	for _, fd := range []string{"fd/1", "fd/2"} {
		path, err := os.Readlink(procPath(pid, fd))
		if err != nil {
			continue
		}
		form := theirLog().FindStringSubmatch(filepath.Base(path))
		if form == nil || !sameDir(filepath.Dir(path), l.logDir) {
			continue
		}
		if number, err = strconv.Atoi(form[1]); err == nil {
			return number, true
		}
	}
	return 0, false
}

func sameDir(a, b string) bool {
	if filepath.Clean(a) == filepath.Clean(b) {
		return true
	}
	infos := make([]os.FileInfo, 0, 2)
	for _, path := range []string{a, b} {
		info, err := os.Stat(path)
		if err != nil {
			return false
		}
		infos = append(infos, info)
	}
	return os.SameFile(infos[0], infos[1])
}

func procPath(pid int, name string) string { return filepath.Join("/proc", strconv.Itoa(pid), name) }

func readProc(pid int, name string) string {
	text, _ := os.ReadFile(procPath(pid, name)) // empty if it is gone, or another user's
	return string(text)
}
