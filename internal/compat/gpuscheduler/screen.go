package gpuscheduler

import (
	"cmp"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"

	"berth/internal/job/jobfile"
	"berth/internal/text/problem"
)

// ScreenWord is the first argument of the berth process that holds a job's screen
// session.
const ScreenWord = "__screen"

// sessionPrefix distinguishes gpu-scheduler's sessions from others.
const sessionPrefix = "gpujob_"

// The parts of a session's name are bounded: with the process id and directory it
// must fit into a socket address.
const (
	maxPart  = 16
	maxCards = 40 // sixteen GPUs
)

// screenCommand wraps a command to run in a screen session named after its GPUs,
// mode and id.
func screenCommand(self, mode, id string, words []string) []string {
	return append([]string{self, ScreenWord, namePart(mode), namePart(id), "--"}, words...)
}

// modeOf is the value of --mode among a job's arguments; the last one counts.
func modeOf(words []string) string {
	mode, _ := jobfile.FlagValue(words, "--mode")
	return namePart(mode)
}

// sessionName is gpujob_<gpu_ids>_<mode>_<job_id>, with a comma between ids.
func sessionName(gpus, mode, id string) string {
	gpus = cmp.Or(gpus, "none")
	for len(gpus) > maxCards { // the first ones are enough
		gpus = gpus[:strings.LastIndexByte(gpus, ',')]
	}
	return sessionPrefix + gpus + "_" + mode + "_" + id
}

// namePart replaces characters that are special to shells or screen.
func namePart(word string) string {
	const harmless = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789.+-_"
	parts := strings.FieldsFunc(word, func(r rune) bool { return !strings.ContainsRune(harmless, r) })
	safe := strings.Trim(strings.Join(parts, "_"), "-._")
	if safe == "" {
		return "unknown"
	}
	return safe[:min(len(safe), maxPart)]
}

// screenReady reports why jobs cannot run in screen sessions here.
func screenReady() error {
	if _, err := exec.LookPath("screen"); err != nil {
		return problem.Newf(problem.Unable, "sudo apt-get install screen, or omit --screen", "GNU Screen command not found")
	}
	_, err := screenDir()
	return err
}

// screenDir is a directory for sessions if screen's own cannot be used, as in a
// container that lacks it; "" if it can. It is the same for every process of the
// user, so that sessions are found again.
func screenDir() (string, error) {
	if os.Getenv("SCREENDIR") != "" {
		return "", nil
	}
	listing, _ := exec.Command("screen", "-ls").CombinedOutput() // the exit status depends on the number of sessions
	if directory := regexp.MustCompile(`(?m) in (/.*)\.\s*$`); directory.Match(listing) {
		return "", nil // it names the directory it uses
	}
	dir := ownScreenDir()
	if err := ownDir(dir, 0o077); err != nil {
		return "", problem.Newf(problem.Unable, "set SCREENDIR to a directory of yours", "screen has no directory for its sessions (%s): %v", strings.TrimSpace(string(listing)), err)
	}
	return dir, nil
}

// ownScreenDir ignores TMPDIR, which may differ between a job and a shell.
func ownScreenDir() string {
	return filepath.Join("/tmp", "berth-screen-"+strconv.Itoa(os.Getuid()))
}
