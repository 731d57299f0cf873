package access

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"sync"
	"time"

	"berth/internal/text"

	"golang.org/x/sys/unix"
)

// Bounds on the audit log: four rotated files besides the current one, and a
// limit on how long a caller can make a line.
const (
	auditBytes  = 32 << 20
	auditFiles  = 4
	auditJobs   = 100
	auditDetail = 2048
)

// Entry is one action, or one refused attempt at it. A job of `sudo berth` is
// root's: SUDO_USER would be an unverified claim.
type Entry struct {
	Time   time.Time `json:"time"`
	UID    int       `json:"uid"`
	User   string    `json:"user"`
	PID    int       `json:"pid,omitempty"`
	Via    string    `json:"via"`            // the id of a token, or how the request came in (api.Way)
	From   string    `json:"from,omitempty"` // the address that it came from
	Action string    `json:"action"`
	Jobs   []string  `json:"jobs,omitempty"`  // the first hundred
	Count  int       `json:"count,omitempty"` // the number of jobs, if there are more
	Detail string    `json:"detail,omitempty"`
	Result string    `json:"result"` // OK, or why not
	// Requests is how many requests the line counts, if they had none of
	// their own.
	Requests int `json:"requests,omitempty"`
}

// AuditName is the file of the audit log in the state directory.
const AuditName = "audit.jsonl"

// OK is the result of an action that was not refused.
const OK = "ok"

// Audit is the append-only record of who did what: one JSON object per line,
// readable only by the daemon's owner.
type Audit struct {
	mu       sync.Mutex
	path     string
	limit    int64
	file     *os.File // nil: opening failed and will be retried
	size     int64
	missed   int              // entries lost since the last one written
	accounts map[int]*account // by uid
	over     bool
}

func OpenAudit(path string) (*Audit, error) {
	a := &Audit{path: path, limit: auditBytes, accounts: map[int]*account{}}
	if err := a.open(); err != nil {
		return nil, fmt.Errorf("open audit: %w", err)
	}
	return a, nil
}

// open continues at the end of the file. It ends a line that a crash cut short,
// so that the next Entry stays readable.
func (a *Audit) open() error {
	file, err := os.OpenFile(a.path, os.O_RDWR|os.O_CREATE|os.O_APPEND|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return err
	}
	info, err := file.Stat()
	if err == nil {
		err = file.Chmod(0o600)
	}
	if err != nil {
		file.Close()
		return err
	}
	a.file, a.size = file, info.Size()
	last := []byte{'\n'}
	if a.size > 0 {
		_, _ = file.ReadAt(last, a.size-1)
	}
	if last[0] != '\n' {
		_ = a.write([]byte{'\n'})
	}
	return nil
}

// Record writes the Entry before the request is answered, so that every answered
// request is in the audit log: with a line of its own, or counted in one that
// follows within a minute (account). It never fails a request.
func (a *Audit) Record(e Entry) {
	if e.Time.IsZero() {
		e.Time = time.Now()
	}
	if len(e.Jobs) > auditJobs {
		e.Count, e.Jobs = len(e.Jobs), e.Jobs[:auditJobs]
	}
	e.User, e.Action = short(e.User), short(e.Action)
	e.Detail, e.Result = short(e.Detail), short(e.Result)
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.over {
		return
	}
	if line := a.accountOf(&e).lineFor(e); line != nil {
		a.append(e.Time, line)
	}
}

// append writes a line. Entries that a full disk rejects are counted, and the
// count is written once there is room.
func (a *Audit) append(now time.Time, line []byte) {
	if a.missed > 0 {
		gap := Entry{
			Time: now, UID: os.Getuid(), Via: "daemon", Action: "audit",
			Detail: fmt.Sprintf("%d entries before this could not be written", a.missed), Result: "incomplete",
		}
		if a.put(gap.line()) != nil {
			a.missed++
			return
		}
		a.missed = 0
	}
	if a.put(line) != nil {
		a.missed++
	}
}

// short bounds what a caller can put into one line.
func short(s string) string {
	if len(s) <= auditDetail {
		return s
	}
	return s[:auditDetail] + "…"
}

func (e *Entry) line() []byte {
	return append(text.MustJSON(e), '\n')
}

func (a *Audit) put(line []byte) error {
	if a.size > 0 && a.size+int64(len(line)) > a.limit {
		if err := a.rotate(); err != nil {
			return err
		}
	}
	if a.file == nil {
		if err := a.open(); err != nil {
			return err
		}
	}
	return a.write(line)
}

// write leaves a whole line or nothing: half a line would spoil the next one
// too.
func (a *Audit) write(line []byte) error {
	n, err := a.file.Write(line)
	if err == nil {
		a.size += int64(n)
		return nil
	}
	if a.file.Truncate(a.size) != nil {
		a.size += int64(n)
	}
	return err
}

// rotate first moves the full file out of the way and then shifts the old ones,
// so that a failing disk loses none of them. Until it succeeds nothing more is
// written.
func (a *Audit) rotate() error {
	aside := a.path + ".0"
	if _, err := os.Lstat(aside); err != nil { // otherwise a crash left it there, and it goes first
		if err := os.Rename(a.path, aside); err != nil {
			return err
		}
		if a.file != nil {
			a.file.Close()
		}
		a.file, a.size = nil, 0
	}
	for n := auditFiles - 1; n >= 0; n-- {
		err := os.Rename(fmt.Sprintf("%s.%d", a.path, n), fmt.Sprintf("%s.%d", a.path, n+1))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}

func (a *Audit) Close() error {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, acc := range a.accounts {
		if acc.window != nil {
			a.endWindow(acc)
		}
	}
	a.over = true
	if a.file == nil {
		return nil
	}
	return a.file.Close()
}
