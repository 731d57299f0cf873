package messages

import (
	"maps"
	"slices"
	"strings"
	"time"

	"berth/internal/job"
	"berth/internal/job/jobfile"
	"berth/internal/queue/notify"
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
		On: on, At: ev.At, Job: j.ID, Whole: wholeOf(j), Name: j.Name(), User: j.User, State: string(j.State),
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

func wholeOf(j *job.Job) notify.Whole { return notify.Whole{Array: j.Array(), File: j.Spec.Batch} }

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
	whole := wholeOf(j)
	for _, r := range rulesFor(j, t.rules) {
		for _, on := range asked(r, happened, whole != notify.Whole{}) {
			t.add(j.UID, j.User, r.Target.String(), factOf(ev, on), now)
			t.ending[whole] = t.ending[whole] || on == notify.OnEnd
		}
	}
}

// rulesFor are the rules of a job, or else those of its user.
func rulesFor(j *job.Job, user func(uid int, name string) []notify.Rule) []notify.Rule {
	if rules, own := jobfile.NotifyRules(&j.Spec); own {
		return rules
	}
	return user(j.UID, j.User)
}

// asked is what one target is told about an event: once, as the most telling of
// what it asks for. The end of a task or a line is also part of the message about
// its whole.
func asked(r notify.Rule, happened []notify.On, part bool) (list []notify.On) {
	for _, on := range happened {
		if r.Wants(on) && (len(list) == 0 || part && on == notify.OnEnd) {
			list = append(list, on)
		}
	}
	return list
}

// closeWholes tells about arrays and files whose jobs have all ended. It asks about
// those of which a job ended, and now and then about all.
func (t *teller) closeWholes(now time.Time) {
	all := now.Sub(t.closedAt) >= tellIdle || now.Before(t.closedAt)
	for _, awaited := range t.box.Open() {
		if (all || t.ending[awaited.Whole]) && !t.lives(awaited) {
			t.change(t.box.Close(awaited, now))
		}
	}
	clear(t.ending)
	if all {
		t.closedAt = now
	}
}
