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

// mirror synchronises the state file with the daemon.
type mirror struct {
	shared

	// The file as this scheduler last left it.
	saved   time.Time
	stamp   os.FileInfo // nil: there is no file
	missing bool        // it had disappeared at the last look
	paused  []int       // its paused_gpus
}

// takeOver applies the existing state file. Without one it starts over: nothing
// is paused, and ended jobs are forgotten.
func (m *mirror) takeOver(ctx context.Context) error {
	unlock, err := lockState(m.opt.stateFile)
	if err != nil {
		m.log.warn("the state file cannot be locked: %v", err)
		unlock = func() {}
	}
	defer unlock()
	return untilKept(func() error {
		doc, stamp, err := readDoc(m.opt.stateFile)
		switch {
		case err == nil:
			doc.get(keySince, &m.index.since)
		case errors.Is(err, os.ErrNotExist):
			doc, m.index.since = document{}, time.Now()
		default:
			m.paused = m.index.paused()
			m.sayBroken(err)
			return nil
		}
		if err := m.obey(ctx, doc, m.index.paused()); err != nil {
			return err
		}
		return m.write(ctx, doc, stamp)
	})
}

// untilKept repeats an exchange with the state file until no edit came in
// between.
func untilKept(exchange func() error) (err error) {
	for range editTries {
		if err = exchange(); !errors.Is(err, errEdited) {
			break
		}
	}
	return err
}

func (m *mirror) sayBroken(err error) {
	m.log.warnOnce("%v; berth does not touch the file, and paused GPUs stay paused, until it is repaired or deleted", err)
}

// changeEvery is the shortest time between two writes: with many short jobs
// something changes all the time.
const changeEvery = time.Second

// sync applies edits of the state file to the daemon and writes the daemon's state
// to the file. No edit is lost: the file is read before it is replaced, under
// the lock that pause and resume take too.
func (m *mirror) sync(ctx context.Context, now time.Time) error {
	wait := m.opt.stateEvery
	if m.index.changed {
		wait = min(wait, changeEvery)
	}
	if sameStamp(stampOf(m.opt.stateFile), m.stamp) && now.Sub(m.saved) < wait {
		return nil
	}
	m.saved = now
	unlock, err := lockState(m.opt.stateFile)
	if err != nil {
		return err
	}
	defer unlock()
	return untilKept(func() error { return m.exchange(ctx) })
}

// exchange applies the file and writes it, once.
func (m *mirror) exchange(ctx context.Context) error {
	doc, stamp, err := readDoc(m.opt.stateFile)
	switch {
	case err == nil:
		m.missing = false
		err = m.obey(ctx, doc, m.paused)
	case errors.Is(err, os.ErrNotExist):
		if m.stamp != nil && !m.missing {
			m.missing = true // some editors delete the old file first
			return nil
		}
		if m.missing {
			m.log.info("the state file was deleted; no GPU is paused any more")
			m.missing = false
		}
		doc = document{}
		if err = m.refresh(ctx); err == nil {
			err = m.obey(ctx, doc, m.index.paused())
		}
	default:
		m.stamp, m.missing = stamp, false
		m.index.changed = false // there is nothing to do until it changes
		m.sayBroken(err)
		return nil
	}
	if err != nil {
		return err
	}
	return m.write(ctx, doc, stamp)
}

// lastSave writes the final state after the daemon has ended: jobs that no longer
// run hold no GPU. Edits since the last look are kept for the next start.
func (m *mirror) lastSave() error {
	for i := range m.index.cards {
		m.index.cards[i].Jobs = slices.DeleteFunc(slices.Clone(m.index.cards[i].Jobs), func(j api.GPUJob) bool {
			v, known := m.index.views[j.ID]
			return known && v.State != job.Running
		})
	}
	unlock, err := lockState(m.opt.stateFile)
	if err != nil {
		return err
	}
	defer unlock()
	return untilKept(func() error {
		doc, stamp, err := readDoc(m.opt.stateFile)
		switch {
		case errors.Is(err, os.ErrNotExist) && m.stamp == nil:
			doc = document{}
		case err != nil:
			return nil // deleted or broken: left alone
		}
		return m.put(doc, stamp, m.pausedAtLast(doc))
	})
}

// pausedAtLast are the paused GPUs of the file, with pauses and resumes by other
// means that are not in it yet.
func (m *mirror) pausedAtLast(doc document) []int {
	inFile, _ := doc.paused() // readDoc has checked it
	now := m.index.paused()
	list := append(without(inFile, without(m.paused, now)), without(now, m.paused)...)
	slices.Sort(list)
	return slices.Compact(list)
}

// refresh asks the daemon for the GPUs; on an error they stay as they were.
func (m *mirror) refresh(ctx context.Context) error {
	cards, err := api.Call(ctx, m.client, api.ListGPUs, api.None{})
	if err == nil {
		m.index.cards = cards
	}
	return err
}

// obey applies changes of the file's paused_gpus. It fails only if the daemon
// cannot be reached.
func (m *mirror) obey(ctx context.Context, doc document, before []int) error {
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
			_, err := api.Call(ctx, m.client, api.Pausing(list.paused), api.GPUIndex{Index: index})
			if kind := problem.KindOf(err); err != nil && (kind == "" || kind == problem.Unable) {
				return err
			}
			if err != nil {
				m.log.warn("gpu %d cannot be %s as the state file says: %v", index, list.verb, err)
			}
		}
	}
	m.paused = wanted // later edits are compared with this
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
func (m *mirror) write(ctx context.Context, doc document, read os.FileInfo) error {
	if err := m.refresh(ctx); err != nil {
		return err
	}
	return m.put(doc, read, m.index.paused())
}

func (m *mirror) put(doc document, read os.FileInfo, paused []int) error {
	limits := thresholds{Memory: m.opt.memThreshold, Load: m.opt.loadLimit}
	cards := showCards(m.index.cards, limits)
	doc.set(keyParts, parts(cards))
	doc.set(keyCards, cards)
	doc.set(keyPaused, append([]int{}, paused...))
	doc.set(keyJobs, showJobs(m.index.all(), m.index.since))
	doc.set(keySince, m.index.since)
	doc.set(keyLimits, limits)
	doc.set(keyUpdated, time.Now())
	stamp, err := doc.write(m.opt.stateFile, read)
	if err != nil {
		return err
	}
	m.index.changed = false
	m.paused, m.stamp = paused, stamp
	return nil
}
