package compat

import (
	"context"
	"errors"
	"os"
	"slices"
	"time"

	"berth/internal/api"
	"berth/internal/job"
)

// gsState is the state file as this scheduler last left it.
type gsState struct {
	path   string
	there  bool
	stamp  os.FileInfo // nil: it was never seen
	paused []int       // what it said
}

// edited reports whether somebody else wrote it since.
func (f *gsState) edited() bool {
	info, err := os.Stat(f.path)
	if err != nil {
		return f.there
	}
	old := f.stamp
	return old == nil || !os.SameFile(info, old) || info.Size() != old.Size() || !info.ModTime().Equal(old.ModTime())
}

// takeOver obeys the state file as it was found, or starts over where there is
// none: then nothing is paused, and what is over is forgotten.
func (s *gsScheduler) takeOver(ctx context.Context) {
	unlock, err := lockState(s.state.path)
	if err != nil {
		s.log.warn("the state file is not kept from others: %v", err)
		unlock = func() {}
	}
	defer unlock()
	doc, err := readDoc(s.state.path)
	switch {
	case err == nil:
		doc.get(keySince, &s.since)
		s.obey(ctx, doc, s.pausedNow())
	case errors.Is(err, errNoDoc):
		s.since = time.Now()
		s.obey(ctx, gsDoc{}, s.pausedNow())
	default:
		s.state.paused = s.pausedNow()
		s.sayBroken(err)
		return
	}
	s.write(ctx, doc)
}

func (s *gsScheduler) sayBroken(err error) {
	s.log.warnOnce("%v; it is left alone, and what was paused stays so, until it is mended or deleted", err)
}

// changeEvery is how soon after one change another is written: where many short
// jobs run, something changes all the time.
const changeEvery = time.Second

// sync carries what people wrote into the state file to the daemon, and what
// the daemon says into the file. Nothing that was written is ever lost: the
// file is read before it is replaced, under a lock that pause and resume take
// too.
func (s *gsScheduler) sync(ctx context.Context, now time.Time) {
	wait := s.opt.stateEvery
	if s.dirty {
		wait = min(wait, changeEvery)
	}
	if !s.state.edited() && now.Sub(s.saved) < wait {
		return
	}
	s.saved = now
	unlock, err := lockState(s.state.path)
	if err != nil {
		s.log.warnOnce("the state file is not written: %v", err)
		return
	}
	defer unlock()
	doc, err := readDoc(s.state.path)
	switch {
	case err == nil:
		s.obey(ctx, doc, s.state.paused)
	case errors.Is(err, errNoDoc):
		if s.state.there {
			s.log.info("the state file was deleted: no GPU is paused any more")
		}
		doc = gsDoc{}
		s.refresh(ctx)
		s.obey(ctx, doc, s.pausedNow())
	default:
		if s.state.stamp, _ = os.Stat(s.state.path); s.state.stamp != nil {
			s.state.there = true
		}
		s.dirty = false // until it changes there is nothing to be done
		s.sayBroken(err)
		return
	}
	s.write(ctx, doc)
}

// lastSave leaves behind how things stand when the daemon is gone: what does
// not run any more holds no card.
func (s *gsScheduler) lastSave() {
	if !s.ready {
		return
	}
	for i := range s.cards {
		s.cards[i].Jobs = slices.DeleteFunc(slices.Clone(s.cards[i].Jobs), func(j api.GPUJob) bool {
			v, known := s.index.views[j.ID]
			return known && v.State != job.Running
		})
	}
	s.dirty, s.saved = true, time.Time{}
	s.sync(context.Background(), time.Now())
}

// refresh asks for the cards; without an answer they are as they were.
func (s *gsScheduler) refresh(ctx context.Context) (answered bool) {
	cards, err := s.client.GPUs(ctx)
	if err == nil {
		s.cards = cards
	}
	return err == nil
}

func (s *gsScheduler) pausedNow() (list []int) {
	for _, card := range s.cards {
		if card.Paused {
			list = append(list, card.Index)
		}
	}
	return list
}

// obey pauses and resumes what the file says, where it says something else
// than before.
func (s *gsScheduler) obey(ctx context.Context, doc gsDoc, before []int) {
	wanted, err := doc.paused()
	if err != nil {
		return // such a file is not taken for one
	}
	for _, list := range []struct {
		cards  []int
		paused bool
		verb   string
	}{{without(wanted, before), true, "paused"}, {without(before, wanted), false, "resumed"}} {
		for _, index := range list.cards {
			if _, err := s.client.PauseGPU(ctx, index, list.paused); err != nil {
				s.log.warn("the state file says that gpu %d is %s: %v", index, list.verb, err)
			}
		}
	}
}

// without are the numbers of a that are not in b.
func without(a, b []int) (list []int) {
	for _, n := range a {
		if !slices.Contains(b, n) {
			list = append(list, n)
		}
	}
	return list
}

// write puts how things stand into the file. The caller holds its lock.
func (s *gsScheduler) write(ctx context.Context, doc gsDoc) {
	answered := s.refresh(ctx)
	if doc == nil {
		doc = gsDoc{}
	}
	limits := gsLimits{Memory: s.opt.memThreshold, Load: s.opt.loadLimit}
	paused := s.pausedNow()
	// With the daemon gone the file knows better: a pause may have come since.
	if said, err := doc.paused(); err == nil && !answered {
		paused = said
	}
	doc.set(keyCards, gsCards(s.cards, limits))
	doc.set(keyPaused, append([]int{}, paused...))
	doc.set(keyJobs, gsJobs(s.index.all(), s.since))
	doc.set(keySince, s.since)
	doc.set(keyLimits, limits)
	doc.set(keyUpdated, time.Now())
	if err := doc.write(s.state.path); err != nil {
		s.log.warnOnce("the state file is not written: %v", err)
		return
	}
	s.dirty = false
	s.state.paused, s.state.there = paused, true
	s.state.stamp, _ = os.Stat(s.state.path) // one that is gone again was deleted
}
