package keep

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
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
const blockHeader = "berth-keep 1\n"

// The room for the strings of a record, quoted. A path that does not fit is
// omitted, since half a path names something else; a message is truncated.
const (
	maxPathQuoted  = 1000
	maxTextQuoted  = 300
	maxShortQuoted = 120
)

// visit passes every field with its key, in the order of a block. Writing and
// reading are two visitors of this one list. It allocates nothing: a
// supervisor writes several blocks for each of its jobs.
func (r *Record) visit(v visitor) {
	v.text("state", (*string)(&r.State), maxShortQuoted, cut)
	v.uint("seq", &r.Seq)
	v.text("token", &r.Token, maxShortQuoted, cut)
	v.text("job", &r.Job, maxShortQuoted, cut)
	v.int("attempt", &r.Attempt)
	v.int("protocol", &r.Protocol)
	v.text("boot_id", &r.BootID, maxShortQuoted, cut)
	v.int("keep_pid", &r.KeepPID)
	v.uint("keep_start_ticks", &r.KeepStart)
	v.int("pid", &r.PID)
	v.uint("pid_start_ticks", &r.PIDStart)
	v.int("session", &r.Session)
	v.int("uid", &r.UID)
	v.text("cgroup", &r.Cgroup, maxPathQuoted, leaveOut)
	v.text("log", &r.Log, maxPathQuoted, leaveOut)
	v.int64("log_from", &r.LogFrom)
	v.bool("pty", &r.Pty)
	v.time("started_at", &r.StartedAt)
	v.time("ended_at", &r.EndedAt)
	v.millis("elapsed_ms", &r.Elapsed)
	v.int("exit_code", &r.ExitCode)
	v.int("signal", &r.Signal)
	v.bool("core", &r.Core)
	v.text("stop", &r.Stop, maxShortQuoted, cut)
	v.text("launch", &r.Launch, maxTextQuoted, cut)
	v.bool("scarce", &r.Scarce)
	v.bool("setup_failed", &r.SetupFailed)
	v.int("stragglers", &r.Stragglers)
	v.bool("oom", &r.OOM)
	v.bool("memory_killed", &r.MemoryKilled)
	v.int64("peak_mem_kib", &r.PeakMemKiB)
	v.int64("log_dropped", &r.LogDropped)
	v.int64("max_rss_kib", &r.MaxRSSKiB)
	v.millis("user_ms", &r.User)
	v.millis("sys_ms", &r.Sys)
	v.int("parkings", &r.Parkings)
	v.millis("parked_ms", &r.Parked)
	v.text("note", &r.Note, maxTextQuoted, cut)
}

// visitor writes fields to a block or reads them from one.
type visitor interface {
	text(key string, p *string, limit int, fit func(string, int) string)
	uint(key string, p *uint64)
	int(key string, p *int)
	int64(key string, p *int64)
	bool(key string, p *bool)
	time(key string, p *time.Time)
	millis(key string, p *time.Duration)
}

// Encode renders the record as one block of BlockSize bytes.
func (r Record) Encode() []byte {
	w := &blockWriter{block: append(make([]byte, 0, BlockSize), blockHeader...)}
	r.visit(w)
	sum := crc32.ChecksumIEEE(w.block)
	w.block = hex.AppendEncode(append(w.block, "sum="...), binary.BigEndian.AppendUint32(nil, sum))
	w.block = append(w.block, '\n')
	if len(w.block) > BlockSize {
		panic("bug: a record does not fit its block")
	}
	return w.block[:BlockSize]
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
	if want := fmt.Sprintf("sum=%08x\n", crc32.ChecksumIEEE(body)); string(sum) != want {
		return Record{}, fmt.Errorf("%w: wrong sum", errDamaged)
	}
	return decodeLines(string(body[len(blockHeader):]))
}

func decodeLines(body string) (Record, error) {
	var r Record
	values := make(blockReader)
	for line := range strings.Lines(body) {
		key, value, found := strings.Cut(strings.TrimSuffix(line, "\n"), "=")
		if !found {
			return Record{}, fmt.Errorf("%w: line without a key", errDamaged)
		}
		values[key] = value
	}
	if err := r.read(values); err != nil {
		return Record{}, fmt.Errorf("%w: %w", errDamaged, err)
	}
	switch r.State {
	case Idle, Started, Ended:
		return r, nil
	}
	return Record{}, fmt.Errorf("%w: state %q", errDamaged, r.State)
}

// cut truncates a text until it fits; leaveOut omits one that does not fit.
func cut(s string, limit int) string {
	for len(strconv.Quote(s)) > limit {
		s = s[:len(s)-1-len(s)/16]
	}
	return s
}

func leaveOut(s string, limit int) string {
	if len(strconv.Quote(s)) > limit {
		return ""
	}
	return s
}
