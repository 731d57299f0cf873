package batch

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"sync"
	"sync/atomic"

	"berth/internal/job/jobfile"
)

// pipe collects the lines of a pipe that may stay open.
type pipe struct {
	taken int         // bytes that were looked at
	over  atomic.Bool // it has ended, and all of it was looked at

	mu    sync.Mutex
	text  []byte
	ended bool
	err   error
}

// openPipe begins to read. It goes on until the pipe ends, or berth does.
func openPipe(path string) *pipe {
	p := &pipe{}
	go func() { p.end(p.readAll(path)) }()
	return p
}

func (p *pipe) readAll(path string) error {
	file, err := os.Open(path)
	if err != nil {
		return unreadable(path, err)
	}
	defer file.Close()
	buffer := make([]byte, 64<<10)
	for {
		n, err := file.Read(buffer)
		p.mu.Lock()
		p.text = append(p.text, buffer[:n]...)
		size := len(p.text)
		p.mu.Unlock()
		switch {
		case err == io.EOF:
			return nil
		case err != nil:
			return unreadable(path, err)
		case size > maxFileBytes:
			return fmt.Errorf("jobs file %s: expected at most %d bytes, found more; the rest is not read", path, maxFileBytes)
		}
	}
}

func (p *pipe) end(err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.ended, p.err = true, err
}

// lines are the whole lines so far; a last one without its newline counts once
// the pipe has ended.
func (p *pipe) lines() (text []byte, ended bool, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	text = p.text
	if !p.ended {
		text = text[:bytes.LastIndexByte(text, '\n')+1]
	}
	return text, p.ended, p.err
}

// lookAtPipe is Look for a pipe. What came out of it cannot be corrected, so a
// line with a mistake is skipped.
func (s *Source) lookAtPipe() (file jobfile.File, changed bool, complaint string) {
	text, ended, err := s.pipe.lines()
	if err != nil {
		complaint = s.once(err.Error())
	}
	if len(text) == s.pipe.taken {
		s.pipe.over.Store(ended)
		return jobfile.File{}, false, complaint
	}
	s.pipe.taken = len(text)
	file, err = s.parse(text)
	if err == nil {
		err = s.check(file)
	}
	if err != nil {
		complaint = s.once(fmt.Sprintf("skipped: %v", err))
	}
	return file, true, complaint
}

// piped are the lines that came through a pipe, and whether that was all.
func (s *Source) piped() (lines []byte, over bool) {
	if s.pipe == nil {
		return s.text, true
	}
	lines, _, _ = s.pipe.lines()
	return bytes.Clone(lines), !s.canGrow()
}

// canGrow reports whether new lines may still come: a pipe may have ended.
func (s *Source) canGrow() bool { return s.pipe == nil || !s.pipe.over.Load() }
