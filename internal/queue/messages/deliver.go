package messages

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"berth/internal/job"
	"berth/internal/machine/site"
	"berth/internal/queue/engine"
	"berth/internal/queue/notify"
	"berth/internal/queue/people"
	"berth/internal/queue/send"
	"berth/internal/text"
)

// lives reports whether an array or a file has jobs that have not ended, and whose
// ends the same target is told: one line may have a target of its own. It is true if
// that is not known.
func (m *Messages) lives(ctx context.Context, a notify.Awaited) (some bool) {
	awaits := func(j *job.Job) {
		some = some || slices.ContainsFunc(rulesFor(j, m.wishes.rules), func(r notify.Rule) bool {
			return r.Wants(notify.OnEnd) && r.Target.String() == a.Target
		})
	}
	err := m.setup.Queue.Do(ctx, func(t *engine.Turn) {
		if a.Array != "" {
			t.Jobs().EachTask(a.Array, awaits)
		} else {
			t.Jobs().EachLine(job.Batch{User: a.User, File: a.File}, awaits)
		}
	})
	return some || err != nil
}

// tellGivenUp makes it an event that a message was given up. Events reach others
// than the target's owner, so it says neither where it went nor what was answered.
func (m *Messages) tellGivenUp(ctx context.Context, e notify.Entry) {
	var about *job.Job
	what := "a message to the administrators was given up (berth notify list says why)"
	if len(e.Batch.Facts) > 0 && e.Batch.Facts[0].Job != "" {
		found, err := m.store.Job(e.Batch.Facts[0].Job)
		if err != nil {
			return // it is forgotten; the list still has the message
		}
		about, what = found, fmt.Sprintf("a message about job %s was given up (berth notify list says why)", found.ID)
	}
	if err := m.setup.Queue.Do(ctx, func(t *engine.Turn) { t.Warn(about, what) }); err != nil {
		m.log.Warn(what, "err", err)
	}
}

func host() string {
	host, err := os.Hostname()
	if err != nil {
		return "localhost"
	}
	return host
}

// deliver sends one message for a user; an empty name is the administrators.
func (m *Messages) deliver(ctx context.Context, uid int, user, target string, msg notify.Message) send.Result {
	cfg, host := m.setup.Queue.Config(), host()
	r := send.Request{Target: target, Message: msg}
	if user == "" { // the administrators' messages are signed with the key of the daemon's user
		r.Key = m.wishes.keyOf(m.setup.People.UID)
	} else {
		r.Key = m.wishes.get(uid, user).Key
	}
	sender, err := m.setup.People.Sender(ctx, uid, user)
	if err != nil {
		return send.Result{Error: err.Error()}
	}
	r.Environ = []string{"HOME=" + sender.Home, "USER=" + sender.Name, "LOGNAME=" + sender.Name, "PATH=/usr/local/bin:/usr/bin:/bin"}
	if t, err := notify.ParseTarget(target); err == nil && t.Scheme == notify.Mail {
		r.Key, r.Mail = nil, cfg.Mail
		r.Mail.From = cmp.Or(r.Mail.From, "berth@"+host)
		if cfg.Mail.User != "" {
			if r.Mail.Password, err = readSecret(cfg.MailPassword, m.setup.People.UID); err != nil {
				m.log.Warn("mail cannot be sent", "err", err)
				return send.Result{Error: "the password of the mail server cannot be read; the daemon's log says why"}
			}
			if m.setup.Places.Shared {
				sender = people.Nobody // a user could trace a process that has the password
			}
		}
	}
	return m.deliverAs(ctx, sender, r)
}

// maxSecret bounds a file with a password.
const maxSecret = 4 << 10

// readSecret reads a password from a file that only its owner can read: root, or
// the user who runs the daemon.
func readSecret(path string, uid int) (string, error) {
	file, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK|syscall.O_CLOEXEC, 0)
	if err != nil {
		return "", err
	}
	defer file.Close()
	var is unix.Stat_t
	if err := unix.Fstat(int(file.Fd()), &is); err != nil {
		return "", err
	}
	switch {
	case is.Mode&unix.S_IFMT != unix.S_IFREG:
		return "", fmt.Errorf("%s: expected a regular file", path)
	case is.Uid != 0 && int(is.Uid) != uid:
		return "", fmt.Errorf("%s: expected a file of root or of uid %d, found one of uid %d", path, uid, is.Uid)
	case is.Mode&0o077 != 0:
		return "", fmt.Errorf("%s: others can read it (mode %04o); chmod 600 %s", path, is.Mode&0o777, path)
	}
	data, err := io.ReadAll(io.LimitReader(file, maxSecret+1))
	if err != nil {
		return "", err
	}
	secret := strings.TrimRight(string(data), "\r\n")
	if secret == "" || len(data) > maxSecret || strings.ContainsAny(secret, "\r\n\x00") {
		return "", fmt.Errorf("%s: expected one line of at most %d bytes", path, maxSecret)
	}
	return secret, nil
}

// deliverAs sends a message with a user's rights.
func (m *Messages) deliverAs(ctx context.Context, u site.User, r send.Request) (result send.Result) {
	out, err := m.setup.People.Ask(ctx, u, tellLimit, send.Word, text.MustJSON(r))
	if err == nil {
		err = json.Unmarshal(out, &result)
	}
	if err != nil {
		return send.Result{Error: err.Error()}
	}
	return result
}
