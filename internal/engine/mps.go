package engine

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"

	"berth/internal/job"
)

// mpsProgram is NVIDIA's control program of the Multi-Process Service.
const mpsProgram = "nvidia-cuda-mps-control"

// findMPS finds the program that jobs with cap=mps need. why says in its place
// why there are none here.
func findMPS(simulated bool) (control, why string) {
	if simulated {
		return "", "simulated cards have no CUDA MPS"
	}
	control, err := exec.LookPath(mpsProgram)
	if err == nil {
		control, err = filepath.Abs(control)
	}
	if err != nil {
		return "", fmt.Sprintf("this machine has no %s in PATH", mpsProgram)
	}
	return control, ""
}

// UseMPS lets jobs have servers, where this machine has what that takes; dir is
// this berth's own.
func (l *Launcher) UseMPS(dir string) {
	l.MPSHint = "use --cap soft, or install CUDA MPS; berth doctor tells what is missing"
	if l.SimDir != "" {
		l.MPSHint = "use --cap soft"
	}
	if l.MPSControl, l.NoMPS = findMPS(l.SimDir != ""); l.NoMPS != "" {
		return
	}
	var err error
	if l.MPSDir, err = mpsPlace(dir); err != nil {
		l.MPSControl, l.NoMPS = "", err.Error()
		l.MPSHint = "start berth with TMPDIR naming a directory of your own with a short name, or use --cap soft"
	}
}

// Refuses says why a job cannot have here what it asks for; empty: it can.
func (l *Launcher) Refuses(spec *job.Spec) string {
	if spec.Cap == "mps" && l.MPSControl == "" {
		return "cap=mps: " + l.NoMPS
	}
	return ""
}

// A socket of a server is at <place>/<token>.<attempt>/pipe/<name>, and the
// kernel has room for no more than this in all.
const (
	longestPlace  = 107 - len("/0123456789abcdef.1234567890/pipe/control_privileged")
	mpsPrivateDir = "mps"
)

// mpsPlace is where the servers of this berth's jobs have their directories:
// below dir, or, where a socket's path would become too long there, below a
// directory of this user's for temporary files.
func mpsPlace(dir string) (string, error) {
	place := filepath.Join(dir, mpsPrivateDir)
	if len(place) <= longestPlace {
		return place, nil
	}
	own := filepath.Join(os.TempDir(), "berth-"+strconv.Itoa(os.Geteuid()))
	if err := ownDirectory(own); err != nil {
		return "", err
	}
	place = filepath.Join(own, mpsPrivateDir)
	if len(place) > longestPlace {
		return "", fmt.Errorf("%s is too long for the path of a socket", place)
	}
	return place, nil
}

// ownDirectory makes a directory that is this user's alone, or sees that what is
// there is one.
func ownDirectory(path string) error {
	mode := os.FileMode(0o700)
	if os.Geteuid() == 0 {
		mode = 0o711 // root's jobs may be other users', who have to pass through to their own
	}
	if err := os.Mkdir(path, mode); err != nil && !os.IsExist(err) {
		return err
	}
	// Its name can be foreseen, so somebody else may have been there first.
	info, err := os.Lstat(path)
	if err != nil {
		return err
	}
	stat, ok := info.Sys().(*syscall.Stat_t)
	switch {
	case !ok || !info.IsDir():
		return fmt.Errorf("%s is not a directory", path)
	case int(stat.Uid) != os.Geteuid():
		return fmt.Errorf("%s belongs to user %d, not to user %d", path, stat.Uid, os.Geteuid())
	case info.Mode().Perm()&^mode != 0:
		return fmt.Errorf("%s is open to others: its mode is %#o, not %#o", path, info.Mode().Perm(), mode)
	case info.Mode().Perm() != mode: // the mask's doing, or that of whatever made it: nobody else was in there
		return os.Chmod(path, mode)
	}
	return nil
}
