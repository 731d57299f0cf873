package keep

import (
	"bytes"
	"fmt"
	"hash/crc32"
	"strconv"
	"strings"
	"time"
)

// A block is text, so that a person can read it with cat:
//
//	berth-keep 1
//	state="ended"
//	...
//	sum=1a2b3c4d
//
// padded with zeros. The sum covers everything before its own line.
const (
	blockHeader = "berth-keep 1\n"
	sumLine     = "sum=%08x\n"
)

// The room for the strings of a record, quoted. A path that does not fit is
// omitted, since half a path names something else; a message is truncated.
const (
	maxPathQuoted  = 1000
	maxTextQuoted  = 300
	maxShortQuoted = 120
)

// visit passes every field with its key, in the order of a block.
func (r *Record) visit(c *codec) {
	c.text("state", (*string)(&r.State))
	c.uint("seq", &r.Seq)
	c.text("token", &r.Token)
	c.text("job", &r.Job)
	c.int("attempt", &r.Attempt)
	c.int("protocol", &r.Protocol)
	c.text("boot_id", &r.BootID)
	c.int("keep_pid", &r.KeepPID)
	c.uint("keep_start_ticks", &r.KeepStart)
	c.int("pid", &r.PID)
	c.uint("pid_start_ticks", &r.PIDStart)
	c.int("session", &r.Session)
	c.int("uid", &r.UID)
	c.text("cgroup", &r.Cgroup)
	c.text("log", &r.Log)
	c.int64("log_from", &r.LogFrom)
	c.bool("pty", &r.Pty)
	c.time("started_at", &r.StartedAt)
	c.time("ended_at", &r.EndedAt)
	c.span("elapsed_ms", &r.Elapsed, time.Millisecond)
	c.int("exit_code", &r.ExitCode)
	c.int("signal", &r.Signal)
	c.bool("core", &r.Core)
	c.text("stop", &r.Stop)
	c.text("launch", &r.Launch)
	c.bool("scarce", &r.Scarce)
	c.bool("setup_failed", &r.SetupFailed)
	c.int("stragglers", &r.Stragglers)
	c.bool("oom", &r.OOM)
	c.bool("memory_killed", &r.MemoryKilled)
	c.int64("peak_mem_kib", &r.PeakMemKiB)
	c.int64("log_dropped", &r.LogDropped)
	c.time("saved_at", &r.Saved)
	c.int64("max_rss_kib", &r.MaxRSSKiB)
	c.span("user_ms", &r.User, time.Millisecond)
	c.span("sys_ms", &r.Sys, time.Millisecond)
	c.int("parkings", &r.Parkings)
	c.span("parked_ms", &r.Parked, time.Millisecond)
	c.text("note", &r.Note)
}

// Encode renders the record as one block of BlockSize bytes.
func (r Record) Encode() []byte {
	for _, path := range []*string{&r.Cgroup, &r.Log} {
		if !fits(*path, maxPathQuoted) {
			*path = ""
		}
	}
	for _, text := range []*string{&r.Launch, &r.Note} {
		*text = cut(*text, maxTextQuoted)
	}
	for _, word := range []*string{(*string)(&r.State), &r.Token, &r.Job, &r.BootID, &r.Stop} {
		*word = cut(*word, maxShortQuoted)
	}
	c := codec{fields: make([]Field, 0, 64), quoted: true}
	r.visit(&c)
	block := append(make([]byte, 0, BlockSize), blockHeader...)
	for _, f := range c.fields {
		block = append(append(append(append(block, f.Key...), '='), f.Value...), '\n')
	}
	block = fmt.Appendf(block, sumLine, crc32.ChecksumIEEE(block))
	if len(block) > BlockSize {
		panic("bug: a record does not fit its block")
	}
	return block[:BlockSize]
}

// DecodeRecord reads a block. It skips unknown keys: a later supervisor may
// write more.
func DecodeRecord(block []byte) (Record, error) {
	if len(block) != BlockSize {
		return Record{}, fmt.Errorf("%w: %d bytes", errDamaged, len(block))
	}
	text, padding, _ := bytes.Cut(block, []byte{0})
	if len(bytes.Trim(padding, "\x00")) > 0 {
		return Record{}, fmt.Errorf("%w: bytes after its end", errDamaged)
	}
	if len(text) == 0 {
		return Record{}, errBlank
	}
	at := bytes.LastIndex(text, []byte("\nsum="))
	if !bytes.HasPrefix(text, []byte(blockHeader)) || at < 0 {
		return Record{}, fmt.Errorf("%w: no header or sum", errDamaged)
	}
	body, sum := text[:at+1], text[at+1:]
	if want := fmt.Appendf(nil, sumLine, crc32.ChecksumIEEE(body)); !bytes.Equal(sum, want) {
		return Record{}, fmt.Errorf("%w: wrong sum", errDamaged)
	}
	return decodeLines(string(body[len(blockHeader):]))
}

func decodeLines(body string) (Record, error) {
	var r Record
	c := codec{fields: make([]Field, 0, 64), reading: true, quoted: true}
	for line := range strings.Lines(body) {
		key, value, found := strings.Cut(strings.TrimSuffix(line, "\n"), "=")
		if !found {
			return Record{}, fmt.Errorf("%w: line without a key", errDamaged)
		}
		c.put(key, value)
	}
	if r.visit(&c); c.err != nil {
		return Record{}, fmt.Errorf("%w: %w", errDamaged, c.err)
	}
	switch r.State {
	case Idle, Started, Ended:
		return r, nil
	}
	return Record{}, fmt.Errorf("%w: state %q", errDamaged, r.State)
}

// fits reports whether a text is within the limit when quoted. Quoting makes at
// most four bytes of one.
func fits(s string, limit int) bool { return 4*len(s)+2 <= limit || len(strconv.Quote(s)) <= limit }

// cut truncates a text until it fits.
func cut(s string, limit int) string {
	for !fits(s, limit) {
		s = s[:len(s)-1-len(s)/16]
	}
	return s
}
