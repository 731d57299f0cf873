package gpu

import (
	"errors"
	"fmt"
	"io"
	"os"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"berth/internal/text"
)

const (
	kernelLogPath = "/dev/kmsg"
	// kernelLogBack is the age up to which messages from before berth's start
	// count: the card may still be in that state.
	kernelLogBack  = 5 * time.Minute
	maxKernelLine  = 16 << 10 // bytes; the kernel truncates a record at 8 KiB
	maxKernelText  = 200      // bytes kept of a message
	kernelFacility = 8        // facilities from this one on are not the kernel's
)

// kernelLog follows the kernel log for the driver's messages about cards:
// NVML's events need a working NVML, and a card that has fallen off the bus
// sends none.
type kernelLog struct {
	file *os.File
	done chan struct{}
	live atomic.Bool // all records from before berth's start have been read

	mu   sync.Mutex
	xids []Xid
	err  error // why it is not followed any more
}

// openKernelLog follows the log at path. Each read returns one record.
func openKernelLog(path string) (*kernelLog, error) {
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("read the kernel log: %w", err)
	}
	k := &kernelLog{file: os.NewFile(uintptr(fd), path), done: make(chan struct{})}
	go k.follow()
	return k, nil
}

// follow reads until the log is closed. The first read returns the oldest
// record in the kernel's buffer; records that are too old are skipped.
func (k *kernelLog) follow() {
	defer close(k.done)
	buffer := make([]byte, maxKernelLine)
	oldest := sinceBoot() - kernelLogBack
	for {
		n, err := k.read(buffer)
		switch {
		case errors.Is(err, unix.EPIPE), errors.Is(err, unix.EINTR):
			continue // records were overwritten before they were read
		case err != nil:
			k.mu.Lock()
			k.err = err
			k.mu.Unlock()
			return
		}
		for line := range strings.Lines(string(buffer[:n])) {
			age, xid, found := parseKernelRecord(line)
			if found && (k.live.Load() || age >= oldest) {
				xid.At = k.at(age)
				k.add(xid)
			}
		}
	}
}

// read takes the next record, and notes when there are no more.
func (k *kernelLog) read(buffer []byte) (n int, err error) {
	raw, err := k.file.SyscallConn()
	if err != nil {
		return 0, err
	}
	waitErr := raw.Read(func(fd uintptr) bool {
		n, err = unix.Read(int(fd), buffer)
		if errors.Is(err, unix.EAGAIN) {
			k.live.Store(true)
			return false // wait for more
		}
		return true
	})
	switch {
	case waitErr != nil:
		return 0, waitErr
	case err == nil && n == 0:
		return 0, io.EOF
	}
	return n, err
}

// at is when a message was written. The log's clock is never corrected and is
// minutes off after months, so a record that is read as it arrives counts as
// written now.
func (k *kernelLog) at(age time.Duration) time.Time {
	if k.live.Load() {
		return time.Now()
	}
	return time.Now().Add(age - sinceBoot())
}

func (k *kernelLog) add(xid Xid) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.xids = append(k.xids, xid)
	k.xids = k.xids[max(0, len(k.xids)-maxXids):]
}

// drain returns what was read since the last call.
func (k *kernelLog) drain() []Xid {
	k.mu.Lock()
	defer k.mu.Unlock()
	xids := k.xids
	k.xids = nil
	return xids
}

// broken is why the log is not followed any more; nil if it is.
func (k *kernelLog) broken() error {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.err
}

func (k *kernelLog) Close() error {
	err := k.file.Close()
	<-k.done
	return err
}

// sinceBoot is the clock of the kernel log.
func sinceBoot() time.Duration {
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &now); err != nil {
		panic("bug: " + err.Error())
	}
	return time.Duration(now.Nano())
}

// The driver's messages, compiled on first use to keep berth's start fast.
var (
	xidLine = sync.OnceValue(func() *regexp.Regexp {
		return regexp.MustCompile(`^NVRM: Xid \((?:PCI:)?([0-9A-Fa-f]{1,8}:[0-9A-Fa-f]{1,2}:[0-9A-Fa-f]{1,2}(?:\.[0-7])?)\): ([0-9]{1,6})(?:, )?(.*)`)
	})
	goneLine = sync.OnceValue(func() *regexp.Regexp {
		return regexp.MustCompile(`^NVRM: .*?([0-9A-Fa-f]{1,8}:[0-9A-Fa-f]{1,2}:[0-9A-Fa-f]{1,2}(?:\.[0-7])?)\b.*(has fallen off the bus.*)`)
	})
)

// parseKernelRecord reads a record of /dev/kmsg:
//
//	4,1766,13626051556,-;NVRM: Xid (PCI:0000:3b:00): 79, pid=42, GPU has fallen off the bus.
//
// priority and facility, a number, microseconds since boot, flags. Records that
// the kernel did not write are ignored, and so are those that do not begin like
// the driver's: others quote text that a user chose, such as a file name or a
// mount option.
func parseKernelRecord(line string) (since time.Duration, xid Xid, found bool) {
	head, text, _ := strings.Cut(line, ";")
	if !strings.HasPrefix(text, "NVRM: ") {
		return 0, Xid{}, false
	}
	fields := strings.Split(head, ",")
	if len(fields) < 3 {
		return 0, Xid{}, false
	}
	priority, err := strconv.ParseUint(fields[0], 10, 32)
	micros, err2 := strconv.ParseInt(fields[2], 10, 64)
	if err != nil || err2 != nil || priority >= kernelFacility || micros < 0 || micros > int64(1<<62)/1000 {
		return 0, Xid{}, false
	}
	text = strings.TrimSpace(text)
	if match := xidLine().FindStringSubmatch(text); match != nil {
		xid.Code, _ = strconv.Atoi(match[2]) // the pattern has digits only
		xid.BusID, xid.Text = kernelBusID(match[1]), kernelText(match[3])
	} else if match := goneLine().FindStringSubmatch(text); match != nil {
		xid.BusID, xid.Text = kernelBusID(match[1]), kernelText("GPU "+match[2])
	}
	if xid.BusID == "" {
		return 0, Xid{}, false
	}
	return time.Duration(micros) * time.Microsecond, xid, true
}

// kernelBusID is a bus address in the form of the log: without the function.
func kernelBusID(id string) string {
	id, _, _ = strings.Cut(normalBusID(id), ".")
	return id
}

func kernelText(written string) string {
	return text.Said(text.Clip(written, maxKernelText))
}
