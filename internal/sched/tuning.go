package sched

import "time"

// The constants below were chosen by replaying workloads. Each says what it trades
// against what; docs/studies/constants.md has for each what the results are without
// it, at half and at twice its value, and how to repeat that. Constants that only
// bound the work of a decision are beside the code that they bound.

// Service classes, under Rules.Slice: jobs that can be parked go by the service
// they had.
const (
	// freshService is what a job has in the first class: enough to see whether a
	// program works at all. Longer finishes more jobs without an interruption, and
	// keeps each new job waiting for longer behind those that are new too.
	freshService = 3 * time.Minute
	// lasBase and lasGrowth are the borders of the classes of LAS, in GPU-seconds:
	// the first, and each over the one before. Closer borders part jobs sooner and
	// park more of them.
	lasBase   = float64(freshService / time.Second)
	lasGrowth = 4
)

// Boosts: a job that has waited for long comes before all but the first class,
// for a time.
const (
	// boostWaitTimes is how many times the service it had a job waits for a boost:
	// while the machine keeps up with that, a job is over within five times its
	// length. A job that had none yet is boosted from its start. Fewer help jobs that
	// need much; more, those that need little.
	boostWaitTimes = 4
	// boostWaitMost bounds that wait: within a day somebody looks for the job. More
	// lengthens the longest wait.
	boostWaitMost = 24 * time.Hour
	// boostLeast is how long a boost lasts at least. Longer finishes more jobs
	// within one and parks fewer, and keeps the next one waiting.
	boostLeast = 30 * time.Minute
	// boostPart: a job that has waited for days is boosted for a tenth of that.
	boostPart = 10
	// boostFirst is the service below which a job goes first among the boosted: it
	// is more than freshService and a boost together, so that such a job has not
	// had a whole boost yet, and most need no more than one. More of them shorten
	// the mean, and lengthen the longest wait, which is that of the others.
	boostFirst = 48 * time.Minute
)

// Preemption.
const (
	// minRun is the least that a job runs before it is parked, where Rules.MinRun
	// does not say. Less lets new jobs start sooner, and parks more.
	minRun = time.Minute
	// minRunCosts is also how many times the cost of parking and resuming it runs
	// before: at two, parking takes no more than a third of a card's time, however
	// jobs arrive.
	minRunCosts = 2
)

// Reservations.
const (
	// reservationsMost is for how many waiting jobs GPUs are reserved under
	// Conservative, and where jobs can be parked. More delays fewer jobs, and lets
	// fewer overtake.
	reservationsMost = 8
	// reservationSoon is within what time a job has to get its GPUs where jobs can
	// be parked: running jobs make room within minutes, and GPUs that are reserved
	// for longer lie idle.
	reservationSoon = freshService
	// reservationMoments is how many ends of runs are tried for a reservation behind
	// others. Fewer give up on a job sooner, and cost less.
	reservationMoments = 64
	// DefaultMaxBypass is the overtake limit, two days. To clear many cards for one
	// job idles most of them for as long as the longest run on them lasts, so that a
	// shorter limit costs all others more than it gives the one.
	DefaultMaxBypass = 48 * time.Hour
)

// Estimates.
const (
	// estimateStep is the ratio of two neighbouring estimates: those that are
	// closer count as equal, so that a queue has few kinds of job. A larger step
	// makes decisions cheaper, and lets fewer jobs overtake.
	estimateStep = 1.189207115002721 // the fourth root of two
	// otherBerthsEstimate is how long another berth's jobs are expected to last, of
	// which nothing is known.
	otherBerthsEstimate = 24 * time.Hour
)

// Fair share.
const (
	// FairQuantum is what a caller gives as State.FairQuantum: one card given away
	// counts for an hour at once, so that users who wait get their turns before
	// anything was measured. More makes users alternate, whatever they had before.
	FairQuantum = 3600.0
	// cpuWeight is what each cpu of a CPU job counts as where users take turns.
	// It is little beside a GPU, and enough that users of CPU jobs alone take
	// turns too.
	cpuWeight = 0.01
	// forgettable is usage so small that it decides nothing. Short jobs use little
	// each, and many of them much.
	forgettable = 1e-3
)
