//go:build keepfault

package keep

import (
	"os"
	"syscall"
)

// fault ends the supervisor, as kill -9 would, at the step that the test names.
func fault(step string) {
	if os.Getenv("BERTH_KEEP_FAULT") == step {
		syscall.Kill(os.Getpid(), syscall.SIGKILL)
		select {}
	}
}
