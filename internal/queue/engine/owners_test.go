package engine

import (
	"testing"

	"berth/internal/job"
	"berth/internal/machine/run"
)

// listener hears which jobs attribution is told of, and knows a process by its
// own number only, as berth does in a pid namespace of its own.
type listener struct {
	*rig
	holders []run.Holder
}

func (l *listener) Set(holders []run.Holder) { l.holders = holders }

func (l *listener) Owner(int) (string, bool, bool) { return "", false, false }

func TestAttributionKnowsWhoseEachJobIs(t *testing.T) {
	r := newRig(t, 1)
	l := &listener{rig: r}
	r.e.turn.cards.Bookings.Owners = l
	j := r.submit(spec(func(s *job.Spec) { s.GPUs = 0 }))[0]
	r.e.turn.attempts.Active[j.ID].Job.UID = 1234
	r.at().attempts.Holdings.SetOwners()
	if len(l.holders) != 1 || l.holders[0].Key != j.ID || l.holders[0].UID != 1234 {
		t.Errorf("it is told of %+v", l.holders)
	}
}

// Whoever asks names a process by the number it has here.
func TestAProcessIsPartOfAJobWhateverTheDriverCallsIt(t *testing.T) {
	r := newRig(t, 1)
	r.owners[4242] = "7"
	r.e.turn.cards.Bookings.Owners = &listener{rig: r}
	if id, other, found := r.at().cards.Bookings.BelongsTo(4242); id != "7" || other || !found {
		t.Errorf("it is %q's, %v, %v", id, other, found)
	}
}
