//go:build keepfault

package keep

import (
	"os"
	"strings"
	"syscall"
)

// fault ends the supervisor, as kill -9 would, at the step that the test names.
func fault(step string) {
	if os.Getenv("BERTH_KEEP_FAULT") == step {
		syscall.Kill(os.Getpid(), syscall.SIGKILL)
		select {}
	}
}

// skips reports whether the test omits that step of the drop.
func skips(step string) bool { return os.Getenv("BERTH_KEEP_FAULT") == "skip "+step }

// failing makes a step fail while the file exists that the test names:
// "fail end /path".
func failing(step string) error {
	path, named := strings.CutPrefix(os.Getenv("BERTH_KEEP_FAULT"), "fail "+step+" ")
	if _, err := os.Lstat(path); !named || err != nil {
		return nil
	}
	return syscall.EROFS
}

// keepCapabilities makes capabilities survive the change of user.
func keepCapabilities() {
	const prSetKeepCaps = 8
	syscall.Syscall(syscall.SYS_PRCTL, prSetKeepCaps, 1, 0)
}
