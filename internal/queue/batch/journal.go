package batch

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"berth/internal/job"
)

// record is one line of journal.jsonl and of --json: a stable contract.
type record struct {
	Seq   int64         `json:"seq,omitempty"`
	Time  time.Time     `json:"time"`
	Event job.EventKind `json:"event"`
	Text  string        `json:"text,omitempty"`
	Job   *job.View     `json:"job,omitempty"`
}

func toRecord(ev job.Event) record {
	r := record{Seq: ev.Seq, Time: ev.At, Event: ev.Kind, Text: ev.Text}
	if ev.Job != nil {
		view := ev.Job.View()
		r.Job = &view
	}
	return r
}

// journal is the append-only event log. The store is authoritative; after a
// crash the journal is brought up to date from it.
type journal struct {
	file   *os.File
	size   int64
	last   int64 // the highest event number in it
	behind bool  // a write failed; the store has what is missing
}

// openJournal opens the file, drops an incomplete last line, and finds the last
// event in it.
func openJournal(path string) (*journal, error) {
	file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o644)
	if err != nil {
		return nil, fmt.Errorf("open journal: %w", err)
	}
	last, end, err := lastRecord(file)
	if err == nil {
		err = file.Truncate(end)
	}
	if err != nil {
		file.Close()
		return nil, fmt.Errorf("open journal %s: %w", path, err)
	}
	return &journal{file: file, size: end, last: last}, nil
}

// lastRecord reads the last part of the journal first, and more as long as it
// holds no whole record: a record can be long, since a command of unprintable
// bytes takes six times its length as JSON.
const (
	tailBytes    = 4 << 20
	maxTailBytes = 128 << 20 // several times the longest record
)

// lastRecord finds the number of the last event and the end of the last whole
// line.
func lastRecord(file *os.File) (seq, end int64, err error) {
	size, err := file.Seek(0, io.SeekEnd)
	if err != nil {
		return 0, 0, err
	}
	for length := int64(tailBytes); ; length *= 2 {
		from := max(0, size-length)
		tail := make([]byte, size-from)
		if _, err := file.ReadAt(tail, from); err != nil {
			return 0, 0, err
		}
		seq, cutAt := lastIn(tail)
		if seq > 0 || from == 0 {
			return seq, from + int64(cutAt), nil
		}
		if length >= maxTailBytes {
			return 0, 0, fmt.Errorf("its last %d MiB hold no record; move it away", maxTailBytes>>20)
		}
	}
}

// lastIn is the last event in a text that may begin and end in the middle of a
// line, and the end of its last whole line.
func lastIn(tail []byte) (seq int64, cutAt int) {
	cutAt = bytes.LastIndexByte(tail, '\n') + 1
	for rest := bytes.TrimRight(tail[:cutAt], "\n"); len(rest) > 0; {
		start := bytes.LastIndexByte(rest, '\n') + 1
		var r record
		if json.Unmarshal(rest[start:], &r) == nil && r.Seq > 0 {
			return r.Seq, cutAt
		}
		rest = rest[:max(start-1, 0)]
	}
	return 0, cutAt
}

// append writes the events that the journal does not have yet.
func (w *journal) append(events []job.Event) error {
	var buffer bytes.Buffer
	last := w.last
	for _, ev := range events {
		if ev.Seq <= last {
			continue // not stored, or written before a crash
		}
		last = ev.Seq
		line, err := encodeLine(toRecord(ev))
		if err != nil {
			return fmt.Errorf("journal event %d: %w", ev.Seq, err)
		}
		buffer.Write(line)
		buffer.WriteByte('\n')
	}
	if buffer.Len() == 0 {
		return nil
	}
	if _, err := w.file.WriteAt(buffer.Bytes(), w.size); err != nil {
		// Half a line is worse than no line.
		w.behind = true
		return errors.Join(fmt.Errorf("write journal: %w", err), w.file.Truncate(w.size))
	}
	w.size += int64(buffer.Len())
	w.last = last
	return nil
}

// eventSource is the part of the store that the journal needs.
type eventSource interface {
	EventsAfter(seq int64, limit int) ([]job.Event, error)
}

// catchUp writes the events that the store has and the journal lacks.
func (w *journal) catchUp(source eventSource) error {
	for {
		events, err := source.EventsAfter(w.last, 1000)
		if err != nil {
			return fmt.Errorf("read events for the journal: %w", err)
		}
		if len(events) == 0 {
			w.behind = false
			return nil
		}
		if err := w.append(events); err != nil {
			return err
		}
	}
}

func (w *journal) Close() error { return w.file.Close() }
