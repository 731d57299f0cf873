package daemon

import (
	"maps"
	"slices"
	"strings"
	"time"

	"berth/internal/job"
	"berth/internal/jobfile"
	"berth/internal/notify"
)

// told is what a job's event means to its user, the most telling first; nothing
// for most events.
func told(ev job.Event) []notify.On {
	switch ev.Kind {
	case job.EventStarted:
		return []notify.On{notify.OnStart}
	case job.EventIdle:
		return []notify.On{notify.OnIdle}
	case job.EventOveruse:
		return []notify.On{notify.OnFail}
	case job.EventRetry:
		if strings.HasPrefix(ev.Text, job.OutOfMemory) {
			return []notify.On{notify.OnOOM}
		}
	case job.EventEnded:
		switch outcome := ev.Job.Outcome; {
		case outcome == job.OOM:
			return []notify.On{notify.OnOOM, notify.OnFail, notify.OnEnd}
		case outcome.State() == job.Failed || outcome == job.Depends:
			return []notify.On{notify.OnFail, notify.OnEnd}
		}
		return []notify.On{notify.OnEnd}
	}
	return nil
}

// factOf is what a message says about an event.
func factOf(ev job.Event, on notify.On) notify.Fact {
	j := ev.Job
	f := notify.Fact{
		On: on, At: ev.At, Job: j.ID, Array: j.Array(), Name: j.Name(), User: j.User, State: string(j.State),
		Outcome: string(j.Outcome), GPUs: slices.Clone(j.Grant.GPUs), Attempt: j.Attempt.Number,
	}
	if j.Spec.To == job.ToSlurm {
		f.GPUs = nil // they are not this machine's
	}
	if on != notify.OnStart {
		f.Detail = detailOf(ev)
	}
	if !j.StartedAt.IsZero() && j.EndedAt.After(j.StartedAt) {
		f.Ran = j.EndedAt.Sub(j.StartedAt).Round(time.Second)
	}
	for peak := range maps.Values(j.PeakMiB) {
		f.PeakMiB = max(f.PeakMiB, peak)
	}
	return f
}

// detailOf is why it happened. What could not be started may name files, and a
// message leaves the machine.
func detailOf(ev job.Event) string {
	if ev.Job.Outcome == job.Launch && ev.Kind == job.EventEnded {
		return ""
	}
	return ev.Text
}

// tell makes messages of an event: for its user, by the rules of the job or else
// those of the user, and for administrators.
func (t *teller) tell(ev job.Event, now time.Time) {
	if ev.Job == nil {
		if c := ev.Card; ev.Kind == job.EventCard && c != nil && c.Bad && c.By == "" {
			t.alert(now, ev.Text)
		}
		return
	}
	happened := told(ev)
	if len(happened) == 0 {
		return
	}
	j := ev.Job
	rules, own := jobfile.NotifyRules(&j.Spec)
	if !own {
		rules = t.rules(j.UID, j.User)
	}
	for _, r := range rules {
		for _, on := range asked(r, happened, j.Array() != "") {
			t.add(j.UID, j.User, r.Target.String(), factOf(ev, on), now)
		}
	}
	if ev.Kind == job.EventEnded && j.Array() != "" {
		t.ending[j.Array()] = true
	}
}

// asked is what one target is told about an event: once, as the most telling of
// what it asks for. The end of an array's task is also part of the message about
// the whole array.
func asked(r notify.Rule, happened []notify.On, task bool) (list []notify.On) {
	for _, on := range happened {
		if r.Wants(on) && (len(list) == 0 || task && on == notify.OnEnd) {
			list = append(list, on)
		}
	}
	return list
}

// closeArrays tells about arrays whose tasks have all ended. It asks about those
// of which a task ended, and now and then about all.
func (t *teller) closeArrays(now time.Time) {
	all := now.Sub(t.closedAt) >= tellIdle || now.Before(t.closedAt)
	for _, array := range t.box.Open() {
		if !all && !t.ending[array] {
			continue
		}
		if !t.lives(array) {
			t.change(t.box.Close(array, now))
		}
	}
	clear(t.ending)
	if all {
		t.closedAt = now
	}
}
