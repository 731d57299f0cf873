package engine

import (
	"time"

	"berth/internal/queue/engine/journal"
	"berth/internal/queue/store"
)

// Watch hears how long the engine's work took, in the engine's goroutine. It must
// return at once.
type Watch interface {
	Round()                                        // a round begins
	Decided(took time.Duration)                    // sched made a decision
	Committed(took time.Duration, err error)       // the store was written, or failed
	Parked(took time.Duration, mib int64)          // a job left its cards; took 0: not known
	NotParked()                                    // a job could not be parked
	Resumed(took, parked time.Duration, mib int64) // a job is back on its cards
	NotResumed()                                   // a job had no room after all, and stays parked
}

// unwatched is the Watch of an engine without one.
type unwatched struct{}

func (unwatched) Round()                                      {}
func (unwatched) Decided(time.Duration)                       {}
func (unwatched) Committed(time.Duration, error)              {}
func (unwatched) Parked(time.Duration, int64)                 {}
func (unwatched) NotParked()                                  {}
func (unwatched) Resumed(time.Duration, time.Duration, int64) {}
func (unwatched) NotResumed()                                 {}

// watchedStore tells how long each commit took.
type watchedStore struct {
	journal.Store
	watch Watch
}

func (s watchedStore) Commit(tx store.Tx) error {
	begun := time.Now()
	err := s.Store.Commit(tx)
	s.watch.Committed(time.Since(begun), err)
	return err
}
