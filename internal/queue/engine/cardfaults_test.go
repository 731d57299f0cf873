package engine

import (
	"fmt"
	"slices"
	"time"

	"berth/internal/job"
	"berth/internal/machine/gpu"
)

// hardware is what is wrong with the cards of a world.
type hardware struct {
	away  map[int]ailment // cards that cannot be read
	rows  map[int]ailment // cards whose memory rows wait to be remapped
	leaks []*leak
	xids  []gpu.Xid
	log   []gpu.Xid         // what the kernel's log has of them
	hard  map[int]time.Time // when a card was last said to be broken
	shown map[int]string    // what the last look said is wrong with a card
	leaky map[int]bool      // cards on which it showed what no process explains

	external []*externalProcess
	came     int  // how many there ever were
	vague    bool // the driver does not tell what each of them uses
}

type ailment struct {
	kind  string
	until time.Time
}

// leak is memory that a command left behind on its cards.
type leak struct {
	of    *execution
	boot  int
	until time.Time
	shown bool // to the berth under which it happened
}

func newHardware(seed uint64) hardware {
	return hardware{vague: seed%4 == 0, hard: map[int]time.Time{}, away: map[int]ailment{}, rows: map[int]ailment{}, shown: map[int]string{}, leaky: map[int]bool{}}
}

// ail lets cards go wrong, and get well again.
func (w *world) ail() {
	for card := range w.cards {
		span := w.now.Add(time.Duration(1+w.rng.IntN(20)) * time.Second)
		if w.chance(80) {
			kind := []string{"missing", gpu.FaultLost, gpu.FaultHangs, gpu.FaultUnreadable}[w.rng.IntN(4)]
			w.hardware.away[card] = ailment{kind, span}
		}
		if w.chance(200) {
			w.hardware.rows[card] = ailment{"rows", span}
		}
		if w.chance(80) {
			code := []int{13, 31, 63, 48, 74, 79, 4711}[w.rng.IntN(7)]
			x := gpu.Xid{At: w.now, UUID: fmt.Sprintf("GPU-%d", card), Code: code}
			w.hardware.xids, w.hardware.log = append(w.hardware.xids, x), append(w.hardware.log, x)
		}
	}
	w.comeAndGo()
	over := func(a ailment) bool { return !w.storm || !w.now.Before(a.until) }
	for card := range w.cards {
		if over(w.hardware.away[card]) {
			delete(w.hardware.away, card)
		}
		if over(w.hardware.rows[card]) {
			delete(w.hardware.rows, card)
		}
	}
	w.hardware.leaks = slices.DeleteFunc(w.hardware.leaks, func(l *leak) bool { return !w.storm || !w.now.Before(l.until) })
}

// leave has a command leave memory behind, now and then for longer than anyone
// has patience.
func (w *world) leave(x *execution) {
	if w.chance(6) && x.realMiB >= 1000 {
		until := w.now.Add(time.Duration(1+w.rng.IntN(45)) * time.Second)
		w.hardware.leaks = append(w.hardware.leaks, &leak{of: x, boot: w.boots, until: until})
	}
}

// ailing is a sample as it looks with all that is wrong.
func (w *world) ailing(devices []gpu.Device) gpu.Sample {
	s := gpu.Sample{At: w.now, Xids: w.spoken()}
	for _, x := range w.history {
		if x.alive && len(x.cards) > 0 {
			x.listed = w.boots
		}
	}
	clear(w.hardware.shown)
	clear(w.hardware.leaky)
	for _, l := range w.hardware.leaks {
		for _, card := range l.of.cards {
			devices[card].UsedMiB = min(w.total, devices[card].UsedMiB+l.of.realMiB)
			w.hardware.leaky[card] = true
		}
		l.shown = l.boot == w.boots
	}
	for _, d := range devices {
		if _, wait := w.hardware.rows[d.Index]; wait {
			d.Condition.RowsPending = true
			w.hardware.shown[d.Index] = "rows"
		}
		away, is := w.hardware.away[d.Index]
		switch {
		case !is:
			s.Devices = append(s.Devices, d)
			continue
		case away.kind != "missing":
			s.Faults = append(s.Faults, gpu.Fault{Index: d.Index, Kind: away.kind})
		}
		w.hardware.shown[d.Index] = away.kind
	}
	for _, x := range s.Xids {
		if x.Code == 48 || x.Code == 74 || x.Code == 79 {
			for _, d := range devices {
				if d.UUID == x.UUID {
					w.hardware.shown[d.Index] = "Xid"
				}
			}
		}
	}
	return s
}

// arrives notes whether a job comes to clean cards, also from the host: what was there
// before it came hides as much of what it leaves.
func (w *world) arrives(x *execution) {
	for _, card := range x.cards {
		x.clean = x.clean && !w.hardware.leaky[card]
	}
}

// checkCards: nothing starts on a card that was shown to be in trouble, or on
// which the memory of a job that is over was shown to be in use still.
func (w *world) checkCards(x *execution) {
	x.boot, x.clean = w.boots, true
	w.checkStrangers(x)
	w.arrives(x)
	for _, card := range x.cards {
		if what := w.hardware.shown[card]; what != "" {
			w.wrong("job %s started on gpu%d in spite of %s", x.job, card, what)
		}
		if at, said := w.hardware.hard[card]; said && w.now.Sub(at) < 5*time.Second {
			w.wrong("job %s started on gpu%d, %s after it was said to be broken", x.job, card, w.now.Sub(at))
		}
		for _, l := range w.hardware.leaks {
			row := w.rows[l.of.job]
			over := row.State != job.Running || row.Keep != l.of.token || row.Attempt.Number != l.of.attempt
			// And to a berth that never saw a process the driver may hide them.
			known := l.of.clean && l.of.boot == l.boot && l.of.listed == l.boot && !w.hardware.vague
			if l.shown && over && known && slices.Contains(l.of.cards, card) {
				w.wrong("job %s started on gpu%d, where job %s left %d MiB", x.job, card, l.of.job, l.of.realMiB)
			}
		}
	}
}
