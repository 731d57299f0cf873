package sim

import (
	"cmp"
	"container/heap"
	"slices"
)

// Bounds are lower bounds for every scheduler on this machine, even one that
// knows all durations in advance and interrupts jobs at no cost.
type Bounds struct {
	FlowMeanS float64 `json:"flow_mean_s"` // from submission to end
	MakespanS float64 `json:"makespan_s"`  // from the first submission to the last end
}

// task is a job as the bounds see it: its work if it had the whole machine,
// and its duration. All in seconds.
type task struct {
	release, work, length float64
}

// lowerBounds computes the bounds for the jobs that ran. The part of a card that
// a job takes can be counted in shares or in memory. Each count gives a bound,
// and the larger one is used. (Taking the larger count job by job would be
// wrong: a job with much memory and one with a large share fit on one card.)
func lowerBounds(in input, res Result) Bounds {
	var best Bounds
	for _, part := range []func(*Job) int64{in.Machine.sharePart, in.Machine.budgetPart} {
		tasks, beforeS := tasksOf(&in, &res, part)
		b := boundsOf(tasks)
		best.FlowMeanS = max(best.FlowMeanS, b.FlowMeanS+beforeS/float64(max(1, len(tasks))))
		best.MakespanS = max(best.MakespanS, b.MakespanS)
	}
	return best
}

// sharePart counts a job in shares; one that only declares memory counts 0.
func (m Machine) sharePart(j *Job) int64 {
	switch {
	case j.Share > 0:
		return partOf(j.Share)
	case j.VRAMMiB > 0:
		return 0
	}
	return wholeCard
}

// budgetPart counts a job in memory. A share counts 0 here: its memory budget
// is slightly less than the share itself.
func (m Machine) budgetPart(j *Job) int64 {
	switch {
	case j.VRAMMiB > 0:
		return m.memoryPart(j)
	case j.Share > 0:
		return 0
	}
	return wholeCard
}

// tasksOf also sums up how long jobs had waited and run before the replay
// began: no scheduler can change that any more.
func tasksOf(in *input, res *Result, part func(*Job) int64) (tasks []task, beforeS float64) {
	ran := make(map[int]Millis, len(in.Running))
	for _, r := range in.Running {
		ran[r.Job] = r.Ran
	}
	tasks = make([]task, 0, len(in.Jobs))
	for _, i := range bySubmission(in.Jobs) {
		j := &in.Jobs[i]
		if res.Fates[i].Refused != nil || res.Fates[i].Unfinished {
			continue
		}
		release, length := max(j.Submit, res.Began), (j.runs() - min(ran[i], j.runs())).Seconds()
		beforeS += (release - j.Submit).Seconds()
		gpus := float64(j.GPUs) * float64(part(j)) / wholeCard
		tasks = append(tasks, task{release: release.Seconds(), length: length, work: gpus * length / float64(in.Machine.GPUs)})
	}
	slices.SortFunc(tasks, func(a, b task) int {
		return cmp.Or(cmp.Compare(a.release, b.release), cmp.Compare(a.work, b.work), cmp.Compare(a.length, b.length))
	})
	return tasks, beforeS
}

// boundsOf expects the tasks in the order of their release.
func boundsOf(tasks []task) Bounds {
	if len(tasks) == 0 {
		return Bounds{}
	}
	var lengths, releases, lastEnd, behind, workEnd float64
	for _, t := range slices.Backward(tasks) {
		lengths += t.length
		releases += t.release
		lastEnd = max(lastEnd, t.release+t.length)
		behind += t.work
		workEnd = max(workEnd, t.release+behind)
	}
	completions, _ := serve(tasks, func(w *work) float64 { return w.left })
	_, busyDates := serve(tasks, func(w *work) float64 { return w.task.work })
	flow := max(lengths, completions-releases, busyDates+lengths/2-releases)
	return Bounds{FlowMeanS: flow / float64(len(tasks)), MakespanS: max(lastEnd, workEnd) - tasks[0].release}
}

// work is a task in progress.
type work struct {
	task *task
	left float64
	rank float64 // smallest first
}

// serve lets the whole machine work on one task at a time, always the one with
// the smallest rank. It sums up the completion times of the tasks, and the mean
// moments at which they were worked on.
func serve(tasks []task, rank func(*work) float64) (completions, busyDates float64) {
	var waiting works
	now := 0.0
	for next := 0; next < len(tasks) || len(waiting) > 0; {
		if len(waiting) == 0 {
			now = max(now, tasks[next].release)
		}
		for ; next < len(tasks) && tasks[next].release <= now; next++ {
			t := &tasks[next]
			if t.work <= 0 {
				completions, busyDates = completions+t.release, busyDates+t.release
				continue
			}
			w := work{task: t, left: t.work}
			w.rank = rank(&w)
			heap.Push(&waiting, w)
		}
		if len(waiting) == 0 {
			continue
		}
		w := &waiting[0]
		until, done := now+w.left, true
		if next < len(tasks) && tasks[next].release < until {
			until, done = tasks[next].release, false
		}
		busyDates += (until - now) * (until + now) / 2 / w.task.work
		w.left -= until - now
		now = until
		if done {
			completions += now
			heap.Pop(&waiting)
			continue
		}
		w.rank = rank(w) // never larger than before, so it stays on top
	}
	return completions, busyDates
}

// works is a heap with the smallest rank on top.
type works []work

func (w works) Len() int           { return len(w) }
func (w works) Less(i, k int) bool { return w[i].rank < w[k].rank }
func (w works) Swap(i, k int)      { w[i], w[k] = w[k], w[i] }
func (w *works) Push(v any)        { *w = append(*w, v.(work)) }
func (w *works) Pop() any {
	last := len(*w) - 1
	v := (*w)[last]
	*w = (*w)[:last]
	return v
}
