package site

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"berth/internal/text"
)

// NoCards is the finding of every check that concerns GPUs on a machine
// without any.
const NoCards = "no GPUs"

// helper is the program that talks to NVML for berth.
type helper struct {
	path  string // "" if there is none
	off   bool   // switched off by BERTH_GPU_HELPER=none
	wrong string // why it cannot be run
}

// findHelper looks in the same places as the daemon.
func findHelper(getenv func(string) string, beside string) helper {
	named := getenv("BERTH_GPU_HELPER")
	path := named
	switch {
	case named == "none":
		return helper{off: true}
	case named == "" && beside == "":
		return helper{}
	case named == "":
		path = filepath.Join(beside, "berth-gpu")
	}
	info, err := os.Stat(path)
	switch {
	case err != nil && named == "":
		return helper{}
	case err != nil:
		return helper{wrong: "BERTH_GPU_HELPER names " + path + ", which does not exist"}
	case !info.Mode().IsRegular() || info.Mode()&0o111 == 0:
		return helper{wrong: path + " is not executable"}
	}
	return helper{path: path}
}

// helperSaid is the part of the helper's output that is used here, or why
// there is none.
type helperSaid struct {
	Error    string `json:"error"`
	Protocol int    `json:"protocol"` // 0: an early version, whose output did not include it
	Facts    struct {
		Driver       string `json:"driver"`
		NVML         string `json:"nvml"`
		CUDA         string `json:"cuda"`
		Events       bool   `json:"events"`
		MemoryLimits bool   `json:"memory_limits"`
		Persistence  *bool  `json:"persistence"`
	} `json:"facts"`
	Sample struct {
		Devices []struct {
			Index int       `json:"index"`
			BusID string    `json:"bus_id"`
			Part  *struct{} `json:"part"`
		} `json:"devices"`
		Faults []struct {
			Index int    `json:"index"`
			Text  string `json:"text"`
		} `json:"faults"`
	} `json:"sample"`

	park error // why the driver cannot park jobs; nil: it can, or it did not say
	err  error
}

var (
	errNoHelper  = errors.New("berth-gpu is not installed beside berth")
	errBadHelper = errors.New("berth-gpu cannot be run")
	errHelperOff = errors.New("berth-gpu is switched off (BERTH_GPU_HELPER=none)")
	errGarbled   = errors.New("berth-gpu printed unreadable output")
)

// helperDeadline bounds how long the driver may take to answer.
const helperDeadline = 5 * time.Second

// cardFacts asks the helper once for all checks.
type cardFacts struct {
	exam exam
	once sync.Once
	said helperSaid
}

func (c *cardFacts) get(ctx context.Context) helperSaid {
	c.once.Do(func() { c.said = c.exam.askHelper(ctx) })
	return c.said
}

func (e exam) askHelper(ctx context.Context) helperSaid {
	switch {
	case e.helper.off:
		return helperSaid{err: errHelperOff}
	case e.helper.wrong != "":
		return helperSaid{err: fmt.Errorf("%w: %s", errBadHelper, e.helper.wrong)}
	case e.helper.path == "":
		return helperSaid{err: errNoHelper}
	}
	answer, err := e.run(ctx, call{name: "berth-gpu", path: e.helper.path, args: []string{"once"}, env: os.Environ(), deadline: helperDeadline})
	if err != nil {
		return helperSaid{err: err}
	}
	var said helperSaid
	switch err := json.Unmarshal([]byte(answer.stdout), &said); {
	case err == nil && said.Error != "":
		said.err = errors.New(text.Said(said.Error))
	case answer.exit != 0:
		said.err = errors.New(answer.firstLine())
	case err != nil:
		said.err = fmt.Errorf("%w: %w", errGarbled, err)
	}
	said.park = checkPark(ctx, e.machine, e.helper.path)
	return said
}

// CheckPark asks the driver, through the program that parks jobs, why it cannot. It
// is nil if it does not answer: then the first job finds out.
func CheckPark(ctx context.Context, program string) error { return checkPark(ctx, here(), program) }

func checkPark(ctx context.Context, m machine, program string) error {
	env := slices.DeleteFunc(os.Environ(), func(entry string) bool { return strings.HasPrefix(entry, "CUDA_VISIBLE_DEVICES=") })
	answer, err := m.run(ctx, call{name: "berth-gpu", path: program, args: []string{"park", "-check"}, env: env, deadline: helperDeadline})
	if err != nil || answer.exit != exitCannotPark {
		return nil
	}
	return errors.New(strings.TrimPrefix(answer.firstLine(), "berth-gpu: "))
}

