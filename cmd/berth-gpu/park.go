//go:build cgo

package main

/*
#cgo LDFLAGS: -ldl
#include <dlfcn.h>
#include <stdlib.h>

// The parts of cuda.h that are needed; they are stable.
typedef int (*int_args)(int pid, void *args);
typedef int (*mem_create)(unsigned long long *handle, size_t size, const void *prop, unsigned long long flags);

static int cuda_init(void *f) { return ((int (*)(unsigned))f)(0); }
static int cuda_call(void *f, int pid, void *args) { return ((int_args)f)(pid, args); }
static int cuda_state(void *f, int pid, int *state) { return ((int (*)(int, int *))f)(pid, state); }
static int cuda_count(void *f, int *n) { return ((int (*)(int *))f)(n); }
static int cuda_uuid(void *f, unsigned char *uuid, int device) { return ((int (*)(void *, int))f)(uuid, device); }
static int cuda_name(void *f, int code, const char **name) { return ((int (*)(int, const char **))f)(code, name); }
static int cuda_release(void *f, unsigned long long handle) { return ((int (*)(unsigned long long))f)(handle); }

// cuda_hold takes memory of a device without a context, which would itself take
// half a gigabyte.
static int cuda_hold(void *f, unsigned long long *handle, size_t size, int device) {
	struct {
		int type, handle_types;
		struct { int type, id; } location;
		void *windows;
		unsigned char rest[32];
	} prop = {0};
	prop.type = 1;          // pinned
	prop.location.type = 1; // on a device
	prop.location.id = device;
	return ((mem_create)f)(handle, size, &prop, 0);
}
*/
import "C"

import (
	"bufio"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"unsafe"
)

// checkpointer makes the driver's checkpoint calls for a supervisor. The
// protocol is that of internal/machine/keep's driver: a line per request, and replies in
// any order, because a call may take minutes.
type checkpointer struct {
	symbols map[string]unsafe.Pointer

	mu    sync.Mutex // of the output and of held
	out   *bufio.Writer
	holds []C.ulonglong
}

// The driver's calls that parking needs; the checkpoint calls exist since
// version 570.
var checkpointSymbols = []string{
	"cuInit", "cuGetErrorName", "cuDeviceGetCount", "cuDeviceGetUuid_v2", "cuMemCreate", "cuMemRelease",
	"cuCheckpointProcessGetState", "cuCheckpointProcessLock", "cuCheckpointProcessCheckpoint",
	"cuCheckpointProcessRestore", "cuCheckpointProcessUnlock",
}

// The driver's results with a meaning here.
const (
	cudaNotInitialised = 3   // the process does not use CUDA
	cudaSystem         = 304 // there is no such process, or it may not be touched
	cudaNotReady       = 600 // it was not locked in time
)

// cudaStates are the driver's states of a process, by number.
var cudaStates = []string{"running", "locked", "parked", "failed"}

func openCheckpointer(out io.Writer) (*checkpointer, error) {
	name := C.CString("libcuda.so.1")
	defer C.free(unsafe.Pointer(name))
	library := C.dlopen(name, C.RTLD_NOW)
	if library == nil {
		return nil, errors.New("libcuda.so.1 cannot be loaded: " + C.GoString(C.dlerror()))
	}
	c := &checkpointer{symbols: map[string]unsafe.Pointer{}, out: bufio.NewWriter(out)}
	for _, symbol := range checkpointSymbols {
		name := C.CString(symbol)
		found := C.dlsym(library, name)
		C.free(unsafe.Pointer(name))
		if found == nil {
			return nil, fmt.Errorf("the driver cannot park jobs: it is older than 570 (it has no %s)", symbol)
		}
		c.symbols[symbol] = found
	}
	if code := C.cuda_init(c.symbols["cuInit"]); code != 0 {
		return nil, fmt.Errorf("CUDA does not start: %w", c.failure(code))
	}
	return c, nil
}

// checkPark finds out whether the driver can park jobs.
func checkPark(errs io.Writer) int {
	if _, err := openCheckpointer(io.Discard); err != nil {
		fmt.Fprintln(errs, "berth-gpu:", err)
		return exitFailed
	}
	return 0
}

// park serves until its input ends.
func park(in io.Reader, out io.Writer) int {
	signal.Ignore(syscall.SIGPIPE)
	runtime.GOMAXPROCS(2)
	c, err := openCheckpointer(out)
	lines := bufio.NewScanner(in)
	for lines.Scan() {
		words := strings.Fields(lines.Text())
		if len(words) < 2 {
			continue
		}
		if err != nil {
			fmt.Fprintln(out, words[0], "no", err)
			continue
		}
		go func() {
			reply, err := c.answer(words[1], words[2:])
			if err != nil {
				reply = "no " + err.Error()
			} else {
				reply = strings.TrimSpace("ok " + reply)
			}
			c.mu.Lock()
			defer c.mu.Unlock()
			fmt.Fprintln(c.out, words[0], reply)
			_ = c.out.Flush() // berth is gone
		}()
	}
	return 0
}

