package site

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"time"

	"berth/internal/text"
)

// driver asks nvidia-smi, which may hang in the kernel and must not be killed
// in a hurry.
func (c *cardFacts) driver(ctx context.Context) Finding {
	const noCards = "install the NVIDIA driver; without one, berth runs jobs with `-g 0`, and `--sim N` simulates GPUs"
	said, err := c.exam.run(ctx, call{name: "nvidia-smi", args: []string{"--query-gpu=driver_version,name", "--format=csv,noheader"}, deadline: 10 * time.Second})
	switch {
	case errors.Is(err, errNotInstalled) && c.exam.hasDriver():
		if h := c.get(ctx); h.err == nil {
			return ok("driver %s, %s; nvidia-smi is missing, but berth does not need it", text.Said(h.Facts.Driver), text.Count(len(h.Sample.Devices), "GPU"))
		}
		return fail("install nvidia-utils (it comes with the driver)", "the driver is loaded, but nvidia-smi is missing: berth cannot read the GPUs")
	case errors.Is(err, errNotInstalled):
		return warn(noCards, "nvidia-smi is not installed: no GPUs to use")
	case err != nil:
		return fail("look for Xid messages in `dmesg`; the machine may need a reboot", "nvidia-smi does not answer: %v", err)
	case said.exit != 0:
		return fail("check that the loaded and the installed driver have the same version; reboot after an upgrade", "nvidia-smi fails: %s", said.firstLine())
	}
	lines := strings.Split(strings.TrimSpace(said.stdout), "\n")
	version, name, found := strings.Cut(lines[0], ", ")
	if !found {
		return fail("please report this", "expected a version and a name from nvidia-smi, found %q", text.Said(lines[0]))
	}
	return ok("driver %s, %s (%s)", text.Said(version), text.Count(len(lines), "GPU"), text.Said(name))
}

var cardDevice = text.Pattern(`/nvidia(\d+|ctl|-uvm)$`)

// devices checks that users may open the GPUs.
func (e exam) devices(context.Context) Finding {
	found, _ := filepath.Glob(e.path("/dev/nvidia*")) // the pattern is ours
	var closed []string
	cards := 0
	for _, path := range found {
		info, err := os.Stat(path)
		if err != nil || !cardDevice().MatchString(path) {
			continue
		}
		cards++
		if info.Mode().Perm()&0o006 != 0o006 {
			closed = append(closed, strings.TrimPrefix(path, e.root))
		}
	}
	switch {
	case cards == 0 && e.exists("/proc/driver/nvidia/version"):
		return warn("run `nvidia-modprobe -c 0 -u`, or nvidia-smi once as root", "the driver is loaded, but its device files in /dev are missing")
	case cards == 0:
		return ok(NoCards)
	case len(closed) > 0:
		return warn("set NVreg_DeviceFileMode in /etc/modprobe.d, or add users to the group that may", "not every user may open %s", strings.Join(closed, ", "))
	}
	return ok("all users may open the GPUs")
}
