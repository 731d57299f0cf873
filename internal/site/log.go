package site

import (
	"fmt"
	"io"
	"log/slog"
	"os"
	"sync"
)

// A berth's own log is bounded: five old files of this size.
const (
	LogBytes = 10 << 20
	logFiles = 5
)

// Log is a file that is renamed away when it is full.
type Log struct {
	mu    sync.Mutex
	path  string
	limit int64
	perm  os.FileMode
	file  *os.File
	size  int64
	over  bool
}

// OpenLog opens a log that everybody may read, and goes on where it ended.
func OpenLog(path string, maxBytes int64) (*Log, error) { return openLog(path, maxBytes, 0o644) }

// OpenPrivateLog is for the daemon of all users, whose log tells of all of
// them: nobody else may read it.
func OpenPrivateLog(path string, maxBytes int64) (*Log, error) { return openLog(path, maxBytes, 0o600) }

func openLog(path string, maxBytes int64, perm os.FileMode) (*Log, error) {
	l := &Log{path: path, limit: maxBytes, perm: perm}
	if err := l.open(); err != nil {
		return nil, fmt.Errorf("open log: %w", err)
	}
	return l, nil
}

func (l *Log) open() error {
	file, err := os.OpenFile(l.path, os.O_WRONLY|os.O_CREATE|os.O_APPEND, l.perm)
	if err != nil {
		return err
	}
	info, err := file.Stat()
	if err != nil {
		file.Close()
		return err
	}
	l.file, l.size = file, info.Size()
	return nil
}

// Write never fails for its caller: a full disk must not stop the scheduler
// from scheduling.
func (l *Log) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.over {
		return len(p), nil
	}
	if l.size > 0 && l.size+int64(len(p)) > l.limit {
		l.rotate()
	}
	if l.file == nil {
		_ = l.open() // whatever kept it from being opened may have passed
	}
	if l.file != nil {
		n, _ := l.file.Write(p)
		l.size += int64(n)
	}
	return len(p), nil
}

func (l *Log) rotate() {
	l.file.Close()
	l.file, l.size = nil, 0
	for n := logFiles - 1; n >= 1; n-- {
		_ = os.Rename(fmt.Sprintf("%s.%d", l.path, n), fmt.Sprintf("%s.%d", l.path, n+1))
	}
	_ = os.Rename(l.path, l.path+".1")
	_ = l.open() // without a file, lines are dropped until it can be opened
}

// Close ends the log. A line that comes later is dropped.
func (l *Log) Close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.over || l.file == nil {
		l.over = true
		return nil
	}
	l.over = true
	return l.file.Close()
}

// Levels are the words --log-level takes.
var Levels = []string{"debug", "info", "warn", "error"}

// NewLogger writes lines of key=value text from a level on.
func NewLogger(w io.Writer, level string) (*slog.Logger, error) {
	var l slog.Level
	if err := l.UnmarshalText([]byte(level)); err != nil {
		return nil, fmt.Errorf("log level %q: one of %v", level, Levels)
	}
	return slog.New(slog.NewTextHandler(w, &slog.HandlerOptions{Level: l})), nil
}
