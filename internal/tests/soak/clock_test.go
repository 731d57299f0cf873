package soak

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"fmt"
	"io"
	"os"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"berth/internal/job"
	"berth/internal/tests/testkit"
)

// clockCode replaces a process's clock_gettime: it asks the kernel, and adds the
// eight bytes behind it to the seconds of CLOCK_REALTIME. Monotonic clocks stay
// as they are, as when somebody sets the clock.
var clockCode = []byte{
	0xb8, 0xe4, 0x00, 0x00, 0x00, // mov eax, SYS_clock_gettime
	0x0f, 0x05, // syscall
	0x85, 0xff, // test edi, edi
	0x75, 0x0a, // jnz over the next two
	0x48, 0x8b, 0x0d, 0x04, 0x00, 0x00, 0x00, // mov rcx, [rip+4]
	0x48, 0x01, 0x0e, // add [rsi], rcx
	0xc3, // ret
}

// setClock lets a process see another time from now on, and nobody else: it
// rewrites the kernel's page of clock code in that process.
func setClock(t *testing.T, pid int, by time.Duration) {
	t.Helper()
	if runtime.GOARCH != "amd64" || os.Getuid() != 0 {
		t.Skip("setting one process's clock needs root on amd64")
	}
	mem, err := os.OpenFile(fmt.Sprintf("/proc/%d/mem", pid), os.O_RDWR, 0)
	testkit.Must(t, err)
	defer mem.Close()
	var from, to int64
	for row := range strings.Lines(testkit.Read(t, fmt.Sprintf("/proc/%d/maps", pid))) {
		if strings.HasSuffix(strings.TrimSpace(row), "[vdso]") {
			fmt.Sscanf(row, "%x-%x", &from, &to)
		}
	}
	page := make([]byte, to-from)
	if _, err := io.ReadFull(io.NewSectionReader(mem, from, to-from), page); err != nil || from == 0 {
		t.Skipf("the process has no page of clock code: %v", err)
	}
	image, err := elf.NewFile(bytes.NewReader(page))
	testkit.Must(t, err)
	symbols, err := image.DynamicSymbols()
	testkit.Must(t, err)
	for _, s := range symbols {
		if s.Name != "__vdso_clock_gettime" {
			continue
		}
		// The code goes to the page's end, which is padding, and a jump to it to
		// the beginning of the function.
		at := len(page) - 64
		code := binary.LittleEndian.AppendUint64(bytes.Clone(clockCode), uint64(int64(by/time.Second)))
		jump := binary.LittleEndian.AppendUint32([]byte{0xe9}, uint32(int32(int64(at)-int64(s.Value)-5)))
		testkit.Must(t, syscall.Kill(pid, syscall.SIGSTOP))
		_, first := mem.WriteAt(code, from+int64(at))
		_, second := mem.WriteAt(jump, from+int64(s.Value))
		testkit.Must(t, first, second, syscall.Kill(pid, syscall.SIGCONT))
		return
	}
	t.Skip("the kernel's clock code has another name here")
}

// TestClockSet sets the clock under a daemon and its supervisors. Time limits and
// retries go by the time that passed, a begin time by the clock, and no job is
// said to have run for a year or for less than nothing.
func TestClockSet(t *testing.T) {
	const year = 365 * 24 * time.Hour
	for _, by := range []time.Duration{time.Hour, -time.Hour, year, -year} {
		t.Run(by.String(), func(t *testing.T) {
			t.Parallel()
			h := newHost(t, 4)
			b := h.up()
			lines := []line{
				{number: 1, block: "timeout=2h", cards: 1, alone: true, kind: "gated", code: 3},
				{number: 2, block: "timeout=3s grace=0.1s", cards: 1, alone: true, kind: "stubborn", hold: forever, ends: "timeout"},
				{number: 3, block: "retries=1 retry_on=fail", cards: 1, alone: true, kind: "fails", retried: true},
				{number: 4, block: "begin=now+1h", cards: 1, alone: true, kind: "plain", code: 5},
			}
			ids := h.submit(lines...)
			testkit.Eventually(t, "they run", func() bool { return h.wrote("ready 1 1") && h.wrote("ready 2 1") && h.wrote("end 3 1 9") })
			setClock(t, b.cmd.Process.Pid, by)
			for _, p := range h.keeps() {
				setClock(t, p.pid, by)
			}
			h.becomes(ids[2], job.Finished)
			h.becomes(ids[1], job.Failed)
			if by > 0 {
				h.becomes(ids[3], job.Failed)
			}
			// The next daemon sees the clock as it was, which sets it once more.
			b.kill()
			b = h.up()
			if state := h.job(ids[0]).State; state != job.Running {
				t.Errorf("a job with a limit of 2 hours is %s", state)
			}
			if by < 0 {
				h.says(ids[3], "not before")
				h.cli("cancel", ids[3])
			}
			h.openGate()
			h.drain()
			for i, l := range lines[:3] {
				v := h.job(ids[i])
				if outcome(v) != l.outcome() || v.Attempt != l.attempts() {
					t.Errorf("job %s ended %q in attempt %d", ids[i], outcome(v), v.Attempt)
				}
				if ran := v.EndedAt.Sub(*v.StartedAt); ran < 0 || ran > 10*time.Minute {
					t.Errorf("job %s is said to have run for %s", ids[i], ran)
				}
			}
			h.mustBeSound(lines)
			h.down(b)
			h.mustBeClean()
		})
	}
}
