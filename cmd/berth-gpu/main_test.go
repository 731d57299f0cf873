//go:build cgo

package main

import (
	"bufio"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"time"

	"berth/internal/machine/gpu"
	"berth/internal/tests/fakenvml"
	"berth/internal/tests/testkit"
)

var scratch string

func TestMain(m *testing.M) {
	var err error
	if scratch, err = os.MkdirTemp("", "berth-gpu-test-"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	status := m.Run()
	_ = os.RemoveAll(scratch) // the system clears what is left
	os.Exit(status)
}

// built is the program as people run it.
var built = sync.OnceValues(func() (string, error) {
	return filepath.Join(scratch, "berth-gpu"), testkit.Build(scratch, "", "cmd/berth-gpu")
})

func program(t testing.TB) string {
	t.Helper()
	path, err := built()
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// helper is a running berth-gpu.
type helper struct {
	t       testing.TB
	cmd     *exec.Cmd
	in      *os.File
	page    *os.File
	replies chan gpu.HelperReply
	over    chan struct{}
	id      int64
}

// start runs "berth-gpu serve" on a box.
func start(t testing.TB, box *fakenvml.Box, args ...string) *helper {
	t.Helper()
	page, err := os.CreateTemp(t.TempDir(), "page")
	if err != nil {
		t.Fatal(err)
	}
	if err := page.Truncate(4096); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(page.Name()); err != nil {
		t.Fatal(err)
	}
	inThere, in, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	h := &helper{t: t, in: in, page: page, replies: make(chan gpu.HelperReply), over: make(chan struct{})}
	h.cmd = exec.Command(program(t), append([]string{"serve"}, args...)...)
	h.cmd.Env = append(os.Environ(), box.Env()...)
	h.cmd.Stdin, h.cmd.Stderr, h.cmd.ExtraFiles = inThere, os.Stderr, []*os.File{page}
	out, err := h.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := h.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	inThere.Close()
	go func() {
		defer close(h.over)
		lines := bufio.NewScanner(out)
		lines.Buffer(nil, 1<<22)
		for lines.Scan() {
			var reply gpu.HelperReply
			if err := json.Unmarshal(lines.Bytes(), &reply); err != nil {
				t.Errorf("berth-gpu wrote %q: %v", lines.Text(), err)
			}
			h.replies <- reply
		}
		_ = h.cmd.Wait() // its state says how it ended
	}()
	t.Cleanup(func() {
		in.Close()
		_ = h.cmd.Process.Kill() // it may have ended
		for {
			select {
			case <-h.replies:
			case <-h.over:
				page.Close()
				return
			}
		}
	})
	return h
}

func (h *helper) send(ask gpu.HelperRequest) {
	h.t.Helper()
	h.id++
	ask.ID = h.id
	line, err := json.Marshal(ask)
	if err != nil {
		h.t.Fatal(err)
	}
	h.raw(string(line) + "\n")
}

func (h *helper) raw(text string) {
	h.t.Helper()
	if _, err := h.in.WriteString(text); err != nil {
		h.t.Fatal(err)
	}
}

func (h *helper) receive() gpu.HelperReply {
	h.t.Helper()
	select {
	case reply := <-h.replies:
		return reply
	case <-h.over:
		h.t.Fatalf("berth-gpu ended (%v) instead of answering", h.cmd.ProcessState)
	case <-time.After(testkit.Patience):
		h.t.Fatalf("berth-gpu does not answer; the page says %d", h.pageWord())
	}
	return gpu.HelperReply{}
}

func (h *helper) ask(ask gpu.HelperRequest) gpu.HelperReply {
	h.t.Helper()
	h.send(ask)
	reply := h.receive()
	if reply.ID != h.id {
		h.t.Fatalf("reply %d to request %d", reply.ID, h.id)
	}
	return reply
}

func (h *helper) hello(skip ...int) gpu.Facts {
	h.t.Helper()
	reply := h.ask(gpu.HelperRequest{Do: gpu.HelperHello, Skip: skip})
	if reply.Error != "" || reply.Hello == nil || reply.Hello.Protocol != gpu.HelperProtocol {
		h.t.Fatalf("hello: %+v", reply)
	}
	return reply.Hello.Facts
}

func (h *helper) sample(ask gpu.HelperRequest) gpu.Sample {
	h.t.Helper()
	ask.Do = gpu.HelperSample
	reply := h.ask(ask)
	if reply.Error != "" || reply.Sample == nil {
		h.t.Fatalf("sample: %+v", reply)
	}
	return *reply.Sample
}

func (h *helper) pageWord() uint32 {
	h.t.Helper()
	var word [4]byte
	if _, err := h.page.ReadAt(word[:], 0); err != nil {
		h.t.Fatal(err)
	}
	return binary.NativeEndian.Uint32(word[:])
}

// ended waits for the end and gives its exit status; -1 is a signal.
func (h *helper) ended() int {
	h.t.Helper()
	select {
	case <-h.over:
		return h.cmd.ProcessState.ExitCode()
	case <-time.After(testkit.Patience):
		h.t.Fatal("berth-gpu does not end")
	}
	return 0
}

func (h *helper) terminate() {
	h.t.Helper()
	if err := h.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		h.t.Fatal(err)
	}
}

func uuids(devices []gpu.Device) []string {
	var all []string
	for _, device := range devices {
		all = append(all, device.UUID)
	}
	return all
}
