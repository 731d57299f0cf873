package batch

import (
	"fmt"
	"log/slog"
	"os"
	"sync"
)

// The scheduler's own log is bounded: five old files of ten MiB.
const (
	logBytes = 10 << 20
	logFiles = 5
)

// rotatingLog is a file that is renamed away when it is full.
type rotatingLog struct {
	mu    sync.Mutex
	path  string
	limit int64
	file  *os.File
	size  int64
}

func openLog(path string, limit int64) (*rotatingLog, error) {
	l := &rotatingLog{path: path, limit: limit}
	if err := l.open(); err != nil {
		return nil, fmt.Errorf("open log: %w", err)
	}
	return l, nil
}

func (l *rotatingLog) open() error {
	file, err := os.OpenFile(l.path, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o644)
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
func (l *rotatingLog) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
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

func (l *rotatingLog) rotate() {
	l.file.Close()
	l.file, l.size = nil, 0
	for n := logFiles - 1; n >= 1; n-- {
		_ = os.Rename(fmt.Sprintf("%s.%d", l.path, n), fmt.Sprintf("%s.%d", l.path, n+1))
	}
	_ = os.Rename(l.path, l.path+".1")
	_ = l.open() // without a file, lines are dropped until it can be opened
}

func (l *rotatingLog) Close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.file == nil {
		return nil
	}
	return l.file.Close()
}

// Levels are the words --log-level takes.
var Levels = []string{"debug", "info", "warn", "error"}

func newLogger(w *rotatingLog, level string) (*slog.Logger, error) {
	var l slog.Level
	if err := l.UnmarshalText([]byte(level)); err != nil {
		return nil, fmt.Errorf("log level %q: one of %v", level, Levels)
	}
	return slog.New(slog.NewTextHandler(w, &slog.HandlerOptions{Level: l})), nil
}
