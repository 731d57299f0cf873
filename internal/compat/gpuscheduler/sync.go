package gpuscheduler

import (
	"context"
	"errors"
	"os"
	"slices"
	"time"

	"berth/internal/api"
	"berth/internal/job"
	"berth/internal/problem"
)

// lastState is the state file as this scheduler last left it.
type lastState struct {
	path    string
	stamp   os.FileInfo // nil: it is not there
	missing bool        // it was there, and was not at the last look
	paused  []int       // what it said
}

// edited reports whether somebody else wrote it since.
func (f *lastState) edited() bool { return !sameStamp(stampOf(f.path), f.stamp) }

// takeOver obeys the state file as it was found, or starts over where there is
// none: then nothing is paused, and what is over is forgotten.
func (s *scheduler) takeOver(ctx context.Context) {
	unlock, err := lockState(s.state.path)
	if err != nil {
		s.log.warn("the state file is not kept from others: %v", err)
		unlock = func() {}
	}
	defer unlock()
	s.untilKept(func() error {
		doc, stamp, err := readDoc(s.state.path)
		switch {
		case err == nil:
			doc.get(keySince, &s.since)
		case errors.Is(err, os.ErrNotExist):
			doc, s.since = document{}, time.Now()
		default:
			s.state.paused = s.pausedNow()
			s.sayBroken(err)
			return nil
		}
		if err := s.obey(ctx, doc, s.pausedNow()); err != nil {
			return err
		}
		return s.write(ctx, doc, stamp)
	})
}

// untilKept repeats an exchange with the state file until nobody wrote it in
// between.
func (s *scheduler) untilKept(exchange func() error) {
	var err error
	for range editTries {
		if err = exchange(); !errors.Is(err, errEdited) {
			break
		}
	}
	if err != nil && !s.stopping { // a daemon that ends answers no more; lastSave follows
		s.log.warnOnce("the state file is not written: %v", err)
	}
}

func (s *scheduler) sayBroken(err error) {
	s.log.warnOnce("%v; it is left alone, and what was paused stays so, until it is mended or deleted", err)
}

// changeEvery is how soon after one change another is written: where many short
// jobs run, something changes all the time.
const changeEvery = time.Second

// sync carries what people wrote into the state file to the daemon, and what
// the daemon says into the file. Nothing that was written is ever lost: the
// file is read before it is replaced, under a lock that pause and resume take
// too.
func (s *scheduler) sync(ctx context.Context, now time.Time) {
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
	s.untilKept(func() error { return s.exchange(ctx) })
}

// exchange obeys the file and writes it, once.
func (s *scheduler) exchange(ctx context.Context) error {
	doc, stamp, err := readDoc(s.state.path)
	switch {
	case err == nil:
		s.state.missing = false
		err = s.obey(ctx, doc, s.state.paused)
	case errors.Is(err, os.ErrNotExist):
		if s.state.stamp != nil && !s.state.missing {
			s.state.missing = true // some editors take the old one away first
			return nil
		}
		if s.state.missing {
			s.log.info("the state file was deleted: no GPU is paused any more")
			s.state.missing = false
		}
		doc = document{}
		if err = s.refresh(ctx); err == nil {
			err = s.obey(ctx, doc, s.pausedNow())
		}
	default:
		s.state.stamp, s.state.missing = stamp, false
		s.dirty = false // until it changes there is nothing to be done
		s.sayBroken(err)
		return nil
	}
	if err != nil {
		return err
	}
	return s.write(ctx, doc, stamp)
}

// lastSave leaves behind how things stand when the daemon is gone: what does
// not run any more holds no card. Nobody can be told any more what was written
// into the file since; the next start obeys it.
func (s *scheduler) lastSave() {
	if !s.ready {
		return
	}
	for i := range s.cards {
		s.cards[i].Jobs = slices.DeleteFunc(slices.Clone(s.cards[i].Jobs), func(j api.GPUJob) bool {
			v, known := s.index.views[j.ID]
			return known && v.State != job.Running
		})
	}
	unlock, err := lockState(s.state.path)
	if err != nil {
		s.log.warnOnce("the state file is not written: %v", err)
		return
	}
	defer unlock()
	s.untilKept(func() error {
		doc, stamp, err := readDoc(s.state.path)
		switch {
		case errors.Is(err, os.ErrNotExist) && s.state.stamp == nil:
			doc = document{}
		case err != nil:
			return nil // deleted or broken, and so it stays
		}
		return s.put(doc, stamp, s.pausedAtLast(doc))
	})
}

// pausedAtLast are the cards that a file says are paused, with what was paused
// and resumed by other means and is not in it yet.
func (s *scheduler) pausedAtLast(doc document) []int {
	said, _ := doc.paused() // it could be read
	now := s.pausedNow()
	list := append(without(said, without(s.state.paused, now)), without(now, s.state.paused)...)
	slices.Sort(list)
	return slices.Compact(list)
}

// refresh asks for the cards; without an answer they are as they were.
func (s *scheduler) refresh(ctx context.Context) error {
	cards, err := s.client.GPUs(ctx)
	if err == nil {
		s.cards = cards
	}
	return err
}

func (s *scheduler) pausedNow() (list []int) {
	for _, card := range s.cards {
		if card.Paused {
			list = append(list, card.Index)
		}
	}
	return list
}

// obey pauses and resumes what the file says, where it says something else
// than before. An error is that the daemon could not be told.
func (s *scheduler) obey(ctx context.Context, doc document, before []int) error {
	wanted, err := doc.paused()
	if err != nil {
		return nil // such a file is not taken for one
	}
	for _, list := range []struct {
		cards  []int
		paused bool
		verb   string
	}{{without(wanted, before), true, "paused"}, {without(before, wanted), false, "resumed"}} {
		for _, index := range list.cards {
			_, err := s.client.PauseGPU(ctx, index, list.paused)
			if kind := problem.KindOf(err); err != nil && (kind == "" || kind == problem.Unable) {
				return err
			}
			if err != nil {
				s.log.warn("the state file says that gpu %d is %s: %v", index, list.verb, err)
			}
		}
	}
	s.state.paused = wanted // what an edit in the meantime is measured by
	return nil
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

// write asks how things stand and puts that into the file. The caller holds its
// lock.
func (s *scheduler) write(ctx context.Context, doc document, read os.FileInfo) error {
	if err := s.refresh(ctx); err != nil {
		return err
	}
	return s.put(doc, read, s.pausedNow())
}

func (s *scheduler) put(doc document, read os.FileInfo, paused []int) error {
	limits := thresholds{Memory: s.opt.memThreshold, Load: s.opt.loadLimit}
	doc.set(keyCards, showCards(s.cards, limits))
	doc.set(keyPaused, append([]int{}, paused...))
	doc.set(keyJobs, showJobs(s.index.all(), s.since))
	doc.set(keySince, s.since)
	doc.set(keyLimits, limits)
	doc.set(keyUpdated, time.Now())
	stamp, err := doc.write(s.state.path, read)
	if err != nil {
		return err
	}
	s.dirty = false
	s.state.paused, s.state.stamp = paused, stamp
	return nil
}