func (c *checkpointer) answer(verb string, words []string) (string, error) {
	switch verb {
	case "hello":
		return "", nil
	case "free":
		return "", c.free()
	case "hold":
		if len(words) == 2 {
			mib, err := strconv.ParseInt(words[1], 10, 40)
			if err == nil && mib > 0 {
				return "", c.hold(words[0], mib)
			}
		}
		return "", errors.New("expected: hold UUID MIB")
	}
	if len(words) == 0 {
		return "", fmt.Errorf("unknown request %q", verb)
	}
	pid, err := strconv.Atoi(words[0])
	if err != nil || pid <= 0 {
		return "", fmt.Errorf("expected a process, found %q", words[0])
	}
	switch verb {
	case "state":
		return c.state(pid)
	case "lock":
		ms, err := strconv.ParseUint(strings.Join(words[1:], ""), 10, 31)
		if err != nil {
			return "", errors.New("expected: lock PID MILLISECONDS")
		}
		return "", c.call("cuCheckpointProcessLock", pid, uint32(ms))
	case "checkpoint":
		return "", c.call("cuCheckpointProcessCheckpoint", pid, 0)
	case "restore":
		return "", c.call("cuCheckpointProcessRestore", pid, 0)
	case "unlock":
		return "", c.call("cuCheckpointProcessUnlock", pid, 0)
	}
	return "", fmt.Errorf("unknown request %q", verb)
}

func (c *checkpointer) state(pid int) (string, error) {
	var state C.int
	code := C.cuda_state(c.symbols["cuCheckpointProcessGetState"], C.int(pid), &state)
	switch {
	case code == cudaNotInitialised:
		return "none", nil
	case code == cudaSystem && !alive(pid):
		return "gone", nil
	case code != 0:
		return "", c.failure(code)
	case int(state) >= len(cudaStates) || state < 0:
		return "", fmt.Errorf("unknown state %d", int(state))
	}
	return cudaStates[state], nil
}

// call makes a checkpoint call. Its arguments are 64 bytes, all reserved but
// the time to wait for a lock, which comes first.
func (c *checkpointer) call(symbol string, pid int, ms uint32) error {
	var args [8]uint64
	*(*uint32)(unsafe.Pointer(&args[0])) = ms
	code := C.cuda_call(c.symbols[symbol], C.int(pid), unsafe.Pointer(&args[0]))
	switch {
	case code == 0:
		return nil
	case code == cudaSystem && !alive(pid):
		return errors.New("gone")
	case code == cudaNotReady && ms > 0:
		return fmt.Errorf("its GPU work did not pause within %d ms", ms)
	}
	return c.failure(code)
}

// hold takes memory on a card, so that no other process does.
func (c *checkpointer) hold(uuid string, mib int64) error {
	device, err := c.device(uuid)
	if err != nil {
		return err
	}
	const granule = 2 // MiB
	mib = (mib + granule - 1) / granule * granule
	var handle C.ulonglong
	if code := C.cuda_hold(c.symbols["cuMemCreate"], &handle, C.size_t(mib)<<20, device); code != 0 {
		return c.failure(code)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.holds = append(c.holds, handle)
	return nil
}

func (c *checkpointer) free() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, handle := range c.holds {
		if code := C.cuda_release(c.symbols["cuMemRelease"], handle); code != 0 {
			return c.failure(code)
		}
	}
	c.holds = nil
	return nil
}

// device is CUDA's number of a card.
func (c *checkpointer) device(uuid string) (C.int, error) {
	var count C.int
	if code := C.cuda_count(c.symbols["cuDeviceGetCount"], &count); code != 0 {
		return 0, c.failure(code)
	}
	plain := func(text string) string {
		text = strings.TrimPrefix(strings.TrimPrefix(text, "GPU-"), "MIG-")
		return strings.ReplaceAll(text, "-", "")
	}
	for device := C.int(0); device < count; device++ {
		var id [16]byte
		if C.cuda_uuid(c.symbols["cuDeviceGetUuid_v2"], (*C.uchar)(&id[0]), device) == 0 && hex.EncodeToString(id[:]) == plain(uuid) {
			return device, nil
		}
	}
	return 0, fmt.Errorf("CUDA does not see %s", uuid)
}

func (c *checkpointer) failure(code C.int) error {
	var name *C.char
	if C.cuda_name(c.symbols["cuGetErrorName"], code, &name) == 0 && name != nil {
		return fmt.Errorf("%s (%d)", C.GoString(name), int(code))
	}
	return fmt.Errorf("CUDA error %d", int(code))
}

func alive(pid int) bool {
	_, err := os.Stat("/proc/" + strconv.Itoa(pid))
	return err == nil
}
