package keep

import (
	"errors"
	"fmt"
	"syscall"
	"time"
)

// How often a log is checked: often while it grows, rarely while it does not.
// In between it may exceed its limit.
const (
	firstLogPause = time.Second
	lastLogPause  = 5 * time.Second
)

// How a log that is too large is cut: this much of its beginning stays, and
// half of its limit of the newest part, so that it is not cut again at once.
// Offsets do not change: the middle becomes a hole.
const (
	logHead  = 1 << 20
	logAlign = 4096

	statBlock = 512 // the unit in which the kernel counts room
)

// logCap limits the size of one log. It has a goroutine of its own, because a
// file system may be slow.
type logCap struct {
	log *logFile
	max int64

	ending, done chan struct{}

	// Valid once done is closed.
	dropped int64
	note    string
}

func newLogCap(log *logFile, maxBytes int64) *logCap {
	c := &logCap{log: log, max: maxBytes, ending: make(chan struct{}), done: make(chan struct{})}
	go c.watch()
	return c
}

// stop checks a last time and waits until that is done.
func (c *logCap) stop() {
	close(c.ending)
	<-c.done
}

func (c *logCap) watch() {
	defer close(c.done)
	pause, last := firstLogPause, int64(0)
	for over := false; !over; {
		select {
		case <-time.After(pause):
		case <-c.ending:
			over = true
		}
		size, err := c.look()
		if err != nil {
			c.note = "log size limit not enforced: " + err.Error()
			return
		}
		pause = min(2*pause, lastLogPause)
		if size-last > c.max/64 {
			pause = firstLogPause
		}
		last = size
	}
}

// look cuts the log if it uses too much space, and returns its length.
func (c *logCap) look() (size int64, err error) {
	var stat syscall.Stat_t
	if err := syscall.Fstat(c.log.fd, &stat); err != nil {
		return 0, err
	}
	if stat.Blocks*statBlock <= c.max {
		return stat.Size, nil
	}
	head := (min(logHead, c.max/4) + logAlign - 1) / logAlign * logAlign
	end := (stat.Size - c.max/2) / logAlign * logAlign
	if end <= head {
		return stat.Size, c.shorten()
	}
	const keepSize, punchHole = 1, 2
	err = syscall.Fallocate(c.log.fd, keepSize|punchHole, head, end-head)
	switch {
	case errors.Is(err, syscall.EOPNOTSUPP):
		return 0, errors.New("this file system cannot punch holes into a file")
	case err != nil:
		return 0, fmt.Errorf("fallocate: %w", err)
	}
	c.dropped = end - head
	return stat.Size, c.shorten()
}

// shorten frees the room that a job reserved beyond the end of its log. File
// systems reserve some themselves while a log grows, and a line written at this
// moment would be lost: so it is only for more than that.
func (c *logCap) shorten() error {
	var stat syscall.Stat_t
	if err := syscall.Fstat(c.log.fd, &stat); err != nil || stat.Blocks*statBlock <= 2*c.max {
		return err
	}
	return syscall.Ftruncate(c.log.fd, stat.Size)
}
