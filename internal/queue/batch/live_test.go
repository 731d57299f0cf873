package batch

import (
	"encoding/json"
	"fmt"
	"math"
	"reflect"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"berth/internal/api"
	"berth/internal/job"
	"berth/internal/tests/testkit"
)

// anyJob is a job as a queue could have it.
func anyJob(t *rapid.T) *job.Job {
	number := func(name string, most int) int { return rapid.IntRange(0, most).Draw(t, name) }
	yes := func(name string) bool { return rapid.Bool().Draw(t, name) }
	span := func(name string) time.Duration {
		return time.Duration(rapid.Int64Range(1, int64(time.Hour)).Draw(t, name))
	}
	j := &job.Job{ID: fmt.Sprint(1 + number("id", 20)), User: "ann", State: job.Queued, SubmittedAt: at0, Preemptions: number("preemptions", 2), Held: yes("held")}
	j.Spec = spec("run", func(s *job.Spec) {
		s.GPUs, s.Priority, s.Share = number("gpus", 2), number("priority", 9), float64(number("share", 1))/2
		s.Name = rapid.SampledFrom([]string{"", "prep"}).Draw(t, "name")
		if yes("argv") {
			s.Shell, s.Argv = "", []string{"python", "a b.py"}
		}
		if yes("slurm") {
			s.To = job.ToSlurm
		}
	})
	j.VRAMMiB = int64(number("vram", 2)) * 1000
	if yes("waits") {
		return j
	}
	j.State, j.Attempt.Number, j.StartedAt, j.Log = job.Running, 1+number("attempts", 2), at0.Add(span("waited")), "/logs/1.log"
	for card := range j.Spec.GPUs {
		j.Grant.GPUs = append(j.Grant.GPUs, 3+card)
	}
	j.Grant.Share = j.Spec.Share
	if yes("measured") {
		j.PeakMiB, j.AvgUtil = map[int]int64{}, new(93.5)
		for _, card := range j.Grant.GPUs {
			j.PeakMiB[card] = int64(number("peak", 5000))
		}
	}
	if j.Spec.To == job.ToSlurm {
		j.Handover.Slurm, j.Handover.Node = "120_3", "n1"
	}
	now := j.StartedAt.Add(span("ran"))
	for range number("parkings", 2) {
		j.Parking.Served = j.Worked(now)
		j.Parking.Times++
		j.Parking.Since, j.State = now, job.Parked
		if now = now.Add(span("parked")); yes("resumed") {
			j.Parking.Resumed, j.State = now, job.Running
			now = now.Add(span("ran on"))
			continue
		}
		break
	}
	if yes("ends") {
		j.Outcome = rapid.SampledFrom([]job.Outcome{job.OK, "exit:3", "signal:KILL", job.WasCancelled, job.Lost}).Draw(t, "outcome")
		j.State, j.EndedAt, j.Detail = j.Outcome.State(), now, rapid.SampledFrom([]string{"", "why"}).Draw(t, "detail")
		switch j.Outcome {
		case "exit:3":
			j.ExitCode = new(3)
		case "signal:KILL":
			j.Signal = "KILL"
		}
	}
	return j
}

// TestAJobIsWhatItsViewTells: a client that knows only the view says the same of it.
func TestAJobIsWhatItsViewTells(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		j := anyJob(rt)
		v := j.View()
		line, err := json.Marshal(v)
		var heard job.View
		if err == nil {
			err = json.Unmarshal(line, &heard)
		}
		testkit.Must(t, err)
		back := jobOf(&heard, nil)
		again := back.View()
		if math.Abs(again.ParkedS-v.ParkedS) < 1e-6 {
			again.ParkedS = v.ParkedS // seconds are rounded
		}
		if !reflect.DeepEqual(again, v) {
			rt.Errorf("it is\n%s, want\n%s", asLine(again), asLine(v))
		}
		later := at0.Add(24 * time.Hour)
		if got, want := back.Worked(later), j.Worked(later); (got - want).Abs() > time.Microsecond {
			rt.Errorf("it has worked for %s, want %s", got, want)
		}
		if got, want := inWords(back), inWords(j); !slices.Equal(got, want) {
			rt.Errorf("it is told of as %q, want %q", got, want)
		}
	})
}

// inWords is what is said of a job that has started.
func inWords(j *job.Job) []string {
	if j.StartedAt.IsZero() {
		return []string{label(j)}
	}
	return []string{label(j), where(j), cardsText(j), declaration(j), peaks(j), verdict(j, 0.1)}
}

func asLine(v any) string {
	line, err := encodeLine(v)
	if err != nil {
		panic(err)
	}
	return string(line)
}

// TestAnEventIsToldAsInTheQueuesOwnProcess, in berth's words and in gpusched's.
func TestAnEventIsToldAsInTheQueuesOwnProcess(t *testing.T) {
	t.Parallel()
	for _, theirs := range []bool{false, true} {
		near := narrator{tolerance: 0.1, verbose: true, exists: isThere, tail: LastLines}
		far := near
		if theirs {
			near.theirs, far.theirs = newTheirWords(0.1, true, 2), newTheirWords(0.1, true, 2)
		}
		for _, ev := range story() {
			sent := api.Event{Seq: ev.Seq, Time: ev.At, Kind: ev.Kind, Text: ev.Text}
			specs := map[string]*job.Spec{}
			if ev.Card != nil {
				sent.GPU, sent.By, sent.Bad = ev.Card.GPU, ev.Card.By, ev.Card.Bad
			}
			if ev.Job != nil {
				v := ev.Job.View()
				sent.Job = &v
				if theirs {
					specs[v.ID] = &ev.Job.Spec
				}
			}
			if got, want := far.lines(eventOf(&sent, specs), 1, 2), near.lines(ev, 1, 2); !slices.Equal(got, want) {
				t.Errorf("%s is told as\n%q, want\n%q", ev.Kind, got, want)
			}
		}
	}
}
