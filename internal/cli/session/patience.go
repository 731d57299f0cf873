package session

import (
	"context"
	"time"

	"berth/internal/api"
	"berth/internal/text/problem"
)

// patience lets a verb survive a restart of the daemon, for a limited time: the
// jobs keep running meanwhile.
type patience struct {
	s       *Session
	begin   time.Time // of this outage; zero: the daemon answers
	pause   time.Duration
	told    bool
	longest time.Duration
}

const (
	longestOutage = 10 * time.Minute
	quietOutage   = time.Second // a short restart goes unmentioned
	firstPause    = 50 * time.Millisecond
	longestPause  = 2 * time.Second
)

func NewPatience(s *Session) *patience {
	return &patience{s: s, pause: firstPause, longest: longestOutage}
}

// Answered ends an outage.
func (p *patience) Answered() {
	if p.told {
		p.s.Say("the daemon is back")
	}
	p.begin, p.pause, p.told = time.Time{}, firstPause, false
}

// Bear pauses after an error that a restart may explain, and returns any other.
func (p *patience) Bear(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if !Passing(err) {
		return err
	}
	if p.begin.IsZero() {
		p.begin = time.Now()
	}
	outage := time.Since(p.begin)
	if outage > p.longest {
		return err
	}
	if outage > quietOutage && !p.told {
		p.told = true
		p.s.Say("the daemon does not answer; waiting for it")
	}
	pause := p.pause
	p.pause = min(2*p.pause, longestPause)
	return api.Pause(ctx, pause)
}

// Passing reports whether an error may come from a restart: the daemon is gone,
// is stopping, or stopped in the middle of an answer.
func Passing(err error) bool {
	kind := problem.KindOf(err)
	return kind == "" || kind == problem.Unable
}
