package batch

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"time"

	"berth/internal/job/jobfile"
	"berth/internal/queue"
)

// maxFileBytes bounds the jobs file; a larger one is refused, not read.
const maxFileBytes = 256 << 20

// fileStamp distinguishes versions of a file without reading it.
type fileStamp struct {
	size    int64
	changed time.Time
	mode    fs.FileMode
}

// read loads the file for the first time, when a malformed file is an error. If
// the file has just changed and its last line has no newline, an editor may
// still be writing, and read waits one poll. A pipe is read to its end, which
// may take long or never come.
func (s *Source) read(ctx context.Context, pause func(time.Duration)) (jobfile.File, error) {
	stamp, err := stampOf(s.opt.File)
	if err != nil {
		return jobfile.File{}, err
	}
	s.stream = stamp.streams()
	if s.stream && s.opt.Watch {
		s.pipe = openPipe(s.opt.File)
		return s.parse(nil)
	}
	if s.stream {
		text, err := queue.Await(ctx, func() ([]byte, error) { return slurp(s.opt.File) })
		if err != nil {
			return jobfile.File{}, err
		}
		s.text = text
		return s.parse(text)
	}
	file, err := s.load()
	if age := time.Since(s.stamp.changed); file.Unterminated && age < s.opt.Poll {
		pause(s.opt.Poll - max(age, 0))
		file, err = s.load()
	}
	if ctx.Err() != nil {
		return jobfile.File{}, context.Cause(ctx)
	}
	s.settled = tailOf(s.text)
	return file, err
}

func (s *Source) load() (jobfile.File, error) {
	stamp, text, err := readFile(s.opt.File)
	if err != nil {
		return jobfile.File{}, err
	}
	s.stamp, s.text = stamp, text
	return s.parse(text)
}

// Look is one poll. changed is set if file is a new version to apply; complaint
// is for the user.
func (s *Source) Look() (file jobfile.File, changed bool, complaint string) {
	if s.pipe != nil {
		return s.lookAtPipe()
	}
	if s.stream {
		return jobfile.File{}, false, ""
	}
	stamp, err := stampOf(s.opt.File)
	if err != nil {
		s.gone = true
		return jobfile.File{}, false, s.once(s.keeping("%v; keeping the last good queue", err))
	}
	if s.gone {
		s.gone, s.complain = false, "" // if it vanishes again, report it again
	}
	if stamp == s.stamp {
		return s.settleTail()
	}
	stamp, text, err := readFile(s.opt.File)
	if err != nil {
		return jobfile.File{}, false, s.once(s.keeping("%v; keeping the last good queue", err))
	}
	same := bytes.Equal(s.text, text)
	s.stamp, s.text = stamp, text
	if same {
		return s.settleTail()
	}
	file, err = s.parse(text)
	s.tail = file.Unterminated && !bytes.Equal(tailOf(text), s.settled)
	if s.tail {
		// An editor may be in the middle of this line: accept the others now,
		// and the line if it has not changed by the next poll.
		file, err = s.parse(withoutTail(text))
	}
	return s.judge(file, err)
}

// settleTail accepts an unterminated last line that has not changed for a poll.
func (s *Source) settleTail() (jobfile.File, bool, string) {
	if !s.tail {
		return jobfile.File{}, false, ""
	}
	s.tail = false
	s.settled = tailOf(s.text)
	return s.judge(s.parse(s.text))
}

// judge turns a parsed file into a new version or a complaint.
func (s *Source) judge(file jobfile.File, err error) (jobfile.File, bool, string) {
	if err == nil {
		err = s.check(file)
	}
	if err != nil {
		return jobfile.File{}, false, s.once(s.keeping("malformed jobs file, keeping the last good queue: %v", err))
	}
	s.complain = ""
	return file, true, ""
}

// keeping is a complaint about a version that is not used; gpusched has one for all.
func (s *Source) keeping(complaint string, err error) string {
	if s.opt.AsGpusched {
		complaint = "jobs file unreadable, keeping previous queue: %v"
	}
	return fmt.Sprintf(complaint, err)
}

func (s *Source) once(complaint string) string {
	if complaint == s.complain {
		return ""
	}
	s.complain = complaint
	return complaint
}

func withoutTail(text []byte) []byte {
	return text[:bytes.LastIndexByte(text, '\n')+1]
}

func tailOf(text []byte) []byte {
	return bytes.Clone(text[bytes.LastIndexByte(text, '\n')+1:])
}

func stampOf(path string) (fileStamp, error) {
	info, err := os.Stat(path)
	if err != nil {
		return fileStamp{}, unreadable(path, err)
	}
	return fileStamp{info.Size(), info.ModTime(), info.Mode()}, nil
}

// unreadable is the error without the name of the system call.
func unreadable(path string, err error) error {
	if failed := (*fs.PathError)(nil); errors.As(err, &failed) {
		err = failed.Err
	}
	return fmt.Errorf("jobs file %s: %w", path, err)
}

func readFile(path string) (fileStamp, []byte, error) {
	stamp, err := stampOf(path)
	if err != nil {
		return stamp, nil, err
	}
	switch {
	case stamp.mode.IsDir():
		return stamp, nil, fmt.Errorf("jobs file %s: expected a file or a pipe, found a directory", path)
	case stamp.streams():
		return stamp, nil, fmt.Errorf("jobs file %s: expected a file, found a pipe, which cannot be read again", path)
	case !stamp.mode.IsRegular():
		return stamp, nil, fmt.Errorf("jobs file %s: expected a file or a pipe, found neither", path)
	case stamp.size > maxFileBytes:
		return stamp, nil, fmt.Errorf("jobs file %s: expected at most %d bytes, found %d", path, maxFileBytes, stamp.size)
	}
	text, err := slurp(path)
	return stamp, text, err
}

// streams reports whether the file can be read only once: a pipe or a terminal.
func (s fileStamp) streams() bool {
	return s.mode&fs.ModeNamedPipe != 0 || s.mode&fs.ModeCharDevice != 0
}

// slurp reads a file to its end. A pipe ends when its last writer closes it.
func slurp(path string) ([]byte, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, unreadable(path, err)
	}
	defer file.Close()
	text, err := io.ReadAll(io.LimitReader(file, maxFileBytes+1))
	if err != nil {
		return nil, unreadable(path, err)
	}
	if len(text) > maxFileBytes {
		return nil, fmt.Errorf("jobs file %s: expected at most %d bytes, found more", path, maxFileBytes)
	}
	return text, nil
}
