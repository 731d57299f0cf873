package gpuscheduler

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"

	"berth/internal/jobfile"
	"berth/internal/problem"
)

// ScreenWord is the first word with which berth holds a job's screen session.
const ScreenWord = "__screen"

// sessionPrefix is how gpu-scheduler's sessions are told from others.
const sessionPrefix = "gpujob_"

// The parts of a session's name are bounded: all of it, its process and the
// directory must fit the address of a socket.
const (
	maxPart  = 16
	maxCards = 40 // sixteen of them
)

// screenCommand is what a job runs so that its words run in a screen session
// that is named after its cards, its mode and its id.
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
	if gpus == "" {
		gpus = "none"
	}
	for len(gpus) > maxCards { // the first ones will do
		gpus = gpus[:strings.LastIndexByte(gpus, ',')]
	}
	return sessionPrefix + gpus + "_" + mode + "_" + id
}

// namePart keeps of a word what shells and screen take for nothing else.
func namePart(word string) string {
	const harmless = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789.+-"
	parts := strings.FieldsFunc(word, func(r rune) bool { return !strings.ContainsRune(harmless, r) })
	safe := strings.Trim(strings.Join(parts, "-"), "-.")
	if safe == "" {
		return "unknown"
	}
	return safe[:min(len(safe), maxPart)]
}

// screenReady says why jobs cannot run in screen sessions here.
func screenReady() error {
	if _, err := exec.LookPath("screen"); err != nil {
		return problem.Newf(problem.Unable, "sudo apt-get install screen, or leave --screen out", "GNU Screen command not found")
	}
	_, err := screenDir()
	return err
}

// screenDir is where this user's sessions are when screen's own place cannot
// be used, as in a container where nobody has made it; "" where it can. It is
// the same for every process of the user, so that sessions are found again.
func screenDir() (string, error) {
	if os.Getenv("SCREENDIR") != "" {
		return "", nil
	}
	said, _ := exec.Command("screen", "-ls").CombinedOutput() // its status says how many there are
	if directory := regexp.MustCompile(`(?m) in (/.*)\.\s*$`); directory.Match(said) {
		return "", nil // it names the one that it uses
	}
	dir := ownScreenDir()
	if err := ownDir(dir, 0o077); err != nil {
		return "", problem.Newf(problem.Unable, "set SCREENDIR to one", "screen has no place for its sessions (%s): %v", strings.TrimSpace(string(said)), err)
	}
	return dir, nil
}

// ownScreenDir does not follow TMPDIR, which a job may have and a shell not.
func ownScreenDir() string {
	return filepath.Join("/tmp", "berth-screen-"+strconv.Itoa(os.Getuid()))
}
