package gpu

import (
	"bufio"
	"errors"
	"io"
	"log/slog"
	"sync"
	"time"

	"berth/internal/text"
)

// What a helper may write to berth's log: a library that complains without end
// must not fill a disk.
const (
	maxHelperWord    = 512 // bytes of a line
	maxHelperWords   = 30  // lines in each helperWordsEvery
	helperWordsEvery = time.Minute
)

// helperLog takes what helpers write to their standard error.
type helperLog struct {
	log *slog.Logger

	mu    sync.Mutex
	from  time.Time // the beginning of the minute that is counted
	lines int
	first string // the first line since the last request: what a crash begins with
}

// copy logs lines until there are no more.
func (l *helperLog) copy(words io.Reader) {
	lines := bufio.NewReaderSize(words, maxHelperWord)
	rest := false // of a line that was too long
	for {
		line, err := lines.ReadSlice('\n')
		if !rest {
			l.add(text.Said(string(trimLine(line))))
		}
		rest = errors.Is(err, bufio.ErrBufferFull)
		if err != nil && !rest {
			return
		}
	}
}

func trimLine(line []byte) []byte {
	for len(line) > 0 && (line[len(line)-1] == '\n' || line[len(line)-1] == '\r') {
		line = line[:len(line)-1]
	}
	return line
}

func (l *helperLog) add(line string) {
	if line == "" {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.first == "" {
		l.first = line
	}
	if now := time.Now(); now.Sub(l.from) > helperWordsEvery {
		l.from, l.lines = now, 0
	}
	switch l.lines++; {
	case l.lines < maxHelperWords:
		l.log.Warn("berth-gpu says", "line", line)
	case l.lines == maxHelperWords:
		l.log.Warn("berth-gpu says more than is kept for this minute", "line", line)
	}
}

// listen forgets what was said before a request.
func (l *helperLog) listen() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.first = ""
}

// said is what was said since, as the end of a sentence.
func (l *helperLog) said() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.first == "" {
		return ""
	}
	return ": " + l.first
}
