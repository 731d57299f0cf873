package keep

import "time"

// savePatience is how long an end waits for berth to store it. Its store syncs once
// for the ends of all jobs and the starts that follow.
const savePatience = 100 * time.Millisecond

// How often a supervisor tries again to write how its job ended, and for how
// long: a disk that is read-only over a long weekend is mounted again after it.
const (
	firstSavePause = time.Second
	lastSavePause  = 5 * time.Second
	saveBudget     = 7 * 24 * time.Hour
)

// unsaved is an end that may not be on disk yet. While there is one, the supervisor
// lives, and tells it to every berth that connects: its file may still say
// that the job runs.
type unsaved struct {
	since time.Time // zero: the end is on disk
	pause time.Duration
	timer *time.Timer
}

func (u *unsaved) is() bool { return !u.since.IsZero() }

func (u *unsaved) begin(now time.Time) { u.since, u.pause = now, firstSavePause }

func (u *unsaved) end() {
	u.since = time.Time{}
	u.timer.Stop()
}

// noteEnd writes how the job ended, and leaves the sync to the berth that is told:
// until its commit nobody else knows the end. What was written outlives this process,
// so only a machine that goes down forgets it, as if it had done so before the end.
func (f *recordFile) noteEnd(told bool) {
	f.unsaved.begin(time.Now())
	if !told || failing("end") != nil || f.write() != nil {
		f.save()
		return
	}
	f.unsaved.timer.Reset(savePatience)
}

// save writes how the job ended. If the disk does not take it, it is tried again
// later.
func (f *recordFile) save() {
	u := &f.unsaved
	if !u.is() {
		return
	}
	err := failing("end")
	if err == nil {
		err = f.writeSynced()
	}
	if err == nil || time.Since(u.since) >= saveBudget {
		u.end()
		return
	}
	u.timer.Reset(u.pause)
	u.pause = min(2*u.pause, lastSavePause)
}
