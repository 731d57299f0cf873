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

	"berth/internal/job"
	"berth/internal/job/jobfile"
	"berth/internal/queue"
)

// maxFileBytes bounds the jobs file; a larger one is refused, not read.
const maxFileBytes = 256 << 20

// watcher looks at the jobs file once a poll. It only reads the file, which
// belongs to the user.
type watcher struct {
	path     string
	dir      string // where relative paths of models begin
	defaults job.Spec
	format   Format
	sizes    jobfile.Sizes            // of the models named in a CSV file
	check    func(jobfile.File) error // a check of every new version; nil: none

	asGpusched bool // lines are read as gpusched reads them

	stream   bool // a pipe: it was read to its end, and cannot change
	live     bool // lines of a pipe count as they come
	pipe     *pipe
	stamp    fileStamp
	text     []byte
	tail     bool   // a last line without its newline waits for the next poll
	settled  []byte // such a line that has been accepted
	gone     bool   // the file was missing at the last poll
	complain string // the last complaint, reported once
}

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
func (w *watcher) read(ctx context.Context, poll time.Duration, pause func(time.Duration)) (jobfile.File, error) {
	stamp, err := stampOf(w.path)
	if err != nil {
		return jobfile.File{}, err
	}
	w.stream = stamp.streams()
	if w.stream && w.live {
		w.pipe = openPipe(w.path)
		return w.parse(nil)
	}
	if w.stream {
		text, err := queue.Await(ctx, func() ([]byte, error) { return slurp(w.path) })
		if err != nil {
			return jobfile.File{}, err
		}
		w.text = text
		return w.parse(text)
	}
	file, err := w.load()
	if age := time.Since(w.stamp.changed); file.Unterminated && age < poll {
		pause(poll - max(age, 0))
		file, err = w.load()
	}
	if ctx.Err() != nil {
		return jobfile.File{}, context.Cause(ctx)
	}
	w.settled = tailOf(w.text)
	return file, err
}

func (w *watcher) load() (jobfile.File, error) {
	stamp, text, err := readFile(w.path)
	if err != nil {
		return jobfile.File{}, err
	}
	w.stamp, w.text = stamp, text
	return w.parse(text)
}

// look is one poll. changed is set if file is a new version to apply; complaint
// is for the user.
func (w *watcher) look() (file jobfile.File, changed bool, complaint string) {
	if w.pipe != nil {
		return w.lookAtPipe()
	}
	if w.stream {
		return jobfile.File{}, false, ""
	}
	stamp, err := stampOf(w.path)
	if err != nil {
		w.gone = true
		return jobfile.File{}, false, w.once(w.keeping("%v; keeping the last good queue", err))
	}
	if w.gone {
		w.gone, w.complain = false, "" // if it vanishes again, report it again
	}
	if stamp == w.stamp {
		return w.settleTail()
	}
	stamp, text, err := readFile(w.path)
	if err != nil {
		return jobfile.File{}, false, w.once(w.keeping("%v; keeping the last good queue", err))
	}
	same := bytes.Equal(w.text, text)
	w.stamp, w.text = stamp, text
	if same {
		return w.settleTail()
	}
	file, err = w.parse(text)
	w.tail = file.Unterminated && !bytes.Equal(tailOf(text), w.settled)
	if w.tail {
		// An editor may be in the middle of this line: accept the others now,
		// and the line if it has not changed by the next poll.
		file, err = w.parse(withoutTail(text))
	}
	return w.judge(file, err)
}

// settleTail accepts an unterminated last line that has not changed for a poll.
func (w *watcher) settleTail() (jobfile.File, bool, string) {
	if !w.tail {
		return jobfile.File{}, false, ""
	}
	w.tail = false
	w.settled = tailOf(w.text)
	return w.judge(w.parse(w.text))
}

// judge turns a parsed file into a new version or a complaint.
func (w *watcher) judge(file jobfile.File, err error) (jobfile.File, bool, string) {
	if err == nil && w.check != nil {
		err = w.check(file)
	}
	if err != nil {
		return jobfile.File{}, false, w.once(w.keeping("malformed jobs file, keeping the last good queue: %v", err))
	}
	w.complain = ""
	return file, true, ""
}

// keeping is a complaint about a version that is not used; gpusched has one for all.
func (w *watcher) keeping(complaint string, err error) string {
	if w.asGpusched {
		complaint = "jobs file unreadable, keeping previous queue: %v"
	}
	return fmt.Sprintf(complaint, err)
}

func (w *watcher) once(complaint string) string {
	if complaint == w.complain {
		return ""
	}
	w.complain = complaint
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
