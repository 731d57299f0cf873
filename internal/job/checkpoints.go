package job

import "time"

// Checkpoints sums up the earlier attempts of a job that saves its own work.
type Checkpoints struct {
	Ran      time.Duration // for which they ran, saved or lost
	Lost     time.Duration // of it, what was not saved and is repeated
	Stopping time.Duration // how long they took to end, once they were told to for another job
	Saved    time.Time     // when it last reported a save, in this attempt too; zero: never
}

// Saves reports whether the job goes on in its next attempt from what it saved.
func (j *Job) Saves() bool { return j.Spec.Checkpoint != 0 }

// GoesOn takes in an attempt that ended at that time and is to be followed by another.
// What it took to save at the end, and to go on from there, is no work.
func (j *Job) GoesOn(at time.Time, restart time.Duration) {
	if !j.Saves() {
		return
	}
	told := at
	if j.Stop == StopPreempt && j.PreemptAt.After(j.StartedAt) && j.PreemptAt.Before(at) {
		told = j.PreemptAt
		j.Checkpoints.Stopping += at.Sub(told)
	}
	ran := j.Worked(told)
	if j.Checkpoints.Ran > 0 {
		ran = max(0, ran-restart)
	}
	j.Checkpoints.Ran += ran
	j.Checkpoints.Lost += j.unsaved(told, ran)
}

// unsaved is how much is lost of an attempt that ends at that time. If a save was
// never reported, and no file would do so, it follows from how often the job said that
// it saves.
func (j *Job) unsaved(at time.Time, ran time.Duration) time.Duration {
	every := j.Spec.Checkpoint.Every()
	switch {
	case j.Checkpoints.Saved.After(j.StartedAt):
		return min(ran, max(0, at.Sub(j.Checkpoints.Saved)))
	case j.Checkpoints.Saved.IsZero() && every > 0 && j.Spec.SavesTo == "":
		return ran % every
	}
	return ran
}

// Interval is how long an attempt has to run to save something. If a save was never
// reported, it is as long as all earlier attempts together, so that a program whose
// saves take long, or fail, ends all the same.
func (j *Job) Interval() time.Duration {
	every := j.Spec.Checkpoint.Every()
	if j.Checkpoints.Saved.IsZero() {
		return max(every, j.Checkpoints.Ran)
	}
	return every
}

// RanBefore is for how long a job has run that goes on: before it was last resumed,
// and in earlier attempts.
func (j *Job) RanBefore() time.Duration { return j.Checkpoints.Ran + j.Parking.Served }

// CheckpointsView is Checkpoints as --json shows it.
type CheckpointsView struct {
	EveryS    *float64   `json:"every_s"` // null: it saves when it is told to stop
	RanS      float64    `json:"ran_s"`
	LostS     float64    `json:"lost_s"`
	GraceS    float64    `json:"grace_s"`    // how long it may take to end for another job
	StoppingS float64    `json:"stopping_s"` // how long its earlier attempts took to
	SavedAt   *time.Time `json:"saved_at"`   // null: it never reported a save
}

func (j *Job) checkpointsView() *CheckpointsView {
	if !j.Saves() {
		return nil
	}
	every, grace, c := j.Spec.Checkpoint.Every().Seconds(), j.Spec.Grace, &j.Checkpoints
	if j.Spec.WarnSignal != "" {
		grace += j.Spec.WarnBefore
	}
	return &CheckpointsView{orNull(&every), c.Ran.Seconds(), c.Lost.Seconds(), grace.Seconds(), c.Stopping.Seconds(), timeOrNull(&c.Saved)}
}
