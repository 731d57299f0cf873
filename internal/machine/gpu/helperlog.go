package gpu

import (
	"bufio"
	"bytes"
	"cmp"
	"errors"
	"io"
	"log/slog"
	"sync"
	"time"

	"berth/internal/text"
)

// Bounds on what a helper may write to berth's log: a library that logs without end
// must not fill a disk.
const (
	maxHelperWord    = 512 // bytes of a line
	maxHelperWords   = 30  // lines in each helperWordsEvery
	helperWordsEvery = time.Minute
)

// helperLog takes what helpers write to standard error.
type helperLog struct {
	log *slog.Logger

	mu    sync.Mutex
	from  time.Time // the start of the minute being counted
	lines int
	first string // the first line since the last request, such as the start of a crash report
}

// copy logs lines until the end of the stream.
func (l *helperLog) copy(words io.Reader) {
	lines := bufio.NewReaderSize(words, maxHelperWord)
	rest := false // of a line that was too long
	for {
		line, err := lines.ReadSlice('\n')
		if !rest {
			l.add(text.Said(string(bytes.TrimRight(line, "\r\n"))))
		}
		rest = errors.Is(err, bufio.ErrBufferFull)
		if err != nil && !rest {
			return
		}
	}
}

func (l *helperLog) add(line string) {
	if line == "" {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.first = cmp.Or(l.first, line)
	if now := time.Now(); now.Sub(l.from) > helperWordsEvery {
		l.from, l.lines = now, 0
	}
	switch l.lines++; {
	case l.lines < maxHelperWords:
		l.log.Warn("berth-gpu wrote", "line", line)
	case l.lines == maxHelperWords:
		l.log.Warn("berth-gpu wrote too much; further lines of this minute are dropped", "line", line)
	}
}

// listen forgets the lines before a request.
func (l *helperLog) listen() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.first = ""
}

// said is the first line since then, as the end of a sentence.
func (l *helperLog) said() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.first == "" {
		return ""
	}
	return ": " + l.first
}
