package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

// simTotalMiB is the memory of the simulated GPU.
const simTotalMiB = 24576

// host is the machine under test and this run's place on it.
type host struct {
	Berth      string            `json:"berth"`
	Kernel     string            `json:"kernel"`
	Root       bool              `json:"root"`
	Sim        bool              `json:"sim"`
	User       string            `json:"user"` // as whom the jobs run
	Driver     string            `json:"driver,omitempty"`
	Cards      []smiCard         `json:"cards,omitempty"`
	Card       smiCard           `json:"card"` // the one the jobs run on
	Frameworks map[string]string `json:"frameworks"`
	Missing    map[string]string `json:"missing"` // frameworks that cannot be used, and why

	bin, dir, mark string
	python         string
	credential     *syscall.Credential
	home           string
	undo           []func()
	verbose, keep  bool
	errs           io.Writer
	saying         sync.Mutex
}

func (h *host) say(format string, args ...any) {
	if !h.verbose {
		return
	}
	h.saying.Lock()
	defer h.saying.Unlock()
	fmt.Fprintf(h.errs, "%s "+format+"\n", append([]any{time.Now().Format("15:04:05.000")}, args...)...)
}

// openHost examines the machine.
func openHost(ctx context.Context, o options, errs io.Writer) (*host, error) {
	h := &host{
		Root: os.Geteuid() == 0, Sim: o.sim, bin: o.bin, verbose: o.verbose, keep: o.keep, errs: errs,
		Frameworks: map[string]string{}, Missing: map[string]string{}, home: os.Getenv("HOME"), User: strconv.Itoa(os.Geteuid()),
	}
	version, err := exec.CommandContext(ctx, h.program("berth"), "--version").Output()
	if err != nil {
		return nil, fmt.Errorf("run %s: %w", h.program("berth"), err)
	}
	h.Berth = strings.TrimSpace(string(version))
	var uts syscall.Utsname
	if syscall.Uname(&uts) == nil {
		h.Kernel = charsText(uts.Release[:])
	}
	if err := h.makeDir(); err != nil {
		return nil, err
	}
	if o.users {
		err = h.becomeOrdinary(ctx)
	}
	if err == nil && o.sim {
		h.Card = smiCard{Index: 0, Name: "Simulated GPU", TotalMiB: simTotalMiB, FreeMiB: simTotalMiB}
	} else if err == nil {
		if err = h.findCards(ctx, o.card); err == nil {
			err = h.findPython(ctx)
		}
	}
	if err != nil {
		h.close()
		return nil, err
	}
	return h, nil
}

func (h *host) program(name string) string { return filepath.Join(h.bin, name) }

// hasHelper reports whether the bundle contains the helper.
func (h *host) hasHelper() bool {
	_, err := os.Stat(h.program("berth-gpu"))
	return err == nil
}

func (h *host) makeDir() error {
	dir, err := os.MkdirTemp("", "gpu-test-")
	if err != nil {
		return fmt.Errorf("create a working directory: %w", err)
	}
	h.dir, h.mark = dir, filepath.Base(dir)
	if err := os.Chmod(dir, 0o755); err != nil { // the jobs' user reads the programs there
		return fmt.Errorf("create a working directory: %w", err)
	}
	return unpackPrograms(filepath.Join(dir, "programs"))
}

func (h *host) close() {
	for i := len(h.undo) - 1; i >= 0; i-- {
		h.undo[i]()
	}
	if h.keep {
		fmt.Fprintf(h.errs, "gpu-test: working directory kept: %s\n", h.dir)
		return
	}
	_ = os.RemoveAll(h.dir)
}

// findCards asks nvidia-smi, with which everything is compared.
func (h *host) findCards(ctx context.Context, wanted int) error {
	cards, err := smiCards(ctx)
	if err != nil {
		return fmt.Errorf("%w; without a GPU only -sim works", err)
	}
	h.Cards, h.Driver = cards, cards[0].Driver
	h.Card = cards[0]
	found := false
	for _, c := range cards {
		if wanted < 0 && c.FreeMiB > h.Card.FreeMiB || c.Index == wanted {
			h.Card = c
		}
		found = found || c.Index == wanted
	}
	if wanted >= 0 && !found {
		return fmt.Errorf("no GPU %d", wanted)
	}
	if h.Card.FreeMiB < 8192 {
		return fmt.Errorf("expected at least 8192 MiB free on GPU %d, found %d", h.Card.Index, h.Card.FreeMiB)
	}
	return nil
}

