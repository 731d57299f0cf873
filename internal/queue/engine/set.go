package engine

import (
	"time"

	"berth/internal/job"
	"berth/internal/queue/engine/running"
	"berth/internal/queue/engine/settings"
	"berth/internal/sched"
)

// Settings changes what the owner of the queue decides, while the engine runs.
type Settings struct {
	*parts
	parker *Parker
}

// Rules changes how jobs are placed from now on. Running jobs are not
// touched.
func (s *Settings) Rules(rules sched.Rules, limits settings.Limits) {
	s.cfg.Rules, s.cfg.Limits = rules, limits
	s.cards.Meter.SetSpikeBuffer(rules.SpikeBuffer)
	s.line.SetRules(s.changes.Now, rules)
}

// KeepAll switches preemption off or on. A victim that was told to stop still
// stops.
func (s *Settings) KeepAll(keep bool) {
	s.moved = s.moved || s.cfg.KeepAll != keep
	s.cfg.KeepAll = keep
}

// Parking changes how jobs are parked from now on. What is parked stays so.
func (s *Settings) Parking(p settings.Parking) {
	s.cfg.Parking, s.moved = p, true
	for _, a := range s.attempts.Parked {
		if s.parker.boundParked(a.Job) {
			s.queue.Enqueue(a.Job)
		}
	}
	s.line.EstimateAgain(s.changes.Now)
}

// Idle changes when a job that leaves its cards, or its CPUs, unused is
// reported and cancelled; 0: never.
func (s *Settings) Idle(after, cancel time.Duration) {
	s.cfg.IdleAfter, s.cfg.IdleCancel = after, cancel
}

// Overuse changes when a job that uses far more memory than it declared is
// ended.
func (s *Settings) Overuse(o settings.Overuse) { s.cfg.Overuse = o }

// MaxGrace changes the longest time between TERM and KILL; 0: no maximum. It
// shortens what is already being stopped.
func (s *Settings) MaxGrace(most time.Duration) {
	if s.cfg.MaxGrace == most {
		return
	}
	s.cfg.MaxGrace, s.moved = most, true
	s.line.EstimateAgain(s.changes.Now)
	for _, a := range s.attempts.Active {
		if j := a.Job; j.Stop != job.NoStop && (a.Told || j.Stop != job.StopPreempt) {
			s.attempts.Stops = append(s.attempts.Stops, running.StopOrder{Token: j.Keep, Why: j.Stop, Grace: j.Spec.Grace})
		}
	}
}

// Open lets an engine start jobs that was made closed, unless it was told to stop.
func (s *Settings) Open() {
	if s.closed {
		s.stopping, s.closed, s.moved = false, false, true
	}
}

// Closed reports whether it has not been opened yet.
func (s *Settings) Closed() bool { return s.closed }
