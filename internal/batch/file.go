package batch

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"io/fs"
	"os"
	"time"

	"berth/internal/job"
	"berth/internal/jobfile"
	"berth/internal/machine"
)

// maxFileBytes bounds the jobs file; a larger one is refused, not read.
const maxFileBytes = 256 << 20

// watcher looks at the jobs file once a poll. The file belongs to the user:
// it is only ever read.
type watcher struct {
	path     string
	defaults job.Spec
	format   Format
	sizes    jobfile.Sizes            // of the models that a CSV file names
	check    func(jobfile.File) error // of what it reads from now on; nil: none

	stream   bool // a pipe: it was read to its end, and has no second version
	stamp    fileStamp
	text     []byte
	tail     bool   // a last line without its newline waits for a poll to go by
	settled  []byte // such a line that counts already
	gone     bool   // the file was not there at the last look
	complain string // the last complaint, said once
}

// fileStamp tells two versions of a file apart without reading it.
type fileStamp struct {
	size    int64
	changed time.Time
	mode    fs.FileMode
}

// read loads the file for the first time. Here a malformed file is an error.
// A last line without its newline may still be in the making if it was
// written just now; then read waits one poll. A pipe is read to its end, which
// may be long in coming, or never come.
func (w *watcher) read(ctx context.Context, poll time.Duration, pause func(time.Duration)) (jobfile.File, error) {
	stamp, err := stampOf(w.path)
	if err != nil {
		return jobfile.File{}, err
	}
	if w.stream = stamp.streams(); w.stream {
		text, err := machine.Await(ctx, func() ([]byte, error) { return slurp(w.path) })
		if err != nil {
			return jobfile.File{}, err
		}
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

// look is one poll. changed says whether file is a new version to apply;
// complaint is to be shown to the user once.
func (w *watcher) look() (file jobfile.File, changed bool, complaint string) {
	if w.stream {
		return jobfile.File{}, false, ""
	}
	stamp, err := stampOf(w.path)
	if err != nil {
		w.gone = true
		return jobfile.File{}, false, w.once(fmt.Sprintf("%v; the last good queue is kept", err))
	}
	if w.gone {
		w.gone, w.complain = false, "" // should it vanish again, that is news again
	}
	if stamp == w.stamp {
		return w.settleTail()
	}
	stamp, text, err := readFile(w.path)
	if err != nil {
		return jobfile.File{}, false, w.once(fmt.Sprintf("%v; the last good queue is kept", err))
	}
	same := bytes.Equal(w.text, text)
	w.stamp, w.text = stamp, text
	if same {
		return w.settleTail()
	}
	file, err = w.parse(text)
	w.tail = file.Unterminated && !bytes.Equal(tailOf(text), w.settled)
	if w.tail {
		// Perhaps its writer is in the middle of the line: all but that line
		// counts now, the line once it stayed so for a poll.
		file, err = w.parse(withoutTail(text))
	}
	return w.judge(file, err)
}

// settleTail lets an unterminated last line count: a poll went by without a
// change.
func (w *watcher) settleTail() (jobfile.File, bool, string) {
	if !w.tail {
		return jobfile.File{}, false, ""
	}
	w.tail = false
	w.settled = tailOf(w.text)
	return w.judge(w.parse(w.text))
}

// judge is what a poll makes of a file: a new version, or a complaint.
func (w *watcher) judge(file jobfile.File, err error) (jobfile.File, bool, string) {
	if err == nil && w.check != nil {
		err = w.check(file)
	}
	if err != nil {
		return jobfile.File{}, false, w.once(fmt.Sprintf("malformed jobs file, the last good queue is kept: %v", err))
	}
	w.complain = ""
	return file, true, ""
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
		return fileStamp{}, fmt.Errorf("jobs file: %w", err)
	}
	return fileStamp{info.Size(), info.ModTime(), info.Mode()}, nil
}

func readFile(path string) (fileStamp, []byte, error) {
	stamp, err := stampOf(path)
	if err != nil {
		return stamp, nil, err
	}
	switch {
	case stamp.mode.IsDir():
		return stamp, nil, fmt.Errorf("jobs file %s: is a directory", path)
	case stamp.streams():
		return stamp, nil, fmt.Errorf("jobs file %s: has become a pipe, which is not read again", path)
	case !stamp.mode.IsRegular():
		return stamp, nil, fmt.Errorf("jobs file %s: is neither a file nor a pipe", path)
	case stamp.size > maxFileBytes:
		return stamp, nil, fmt.Errorf("jobs file %s: %d bytes; at most %d are read", path, stamp.size, maxFileBytes)
	}
	text, err := slurp(path)
	return stamp, text, err
}

// streams is true of what can be read only once: a pipe, or a terminal.
func (s fileStamp) streams() bool {
	return s.mode&fs.ModeNamedPipe != 0 || s.mode&fs.ModeCharDevice != 0
}

// slurp reads to the end. On a pipe it waits for whoever writes it.
func slurp(path string) ([]byte, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("read jobs file: %w", err)
	}
	defer file.Close()
	text, err := io.ReadAll(io.LimitReader(file, maxFileBytes+1))
	if err != nil {
		return nil, fmt.Errorf("read jobs file: %w", err)
	}
	if len(text) > maxFileBytes {
		return nil, fmt.Errorf("jobs file %s: at most %d bytes are read, and there are more", path, maxFileBytes)
	}
	return text, nil
}
