package site

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"time"

	"berth/internal/text"
)

// NoCards is what is said of everything that only cards need, where there are
// none.
const NoCards = "there are no cards"

// helper is the program that holds NVML for berth.
type helper struct {
	path  string // empty: there is none
	off   bool   // it is not to be used
	wrong string // why what is there, or was named, cannot be run
}

// findHelper looks where a daemon would.
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
		return helper{wrong: "BERTH_GPU_HELPER names " + path + ", which is not there"}
	case !info.Mode().IsRegular() || info.Mode()&0o111 == 0:
		return helper{wrong: path + " cannot be executed"}
	}
	return helper{path: path}
}

// helperSaid is the little that is read here of what the helper prints, or
// why it printed nothing.
type helperSaid struct {
	Error    string `json:"error"`
	Protocol int    `json:"protocol"` // 0: it is of the time when once did not tell
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

	err error
}

var (
	errNoHelper  = errors.New("berth-gpu is not beside berth")
	errBadHelper = errors.New("berth-gpu cannot be run")
	errHelperOff = errors.New("berth-gpu is switched off (BERTH_GPU_HELPER=none)")
	errGarbled   = errors.New("berth-gpu says what cannot be understood")
)

// helperDeadline is what the driver gets to answer.
const helperDeadline = 5 * time.Second

// cardFacts asks the helper once, whoever wants to know first.
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
	return said
}

// hasDriver is true where NVIDIA's driver is loaded.
func (e exam) hasDriver() bool {
	return e.exists("/proc/driver/nvidia/version") || e.exists("/dev/dxg") || e.exists("/dev/nvidiactl")
}

var driverNumber = regexp.MustCompile(`\b(\d{3,})\.\d+(\.\d+)?\b`)

// driverVersion is what the helper or the driver's own file says, and its
// branch: 580. 0: not known.
func (e exam) driverVersion(h helperSaid) (version string, branch int) {
	for _, text := range []string{h.Facts.Driver, e.read("/proc/driver/nvidia/version")} {
		if found := driverNumber.FindStringSubmatch(text); found != nil {
			branch, _ = strconv.Atoi(found[1]) // the pattern has only digits
			return found[0], branch
		}
	}
	return "of an unknown version", 0
}

// nvml says how the cards are read.
func (e exam) nvml(h helperSaid) Finding {
	const instead = "cards are read through nvidia-smi: slower, once a poll, no MIG"
	switch {
	case errors.Is(h.err, errNoHelper):
		return warn("build it with `make build` where there is a C compiler, or put berth-gpu beside berth", "%v: %s", h.err, instead)
	case errors.Is(h.err, errBadHelper):
		return warn("put the berth-gpu that came with berth there, executable for all (chmod 755); unset BERTH_GPU_HELPER if it was not meant", "%v: %s", h.err, instead)
	case errors.Is(h.err, errHelperOff):
		return warn("unset BERTH_GPU_HELPER", "%v: %s", h.err, instead)
	case errors.Is(h.err, errNoAnswer):
		return fail("look for Xid messages in `dmesg`; a card that hangs has to be reset, or the machine restarted", "the driver hangs: %v", h.err)
	case errors.Is(h.err, errGarbled):
		return fail("use the berth-gpu that came with this berth", "%v", h.err)
	case h.err != nil:
		return warn("see that the driver is loaded and its libraries are of the same version; restart the machine after an upgrade", "berth-gpu cannot use NVML (%v): %s", h.err, instead)
	}
	if h.Protocol != 0 && h.Protocol != e.protocol {
		return warn("put the berth-gpu that came with this berth beside it, or name it in BERTH_GPU_HELPER",
			"berth-gpu speaks version %d of the protocol, and berth version %d: %s", h.Protocol, e.protocol, instead)
	}
	var bad []string
	for _, fault := range h.Sample.Faults {
		bad = append(bad, fmt.Sprintf("gpu%d %s", fault.Index, text.Said(fault.Text)))
	}
	if len(bad) > 0 {
		return warn("berth gpus shows what is known; look for Xid messages in `dmesg`", "of some cards nothing can be read: %s", strings.Join(bad, "; "))
	}
	cards, parts := 0, 0
	for _, d := range h.Sample.Devices {
		if cards++; d.Part != nil {
			parts++
		}
	}
	what := text.Count(cards, "card")
	if parts > 0 {
		what += fmt.Sprintf(", %d of them parts", parts)
	}
	return ok("%s, read through NVML %s (driver %s, CUDA %s)", what, text.Said(h.Facts.NVML), text.Said(h.Facts.Driver), text.Said(h.Facts.CUDA))
}

// persistence says whether the driver stays loaded while nobody uses a card.
func (e exam) persistence(h helperSaid) Finding {
	on := h.Facts.Persistence
	if on == nil && e.runs("nvidia-persiste") {
		yes := true
		on = &yes
	}
	switch {
	case on == nil:
		return ok("whether the driver stays ready while no card is used is not known")
	case !*on:
		return warn("systemctl enable --now nvidia-persistenced", "persistence is off: the first start on idle cards takes seconds longer")
	}
	return ok("the driver stays ready while no card is used")
}

// runs looks for a process by the beginning of its short name.
func (e exam) runs(name string) bool {
	names, _ := filepath.Glob(e.path("/proc/[0-9]*/comm")) // the pattern is ours
	for _, path := range names {
		if text, err := os.ReadFile(path); err == nil && strings.HasPrefix(string(text), name) {
			return true
		}
	}
	return false
}
