package job

import "time"

// Checkpoints sums up the earlier attempts of a job that saves its own work.
type Checkpoints struct {
	Ran   time.Duration // for which they ran, saved or lost
	Lost  time.Duration // of it, what was not saved and is repeated
	Saved time.Time     // when it last reported a save, in this attempt too; zero: never
}

// Saves reports whether the job goes on in its next attempt from what it saved.
func (j *Job) Saves() bool { return j.Spec.Checkpoint != 0 }

// GoesOn takes in an attempt that ended at that time and is to be followed by another.
// What it took to go on from what was saved is no work.
func (j *Job) GoesOn(at time.Time, restart time.Duration) {
	if !j.Saves() {
		return
	}
	ran := j.Worked(at)
	if j.Checkpoints.Ran > 0 {
		ran = max(0, ran-restart)
	}
	j.Checkpoints.Ran += ran
	j.Checkpoints.Lost += j.unsaved(at, ran)
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
	EveryS  *float64   `json:"every_s"` // null: it saves when it is told to stop
	RanS    float64    `json:"ran_s"`
	LostS   float64    `json:"lost_s"`
	SavedAt *time.Time `json:"saved_at"` // null: it never reported a save
}

func (j *Job) checkpointsView() *CheckpointsView {
	if !j.Saves() {
		return nil
	}
	every := j.Spec.Checkpoint.Every().Seconds()
	return &CheckpointsView{orNull(&every), j.Checkpoints.Ran.Seconds(), j.Checkpoints.Lost.Seconds(), timeOrNull(&j.Checkpoints.Saved)}
}