// exitCannotPark is the program's exit status if the driver cannot; another one
// means that it was not asked.
const exitCannotPark = 1

// hasDriver reports whether the NVIDIA driver is loaded.
func (e exam) hasDriver() bool {
	return e.exists("/proc/driver/nvidia/version") || e.exists("/dev/dxg") || e.exists("/dev/nvidiactl")
}

var driverNumber = text.Pattern(`\b(\d{3,})\.\d+(\.\d+)?\b`)

// driverVersion is the version that the helper or the driver's own file
// reports, and its branch, such as 580; 0 if unknown.
func (c *cardFacts) driverVersion(h helperSaid) (version string, branch int) {
	for _, text := range []string{h.Facts.Driver, c.exam.read("/proc/driver/nvidia/version")} {
		if found := driverNumber().FindStringSubmatch(text); found != nil {
			branch, _ = strconv.Atoi(found[1]) // the pattern has only digits
			return found[0], branch
		}
	}
	return "(version unknown)", 0
}

// nvml reports how the GPUs are read.
func (c *cardFacts) nvml(h helperSaid) Finding {
	const instead = "GPUs are read through nvidia-smi, which is slower and does not support MIG"
	switch {
	case errors.Is(h.err, errNoHelper):
		return warn("build it with `make build` on a machine with a C compiler, or put berth-gpu beside berth", "%v: %s", h.err, instead)
	case errors.Is(h.err, errBadHelper):
		return warn("put the berth-gpu that came with berth there, executable for all (chmod 755), or unset BERTH_GPU_HELPER", "%v: %s", h.err, instead)
	case errors.Is(h.err, errHelperOff):
		return warn("unset BERTH_GPU_HELPER", "%v: %s", h.err, instead)
	case errors.Is(h.err, errNoAnswer):
		return fail("look for Xid messages in `dmesg`; reset the hung GPU or reboot", "the driver hangs: %v", h.err)
	case errors.Is(h.err, errGarbled):
		return fail("use the berth-gpu that came with this berth", "%v", h.err)
	case h.err != nil:
		return warn("check that the driver is loaded and its libraries have the same version; reboot after an upgrade", "berth-gpu cannot use NVML (%v): %s", h.err, instead)
	}
	if h.Protocol != 0 && h.Protocol != c.exam.protocol {
		return warn("put the berth-gpu that came with this berth beside it, or name it in BERTH_GPU_HELPER",
			"berth-gpu speaks protocol version %d, berth speaks version %d: %s", h.Protocol, c.exam.protocol, instead)
	}
	var bad []string
	for _, fault := range h.Sample.Faults {
		bad = append(bad, fmt.Sprintf("gpu%d %s", fault.Index, text.Said(fault.Text)))
	}
	if len(bad) > 0 {
		return warn("see `berth gpus`, and look for Xid messages in `dmesg`", "some GPUs cannot be read: %s", strings.Join(bad, "; "))
	}
	cards, parts := 0, 0
	for _, d := range h.Sample.Devices {
		if cards++; d.Part != nil {
			parts++
		}
	}
	what := text.Count(cards, "GPU")
	if parts > 0 {
		what += fmt.Sprintf(", %d of them MIG parts", parts)
	}
	return ok("%s, read through NVML %s (driver %s, CUDA %s)", what, text.Said(h.Facts.NVML), text.Said(h.Facts.Driver), text.Said(h.Facts.CUDA))
}

// persistence reports whether the driver stays loaded while no GPU is used.
func (c *cardFacts) persistence(h helperSaid) Finding {
	on := h.Facts.Persistence
	if on == nil && c.runs("nvidia-persiste") {
		yes := true
		on = &yes
	}
	switch {
	case on == nil:
		return ok("persistence mode unknown")
	case !*on:
		return warn("systemctl enable --now nvidia-persistenced", "persistence mode is off: the first start on an idle GPU takes seconds longer")
	}
	return ok("persistence mode is on")
}

// runs reports whether a process whose short name begins like this is running.
func (c *cardFacts) runs(name string) bool {
	names, _ := filepath.Glob(c.exam.path("/proc/[0-9]*/comm")) // the pattern is ours
	for _, path := range names {
		if text, err := os.ReadFile(path); err == nil && strings.HasPrefix(string(text), name) {
			return true
		}
	}
	return false
}
