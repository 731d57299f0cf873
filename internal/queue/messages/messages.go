package messages

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"berth/internal/api"
	"berth/internal/job"
	"berth/internal/machine/site"
	"berth/internal/queue/config"
	"berth/internal/queue/engine"
	"berth/internal/queue/fair"
	"berth/internal/queue/notify"
	"berth/internal/queue/people"
	"berth/internal/queue/send"
	"berth/internal/queue/store"
)

// Queue is what messages need of the queue.
type Queue interface {
	Do(ctx context.Context, f func(*engine.Turn)) error
	Config() *config.Config
	Note(c api.Caller, action string, jobs []string, detail string, err error)
}

// Jobs finds the job that a caller means.
type Jobs interface {
	Find(ctx context.Context, c api.Caller, word string) (job.Job, error)
}

// Setup is what is known before the queue is open.
type Setup struct {
	Queue  Queue
	Jobs   Jobs
	People *people.People
	Places site.Places
	Own    bool            // of a berth run
	Ended  <-chan struct{} // closed when no event follows
	Wait   *sync.WaitGroup // for what runs beside the queue
}

// Messages tells users and administrators what happened.
type Messages struct {
	setup  Setup
	store  *store.Store
	log    *slog.Logger
	teller *teller // nil: nobody is told
	wishes wishes
	news   news          // for the teller
	woken  chan struct{} // there is news
	tests  *fair.Gate    // where test messages take turns
}

// New tells nobody yet.
func New(s Setup) *Messages {
	return &Messages{setup: s, woken: make(chan struct{}, 1), tests: fair.NewGate(4*tellSending, 2*tellOfUser)}
}

// Opened takes the store, which has the wishes of users and the outbox.
func (m *Messages) Opened(st *store.Store, log *slog.Logger) { m.store, m.log = st, log }

// Start tells what happens from now on, and what has not been told. An outbox that
// cannot be read must not keep jobs from running.
func (m *Messages) Start(ctx context.Context) {
	admin := m.setup.People.UID
	if m.setup.Places.Shared {
		admin = people.Nobody.UID
	}
	err := m.wishes.load(m.store)
	var t *teller
	if err == nil {
		t, err = newTeller(teller{
			store: m.store, news: &m.news, log: m.log, uid: admin, own: m.setup.Own,
			admin:  func() []string { return m.setup.Queue.Config().NotifyAdmin },
			rules:  m.wishes.rules,
			lives:  func(a notify.Awaited) bool { return m.lives(ctx, a) },
			gaveUp: func(e notify.Entry) { m.setup.Wait.Go(func() { m.tellGivenUp(ctx, e) }) },
			disk: func() (free, total int64, err error) {
				var disk unix.Statfs_t
				err = unix.Statfs(m.setup.Places.StateDir, &disk)
				return int64(disk.Bavail) * disk.Bsize, int64(disk.Blocks) * disk.Bsize, err
			},
			send: func(ctx context.Context, e notify.Entry) send.Result {
				return m.deliver(ctx, e.UID, e.User, e.Target, e.Message(t.origin, host()))
			},
		}, time.Now())
	}
	if err != nil {
		m.log.Error("no messages are sent", "err", err)
		return
	}
	m.teller = t
	m.setup.Wait.Go(func() { t.run(ctx, m.woken) })
}

// Publish takes events that are on disk.
func (m *Messages) Publish(events []job.Event) {
	m.news.add(events)
	select {
	case m.woken <- struct{}{}:
	default:
	}
}

// Alert tells the administrators.
func (m *Messages) Alert(ctx context.Context, what string) {
	if m.teller == nil {
		return
	}
	m.setup.Wait.Go(func() {
		_ = m.teller.do(ctx, func() { m.teller.alert(time.Now(), what) }) // fails only if the daemon stops
	})
}

// Hurry tells at once what there is to tell, and returns when every message was
// tried.
func (m *Messages) Hurry(ctx context.Context) error {
	if m.teller == nil {
		return nil
	}
	return m.teller.hurry(ctx)
}
