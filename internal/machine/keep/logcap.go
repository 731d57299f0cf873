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

// A log is also cut while the disk is nearly full, if it has grown since the last
// look: the logs of other jobs are not to blame. A small disk needs less free room.
const (
	logGrowth = 64 << 10
	freeShare = 20 // at most this part of the file system is kept free
)

// logCap limits the size of one log. It has a goroutine of its own, because a
// file system may be slow.
type logCap struct {
	log  *logFile
	max  int64 // 0: no limit
	free int64 // to be left free on its file system; 0: nothing

	told bool // the log says that the disk is nearly full

	ending, done chan struct{}

	// Valid once done is closed.
	dropped int64
	note    string
}

func newLogCap(log *logFile, maxBytes, freeBytes int64) *logCap {
	c := &logCap{log: log, max: maxBytes, free: freeBytes, ending: make(chan struct{}), done: make(chan struct{})}
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
	pause, last := firstLogPause, c.log.from
	for over := false; !over; {
		select {
		case <-time.After(pause):
		case <-c.ending:
			over = true
		}
		size, err := c.look(last)
		if err != nil {
			c.note = "log size limit not enforced: " + err.Error()
			return
		}
		pause = min(2*pause, lastLogPause)
		if size-last > max(c.max/64, logGrowth) {
			pause = firstLogPause
		}
		last = size
	}
}

// look cuts the log if it uses too much space, and returns its length. last is
// its length at the last look.
func (c *logCap) look(last int64) (size int64, err error) {
	var stat syscall.Stat_t
	if err := syscall.Fstat(c.log.fd, &stat); err != nil {
		return 0, err
	}
	used := stat.Blocks * statBlock
	if stat.Size-last > logGrowth && c.nearlyFull() {
		if err := c.cut(stat.Size, used/2); err != nil {
			return 0, err
		}
		if !c.told {
			c.told, c.note = true, "the disk was nearly full, and the middle of the log was dropped"
			_ = c.log.write([]byte("\nberth: the disk is nearly full; the middle of this log was dropped\n")) // the record says it, too
		}
	} else if c.max > 0 && used > c.max {
		return stat.Size, c.cut(stat.Size, c.max)
	}
	return stat.Size, nil
}

// nearlyFull reports whether less is free on the log's file system than should be.
func (c *logCap) nearlyFull() bool {
	var disk syscall.Statfs_t
	if c.free == 0 || syscall.Fstatfs(c.log.fd, &disk) != nil {
		return false
	}
	floor := min(c.free, int64(disk.Blocks)*disk.Bsize/freeShare)
	return int64(disk.Bavail)*disk.Bsize < floor
}

// cut drops the middle of a log of this length, so that it uses about half of most.
func (c *logCap) cut(size, most int64) (err error) {
	head := (min(logHead, most/4) + logAlign - 1) / logAlign * logAlign
	end := (size - most/2) / logAlign * logAlign
	if end <= head {
		return c.shorten()
	}
	const keepSize, punchHole = 1, 2
	err = syscall.Fallocate(c.log.fd, keepSize|punchHole, head, end-head)
	switch {
	case errors.Is(err, syscall.EOPNOTSUPP):
		return errors.New("this file system cannot punch holes into a file")
	case err != nil:
		return fmt.Errorf("fallocate: %w", err)
	}
	c.dropped = max(c.dropped, end-head)
	return c.shorten()
}

// shorten frees the room that a job reserved beyond the end of its log. File
// systems reserve some themselves while a log grows, and a line written at this
// moment would be lost: so it is only for more than that.
func (c *logCap) shorten() error {
	var stat syscall.Stat_t
	if err := syscall.Fstat(c.log.fd, &stat); err != nil || c.max == 0 || stat.Blocks*statBlock <= 2*c.max {
		return err
	}
	return syscall.Ftruncate(c.log.fd, stat.Size)
}
