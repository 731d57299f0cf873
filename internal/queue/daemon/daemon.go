package daemon

import (
	"cmp"
	"path/filepath"
	"runtime"
	"sync"
	"time"

	"berth/internal/api/metrics"
	"berth/internal/machine/run"
	"berth/internal/queue/fair"
	"berth/internal/queue/messages"
	"berth/internal/queue/people"
	"berth/internal/queue/ports"
)

// Daemon is a running daemon: what it consists of, from its opening to its end.
type Daemon struct {
	opt    Options
	svc    *service
	people *people.People

	find      *finder
	jobs      *jobs
	actions   *actions
	submits   *submissions
	adopts    *adoptions
	waits     *waiter
	logs      *logs
	sweeps    *sweeps
	terminals *terminals
	events    *events
	cards     *cards
	samples   *samples
	groups    *groups
	history   *history
	door      *door
	admin     *admin

	record   *cardRecord
	ports    *ports.Ports
	tidier   *tidier
	life     *life
	messages *messages.Messages
	metrics  *metrics.Set

	found []run.Found // supervisors of an earlier daemon

	wait sync.WaitGroup
}

// newDaemon puts a daemon together. Nothing is open yet.
func newDaemon(opt Options) *Daemon {
	d := &Daemon{opt: opt}
	d.people = people.New(opt.Places, opt.Own != nil, opt.Env, cmp.Or(opt.JobsDir, filepath.Join(opt.Places.StateDir, "jobs")))
	svc := &service{
		people: d.people, places: opt.Places, own: opt.Own, runs: opt.RunDir, version: opt.Version,
		hub: newHub(), ended: make(chan struct{}), gate: newGate(runtime.GOMAXPROCS(0)),
	}
	d.svc, d.ports = svc, ports.New()
	d.find = &finder{svc: svc, slice: sliceJobs}
	d.jobs = &jobs{svc: svc, find: d.find}
	d.cards = &cards{svc: svc}
	d.submits = &submissions{svc: svc, find: d.find, cards: d.cards}
	d.actions = &actions{svc: svc, find: d.find, jobs: d.jobs, submits: d.submits, cards: d.cards}
	d.adopts = &adoptions{svc: svc, jobs: d.jobs, cards: d.cards}
	d.waits = &waiter{svc: svc, find: d.find}
	d.logs = &logs{svc: svc, find: d.find}
	d.sweeps = &sweeps{svc: svc, find: d.find, jobs: d.jobs, submits: d.submits, logs: d.logs}
	d.terminals = &terminals{svc: svc, find: d.find}
	d.events = &events{svc: svc, cards: d.cards}
	d.samples = &samples{svc: svc, find: d.find}
	d.groups = &groups{svc: svc}
	d.history = &history{svc: svc, jobs: d.jobs, replays: fair.NewGate(1, 1)}
	d.door = &door{svc: svc, ports: d.ports}
	d.record = &cardRecord{svc: svc, sim: opt.Sim > 0, typed: opt.TypedGPUs, needed: opt.NeedsGPUs}
	d.tidier = &tidier{svc: svc, samples: d.samples, record: d.record, wrote: make(chan struct{}, 1), reloaded: make(chan struct{}, 1)}
	d.life = &life{svc: svc, opt: &d.opt, wait: &d.wait, started: time.Now(), calm: make(chan struct{}, 1)}
	d.admin = &admin{svc: svc, opt: &d.opt, ports: d.ports, record: d.record, tidier: d.tidier, life: d.life}
	d.life.admin = d.admin
	d.messages = messages.New(messages.Setup{Queue: svc, Jobs: d.find, People: d.people, Places: opt.Places, Own: opt.Own != nil, Ended: svc.ended, Wait: &d.wait})
	d.life.messages, d.door.messages = d.messages, d.messages
	return d
}
