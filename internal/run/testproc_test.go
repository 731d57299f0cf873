package run

import (
	"os"
	"os/exec"
	"syscall"
	"testing"
)

func execShell(line string) (string, error) {
	out, err := exec.Command("/bin/sh", "-c", line).Output()
	return string(out), err
}

// leakOnExec makes a descriptor one that children inherit, as a careless
// caller of berth's would leave it.
func leakOnExec(t *testing.T, file *os.File) {
	t.Helper()
	if _, _, errno := syscall.Syscall(syscall.SYS_FCNTL, file.Fd(), syscall.F_SETFD, 0); errno != 0 {
		t.Fatal(errno)
	}
}

func controller(dir string) {}
