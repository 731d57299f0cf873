package send

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"time"

	"golang.org/x/sys/unix"

	"berth/internal/queue/notify"
	"berth/internal/text"
)

// Word is the hidden command under which berth delivers a message; main calls
// Main for it.
const Word = "__notify"

// Bounds on one delivery.
const (
	maxRequest = 1 << 20
	deadline   = 30 * time.Second
	maxSaid    = 512 // bytes of an answer that an error quotes
)

// Request is one message for one target.
type Request struct {
	Target  string         `json:"target"`
	Message notify.Message `json:"message"`
	// Key signs webhooks; empty: they are not signed.
	Key  []byte `json:"key,omitempty"`
	Mail Mail   `json:"mail,omitzero"`
	// Environ is the environment of an exec target.
	Environ []string `json:"environ,omitempty"`
}

// Result is the answer.
type Result struct {
	Error string `json:"error,omitempty"` // empty: delivered
	// Final: no later try can succeed.
	Final bool `json:"final,omitempty"`
	// AgainS is after how many seconds the other side wants to be asked again; 0:
	// it did not say.
	AgainS int `json:"again_s,omitempty"`
}

// Main is the process. It already has the user's rights.
func Main(args []string, in io.Reader, out io.Writer) int {
	if len(args) != 0 {
		return 2
	}
	// The input may contain a password: no other process of this account may trace
	// this one.
	if err := unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0); err != nil {
		return 1
	}
	// Nor may a command inherit what the daemon itself was started with.
	if err := unix.CloseRange(3, math.MaxUint32, unix.CLOSE_RANGE_CLOEXEC); err != nil && !errors.Is(err, unix.ENOSYS) && !errors.Is(err, unix.EINVAL) {
		return 1
	}
	data, err := io.ReadAll(io.LimitReader(in, maxRequest+1))
	var r Request
	if err != nil || len(data) > maxRequest || json.Unmarshal(data, &r) != nil {
		return 2
	}
	ctx, cancel := context.WithTimeout(context.Background(), deadline)
	defer cancel()
	reply := text.MustJSON(result(r.Target, deliver(ctx, r)))
	if _, err := out.Write(append(reply, '\n')); err != nil {
		return 1
	}
	return 0
}

// result is the answer about an error, without the target's secrets.
func result(target string, err error) Result {
	if err == nil {
		return Result{}
	}
	said := err.Error()
	if t, err := notify.ParseTarget(target); err == nil {
		said = t.Hide(said)
	}
	if errors.Is(err, context.DeadlineExceeded) {
		said = fmt.Sprintf("no answer within %s", text.Brief(deadline))
	}
	r := Result{Error: text.Said(said)}
	var f *finalError
	r.Final = errors.As(err, &f)
	if b, busy := errors.AsType[*busyError](err); busy {
		r.AgainS = b.againS
	}
	return r
}

// finalError is an error that no later try can cure.
type finalError struct{ error }

func (f *finalError) Unwrap() error { return f.error }

// busyError is the answer of a server that wants to be asked later.
type busyError struct {
	error
	againS int
}

func final(err error) error { return &finalError{err} }

// deliver sends a message once.
func deliver(ctx context.Context, r Request) error {
	t, err := notify.ParseTarget(r.Target)
	if err != nil {
		return final(err)
	}
	switch t.Scheme {
	case notify.Mail:
		return mailTo(ctx, r.Mail, t.To, r.Message)
	case notify.Webhook:
		return webhook(ctx, t.To, r.Key, r.Message)
	case notify.Slack:
		return chat(ctx, t.To, r.Message)
	case notify.Ntfy:
		return ntfy(ctx, t.To, r.Message)
	case notify.Exec:
		return run(ctx, t.To, r.Environ, r.Message)
	}
	return final(fmt.Errorf("%s: not a way to send a message", t.Scheme))
}
