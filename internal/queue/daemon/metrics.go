package daemon

import (
	"context"
	"errors"
	"os"
	"slices"
	"time"

	"berth/internal/api/metrics"
	"berth/internal/queue/engine"
	"berth/internal/sched"
	"berth/internal/text/problem"
)

// scrapeTime bounds how long a scrape waits for the engine.
const scrapeTime = 5 * time.Second

// meter reads for a scrape what the daemon does not count by itself.
type meter struct {
	do     func(context.Context, func(*engine.Turn)) error
	engine *engine.Engine
	store  string // its file
}

// look reads the state in one turn of the engine, while the API answers that many
// requests. It does not ask for a new reading of the cards: a scrape every few
// seconds would never let the driver rest.
func (m meter) look(ctx context.Context, answering int) (metrics.State, error) {
	bounded, cancel := context.WithTimeout(ctx, scrapeTime)
	defer cancel()
	s := metrics.State{Requests: m.engine.Waiting(), InFlight: answering}
	for _, file := range []string{m.store, m.store + "-wal"} {
		if info, err := os.Stat(file); err == nil {
			s.StoreBytes += info.Size()
		}
	}
	err := m.do(bounded, func(t *engine.Turn) {
		m.queue(t, &s)
		m.cards(t, &s)
	})
	if errors.Is(err, context.DeadlineExceeded) {
		err = problem.Newf(problem.Unable, "see the daemon's log", "the scheduling loop did not answer within %v", scrapeTime)
	}
	return s, err
}

func (m meter) queue(t *engine.Turn, s *metrics.State) {
	c := t.Explain().Census()
	s.Queued, s.Running, s.Parked = c.Queued, c.Running, c.Parked
	s.Room, s.Held, s.Later, s.Dependent = c.Room, c.Held, c.Later, c.Dependent
	if !c.Oldest.IsZero() {
		s.OldestWait = t.Now.Sub(c.Oldest)
	}
	s.ParkedMiB = c.HostMiB
	s.Blocked, s.Strays = t.Explain().Blocked() != "", len(t.Recovery().Strays())
	s.Users = make(map[string]metrics.User, len(c.Users))
	for user, unfinished := range c.Users {
		s.Users[user] = metrics.User{Jobs: unfinished}
	}
	for _, r := range t.Running().List() {
		if _, idle := t.Running().Uses.IdleSince(r.Job.ID); idle {
			s.IdleJobs++
		}
		user := s.Users[r.Job.User]
		user.Running++
		user.GPUs += r.Job.ChargedGPUs()
		s.Users[r.Job.User] = user
	}
}

func (m meter) cards(t *engine.Turn, s *metrics.State) {
	at, trouble := t.Cards().ReadAt()
	s.ReadAt, s.Unreadable = at, trouble != nil
	cards := t.Cards().List()
	for _, card := range cards {
		dev, _ := t.Cards().Device(card.UUID)
		s.Cards = append(s.Cards, metrics.Card{
			Index: card.Index, UUID: card.UUID, Name: card.Name,
			TotalMiB: card.TotalMiB, UsedMiB: card.UsedMiB, ExternalMiB: card.ForeignMiB,
			UtilPct: card.UtilPct, PowerW: dev.PowerW, PowerLimitW: dev.PowerLimitW, TemperatureC: float64(dev.TempC),
			Health: card.Health.String(), Paused: card.Paused, Stale: card.Stale || trouble != nil,
		})
	}
	for _, r := range t.Running().List() {
		for i := range cards {
			if slices.Contains(r.Job.Grant.GPUs, cards[i].Index) {
				s.Cards[i].Jobs++
				s.Cards[i].BookedMiB += sched.CardBudgets(r.Job.Grant, r.Job.VRAMMiB, cards[i:i+1])[0]
			}
		}
	}
}
