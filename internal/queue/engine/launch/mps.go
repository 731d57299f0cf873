package launch

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

// findMPS finds the program that jobs with cap=mps need, or says why there is
// none.
func findMPS(simulated bool) (control, why string) {
	if simulated {
		return "", "simulated GPUs have no CUDA MPS"
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

// UseMPS enables MPS servers for jobs if this machine can run them; dir is this
// berth's own.
func (l *Launcher) UseMPS(dir string) {
	l.MPSHint = "use cap=soft (--cap soft), or install CUDA MPS; berth doctor says what is missing"
	if l.SimDir != "" {
		l.MPSHint = "use cap=soft (--cap soft)"
	}
	if l.MPSControl, l.NoMPS = findMPS(l.SimDir != ""); l.NoMPS != "" {
		return
	}
	var err error
	if l.MPSDir, err = mpsPlace(dir); err != nil {
		l.MPSControl, l.NoMPS = "", err.Error()
		l.MPSHint = "start berth with TMPDIR set to a directory of your own with a short path, or use --cap soft"
	}
}

// Refuses says why a job cannot have what it asks for on this machine; empty: it
// can.
func (l *Launcher) Refuses(spec *job.Spec) string {
	if spec.Cap == "mps" && l.MPSControl == "" {
		return "cap=mps: " + l.NoMPS
	}
	return ""
}

// A server's socket is at <place>/<token>.<attempt>/pipe/<name>, and the kernel
// limits the length of its path.
const (
	longestPlace  = 107 - len("/0123456789abcdef.1234567890/pipe/control_privileged")
	mpsPrivateDir = "mps"
)

// mpsPlace is where MPS servers have their directories: below dir or, if socket
// paths would be too long there, below a temporary directory of this user.
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
		return "", fmt.Errorf("%s is too long for a socket path", place)
	}
	return place, nil
}

// ownDirectory creates a directory that only this user can enter, or checks an
// existing one.
func ownDirectory(path string) error {
	mode := os.FileMode(0o700)
	if os.Geteuid() == 0 {
		mode = 0o711 // a shared daemon's users must pass through to their own
	}
	if err := os.Mkdir(path, mode); err != nil && !os.IsExist(err) {
		return err
	}
	// The name is predictable, so another user may have created it first.
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
	case info.Mode().Perm() != mode: // stricter than needed, for example because of the umask: safe to change
		return os.Chmod(path, mode)
	}
	return nil
}
