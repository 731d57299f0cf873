package site

import (
	"fmt"
	"io"
	"log/slog"
	"os"
	"strings"
	"sync"
)

// berth's own log is bounded: this size, and so many old files of it.
const (
	LogBytes = 10 << 20
	logFiles = 5
)

// Log is a log file that is rotated when it is full.
type Log struct {
	mu    sync.Mutex
	path  string
	limit int64
	perm  os.FileMode
	file  *os.File
	size  int64
	over  bool
}

// OpenLog opens or continues a log that all users may read.
func OpenLog(path string, maxBytes int64) (*Log, error) { return openLog(path, maxBytes, 0o644) }

// OpenPrivateLog is for the shared daemon: its log mentions all users, so only
// root may read it.
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

// Write never returns an error: a full disk must not stop the scheduler.
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
		_ = l.open() // the reason it failed before may be gone
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

// Close closes the log; later lines are dropped.
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

// Levels are the values of --log-level.
var Levels = []string{"debug", "info", "warn", "error"}

// NewLogger writes records of at least this level as key=value text.
func NewLogger(w io.Writer, level string) (*slog.Logger, error) {
	var l slog.Level
	if err := l.UnmarshalText([]byte(level)); err != nil {
		return nil, fmt.Errorf("expected a log level (%s), found %q", strings.Join(Levels, ", "), level)
	}
	return slog.New(slog.NewTextHandler(w, &slog.HandlerOptions{Level: l})), nil
}
