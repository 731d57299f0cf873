package job

import "time"

// Kept is what the earlier attempts of a job came to that saves its own work.
type Kept struct {
	Ran  time.Duration // for which they ran, saved or lost
	Lost time.Duration // the part of it that has to be done again
}

// Saves reports whether the job goes on in its next attempt from what it saved.
func (j *Job) Saves() bool { return j.Spec.Checkpoint != 0 }

// GoesOn takes in an attempt that ended, and with it so much work that is to be done
// again. What it took to go on from what was saved is no work.
func (j *Job) GoesOn(ran, restart time.Duration) {
	if !j.Saves() {
		return
	}
	if j.Kept.Ran > 0 {
		ran = max(0, ran-restart)
	}
	j.Kept.Ran += ran
	if every := j.Spec.Checkpoint.Every(); every > 0 {
		j.Kept.Lost += ran % every
	}
}

// RanBefore is for how long a job has run that goes on: before it was last resumed,
// and in earlier attempts.
func (j *Job) RanBefore() time.Duration { return j.Kept.Ran + j.Parking.Served }
