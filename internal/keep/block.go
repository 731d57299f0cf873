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
const blockHeader = "berth-keep 1\n"

// What the strings of a record may take up, quoted. A path that does not fit
// is left out, since half a path names something else; an explanation is cut.
const (
	maxPathQuoted  = 1000
	maxTextQuoted  = 300
	maxShortQuoted = 120
)

// field is one line of a block: how to write a value and how to read it back.
type field struct {
	key  string
	text func() string // empty: leave the line out
	read func(string) error
}

// fields is the one list of what a block holds, in the order it is written.
func (r *Record) fields() []field {
	return []field{
		quotedField("state", (*string)(&r.State), maxShortQuoted, cut),
		uintField("seq", &r.Seq),
		quotedField("token", &r.Token, maxShortQuoted, cut),
		quotedField("job", &r.Job, maxShortQuoted, cut),
		intField("attempt", &r.Attempt),
		quotedField("boot_id", &r.BootID, maxShortQuoted, cut),
		intField("keep_pid", &r.KeepPID),
		uintField("keep_start_ticks", &r.KeepStart),
		intField("pid", &r.PID),
		uintField("pid_start_ticks", &r.PIDStart),
		intField("session", &r.Session),
		quotedField("cgroup", &r.Cgroup, maxPathQuoted, leaveOut),
		quotedField("log", &r.Log, maxPathQuoted, leaveOut),
		intField("log_from", &r.LogFrom),
		timeField("started_at", &r.StartedAt),
		timeField("ended_at", &r.EndedAt),
		millisField("elapsed_ms", &r.Elapsed),
		intField("exit_code", &r.ExitCode),
		intField("signal", &r.Signal),
		boolField("core", &r.Core),
		quotedField("stop", &r.Stop, maxShortQuoted, cut),
		quotedField("launch", &r.Launch, maxTextQuoted, cut),
		boolField("setup_failed", &r.SetupFailed),
		intField("stragglers", &r.Stragglers),
		intField("max_rss_kib", &r.MaxRSSKiB),
		millisField("user_ms", &r.User),
		millisField("sys_ms", &r.Sys),
		quotedField("note", &r.Note, maxTextQuoted, cut),
	}
}

// Encode renders the record as one block of BlockSize bytes.
func (r Record) Encode() []byte {
	var b bytes.Buffer
	b.WriteString(blockHeader)
	for _, f := range r.fields() {
		if text := f.text(); text != "" {
			b.WriteString(f.key + "=" + text + "\n")
		}
	}
	fmt.Fprintf(&b, "sum=%08x\n", crc32.ChecksumIEEE(b.Bytes()))
	if b.Len() > BlockSize {
		panic("bug: a record does not fit its block")
	}
	block := make([]byte, BlockSize)
	copy(block, b.Bytes())
	return block
}

// DecodeRecord reads a block back. Keys it does not know are skipped: a later
// supervisor may say more.
func DecodeRecord(block []byte) (Record, error) {
	if len(block) != BlockSize {
		return Record{}, fmt.Errorf("%w: %d bytes", ErrDamaged, len(block))
	}
	text, padding, _ := bytes.Cut(block, []byte{0})
	if len(bytes.Trim(padding, "\x00")) > 0 {
		return Record{}, fmt.Errorf("%w: bytes after its end", ErrDamaged)
	}
	if len(text) == 0 {
		return Record{}, errBlank
	}
	at := bytes.LastIndex(text, []byte("\nsum="))
	if !bytes.HasPrefix(text, []byte(blockHeader)) || at < 0 {
		return Record{}, fmt.Errorf("%w: no header or sum", ErrDamaged)
	}
	body, sum := text[:at+1], text[at+1:]
	if want := fmt.Sprintf("sum=%08x\n", crc32.ChecksumIEEE(body)); string(sum) != want {
		return Record{}, fmt.Errorf("%w: wrong sum", ErrDamaged)
	}
	return decodeLines(string(body[len(blockHeader):]))
}

func decodeLines(body string) (Record, error) {
	var r Record
	known := make(map[string]field)
	for _, f := range r.fields() {
		known[f.key] = f
	}
	for line := range strings.Lines(body) {
		key, value, found := strings.Cut(strings.TrimSuffix(line, "\n"), "=")
		if !found {
			return Record{}, fmt.Errorf("%w: line without a key", ErrDamaged)
		}
		if f, ok := known[key]; ok {
			if err := f.read(value); err != nil {
				return Record{}, fmt.Errorf("%w: %s: %v", ErrDamaged, key, err)
			}
		}
	}
	switch r.State {
	case Idle, Started, Ended:
		return r, nil
	}
	return Record{}, fmt.Errorf("%w: state %q", ErrDamaged, r.State)
}

// cut shortens a text until it fits; leaveOut drops what does not fit.
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

func quotedField(key string, p *string, limit int, fit func(string, int) string) field {
	return field{key,
		func() string {
			if s := fit(*p, limit); s != "" {
				return strconv.Quote(s)
			}
			return ""
		},
		func(text string) (err error) { *p, err = strconv.Unquote(text); return err },
	}
}

func intField[T int | int64](key string, p *T) field {
	return field{key,
		func() string { return strconv.FormatInt(int64(*p), 10) },
		func(text string) error {
			n, err := strconv.ParseInt(text, 10, 64)
			*p = T(n)
			return err
		},
	}
}

func uintField(key string, p *uint64) field {
	return field{key,
		func() string { return strconv.FormatUint(*p, 10) },
		func(text string) (err error) { *p, err = strconv.ParseUint(text, 10, 64); return err },
	}
}

func boolField(key string, p *bool) field {
	return field{key,
		func() string { return strconv.FormatBool(*p) },
		func(text string) (err error) { *p, err = strconv.ParseBool(text); return err },
	}
}

// timeField writes nanoseconds since 1970; a zero time is left out.
func timeField(key string, p *time.Time) field {
	return field{key,
		func() string {
			if p.IsZero() {
				return ""
			}
			return strconv.FormatInt(p.UnixNano(), 10)
		},
		func(text string) error {
			n, err := strconv.ParseInt(text, 10, 64)
			*p = time.Unix(0, n)
			return err
		},
	}
}

func millisField(key string, p *time.Duration) field {
	return field{key,
		func() string { return strconv.FormatInt(p.Milliseconds(), 10) },
		func(text string) error {
			n, err := strconv.ParseInt(text, 10, 64)
			*p = time.Duration(n) * time.Millisecond
			return err
		},
	}
}