// probes are how each framework shows that it can use a GPU.
var probes = map[string]string{
	"torch": "import torch; assert torch.cuda.is_available(), 'torch finds no GPU'; print(torch.__version__)",
	"jax":   "import jax; assert jax.default_backend() in ('gpu', 'cuda'), 'JAX runs on ' + jax.default_backend(); print(jax.__version__)",
	"cupy":  "import cupy; cupy.zeros(1); print(cupy.__version__)",
	"cuda":  "import cudadriver; print(cudadriver.Card().driver)",
}

// findPython tries all frameworks at once.
func (h *host) findPython(ctx context.Context) error {
	path, err := exec.LookPath("python3")
	if err != nil {
		return errors.New("python3 is missing: the GPU programs of the checks need it")
	}
	h.python = path
	var group sync.WaitGroup
	var lock sync.Mutex
	for name, probe := range probes {
		group.Go(func() {
			limited, cancel := context.WithTimeout(ctx, 2*time.Minute)
			defer cancel()
			cmd := h.command(limited, h.python, "-c", probe)
			cmd.Env = append(cmd.Env, "XLA_PYTHON_CLIENT_PREALLOCATE=false", "CUDA_VISIBLE_DEVICES="+h.Card.UUID,
				"PYTHONPATH="+filepath.Join(h.dir, "programs"))
			text, err := cmd.CombinedOutput()
			lock.Lock()
			defer lock.Unlock()
			if err != nil {
				h.Missing[name] = lastLine(string(text), err)
				return
			}
			h.Frameworks[name] = lastLine(string(text), nil)
		})
	}
	group.Wait()
	if len(h.Frameworks) == 0 {
		return fmt.Errorf("no framework works: %v", h.Missing)
	}
	return nil
}

func lastLine(text string, err error) string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	last := strings.TrimSpace(lines[len(lines)-1])
	if last == "" && err != nil {
		return err.Error()
	}
	return last[:min(len(last), 160)]
}

// usual is the framework for checks that do not care: the most common one, or
// the bare driver.
func (h *host) usual() string {
	for _, name := range []string{"torch", "cupy", "cuda"} {
		if h.Frameworks[name] != "" {
			return name
		}
	}
	return "jax"
}

// bare is the fastest program that allocates memory: the driver itself.
func (h *host) bare() string {
	if h.Frameworks["cuda"] != "" {
		return "cuda"
	}
	return h.usual()
}

// command runs as the jobs' user, without variables of another berth and with
// the mark of this run.
func (h *host) command(ctx context.Context, path string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, path, args...)
	cmd.Dir = h.dir
	cmd.Env = h.environ()
	cmd.WaitDelay = 2 * time.Second
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Credential: h.credential}
	if h.credential != nil {
		cmd.Env = append(cmd.Env, "HOME="+h.home, "USER="+h.User, "LOGNAME="+h.User)
	}
	return cmd
}

func (h *host) environ() []string {
	env := []string{}
	for _, entry := range os.Environ() {
		name, _, _ := strings.Cut(entry, "=")
		switch {
		case strings.HasPrefix(name, "BERTH_"), strings.HasPrefix(name, "CUDA_"), strings.HasPrefix(name, "XLA_"), strings.HasPrefix(name, "PYTORCH_"):
		default:
			env = append(env, entry)
		}
	}
	env = append(env, "GPU_TEST_MARK="+h.mark, "BERTH_NO_AUTOSTART=1")
	if h.Sim {
		env = append(env, "BERTH_LEDGER_DIR="+filepath.Join(h.dir, "ledger"))
	}
	return env
}

func (h *host) describe() string {
	text := fmt.Sprintf("%s, Linux %s, jobs of user %s", h.Berth, h.Kernel, h.User)
	if h.Sim {
		return text + ", simulated GPUs"
	}
	text += fmt.Sprintf("\n%d × %s, driver %s; using GPU %d: %d MiB, %d free", len(h.Cards), h.Card.Name, h.Driver, h.Card.Index, h.Card.TotalMiB, h.Card.FreeMiB)
	for _, name := range []string{"torch", "jax", "cupy", "cuda"} {
		if version := h.Frameworks[name]; version != "" {
			text += fmt.Sprintf("\n%s %s", name, version)
		} else {
			text += fmt.Sprintf("\n%s: not usable: %s", name, h.Missing[name])
		}
	}
	return text
}
