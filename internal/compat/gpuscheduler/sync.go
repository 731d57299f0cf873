package gpuscheduler

import (
	"context"
	"errors"
	"os"
	"slices"
	"time"

	"berth/internal/api"
	"berth/internal/job"
	"berth/internal/text/problem"
)

// lastState is the state file as this scheduler last left it.
type lastState struct {
	path    string
	stamp   os.FileInfo // nil: there is no file
	missing bool        // it had disappeared at the last look
	paused  []int       // its paused_gpus
}

// edited reports whether it was edited since.
func (f *lastState) edited() bool { return !sameStamp(stampOf(f.path), f.stamp) }

// takeOver applies the existing state file. Without one it starts over: nothing
// is paused, and ended jobs are forgotten.
func (s *scheduler) takeOver(ctx context.Context) {
	unlock, err := lockState(s.state.path)
	if err != nil {
		s.log.warn("the state file cannot be locked: %v", err)
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

// untilKept repeats an exchange with the state file until no edit came in
// between.
func (s *scheduler) untilKept(exchange func() error) {
	var err error
	for range editTries {
		if err = exchange(); !errors.Is(err, errEdited) {
			break
		}
	}
	if err != nil && !s.stopping { // a stopping daemon does not answer; lastSave follows
		s.log.warnOnce("cannot write the state file: %v", err)
	}
}

func (s *scheduler) sayBroken(err error) {
	s.log.warnOnce("%v; berth does not touch the file, and paused GPUs stay paused, until it is repaired or deleted", err)
}

// changeEvery is the shortest time between two writes: with many short jobs
// something changes all the time.
const changeEvery = time.Second

// sync applies edits of the state file to the daemon and writes the daemon's state
// to the file. No edit is lost: the file is read before it is replaced, under
// the lock that pause and resume take too.
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
		s.log.warnOnce("cannot write the state file: %v", err)
		return
	}
	defer unlock()
	s.untilKept(func() error { return s.exchange(ctx) })
}

// exchange applies the file and writes it, once.
func (s *scheduler) exchange(ctx context.Context) error {
	doc, stamp, err := readDoc(s.state.path)
	switch {
	case err == nil:
		s.state.missing = false
		err = s.obey(ctx, doc, s.state.paused)
	case errors.Is(err, os.ErrNotExist):
		if s.state.stamp != nil && !s.state.missing {
			s.state.missing = true // some editors delete the old file first
			return nil
		}
		if s.state.missing {
			s.log.info("the state file was deleted; no GPU is paused any more")
			s.state.missing = false
		}
		doc = document{}
		if err = s.refresh(ctx); err == nil {
			err = s.obey(ctx, doc, s.pausedNow())
		}
	default:
		s.state.stamp, s.state.missing = stamp, false
		s.dirty = false // there is nothing to do until it changes
		s.sayBroken(err)
		return nil
	}
	if err != nil {
		return err
	}
	return s.write(ctx, doc, stamp)
}

// lastSave writes the final state after the daemon has ended: jobs that no longer
// run hold no GPU. Edits since the last look are kept for the next start.
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
		s.log.warnOnce("cannot write the state file: %v", err)
		return
	}
	defer unlock()
	s.untilKept(func() error {
		doc, stamp, err := readDoc(s.state.path)
		switch {
		case errors.Is(err, os.ErrNotExist) && s.state.stamp == nil:
			doc = document{}
		case err != nil:
			return nil // deleted or broken: left alone
		}
		return s.put(doc, stamp, s.pausedAtLast(doc))
	})
}

// pausedAtLast are the paused GPUs of the file, with pauses and resumes by other
// means that are not in it yet.
func (s *scheduler) pausedAtLast(doc document) []int {
	inFile, _ := doc.paused() // readDoc has checked it
	now := s.pausedNow()
	list := append(without(inFile, without(s.state.paused, now)), without(now, s.state.paused)...)
	slices.Sort(list)
	return slices.Compact(list)
}

// refresh asks the daemon for the GPUs; on an error they stay as they were.
func (s *scheduler) refresh(ctx context.Context) error {
	cards, err := api.Call(ctx, s.client, api.ListGPUs, api.None{})
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

// obey applies changes of the file's paused_gpus. It fails only if the daemon
// cannot be reached.
func (s *scheduler) obey(ctx context.Context, doc document, before []int) error {
	wanted, err := doc.paused()
	if err != nil {
		return nil // readDoc refuses such a file
	}
	for _, list := range []struct {
		cards  []int
		paused bool
		verb   string
	}{{without(wanted, before), true, "paused"}, {without(before, wanted), false, "resumed"}} {
		for _, index := range list.cards {
			_, err := api.Call(ctx, s.client, api.Pausing(list.paused), api.GPUIndex{Index: index})
			if kind := problem.KindOf(err); err != nil && (kind == "" || kind == problem.Unable) {
				return err
			}
			if err != nil {
				s.log.warn("gpu %d cannot be %s as the state file says: %v", index, list.verb, err)
			}
		}
	}
	s.state.paused = wanted // later edits are compared with this
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

// write puts the daemon's current state into the file. The caller holds the lock.
func (s *scheduler) write(ctx context.Context, doc document, read os.FileInfo) error {
	if err := s.refresh(ctx); err != nil {
		return err
	}
	return s.put(doc, read, s.pausedNow())
}

func (s *scheduler) put(doc document, read os.FileInfo, paused []int) error {
	limits := thresholds{Memory: s.opt.memThreshold, Load: s.opt.loadLimit}
	cards := showCards(s.cards, limits)
	doc.set(keyParts, parts(cards))
	doc.set(keyCards, cards)
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
