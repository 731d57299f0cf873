package sched

import "time"

// The constants below were chosen by replaying workloads. Each says what it trades
// against what; docs/studies/constants.md has for each what the results are without
// it, at half and at twice its value, and how to repeat that. Constants that only
// bound the work of a decision are beside the code that they bound.

// Service classes, under Rules.Slice: jobs that can be parked are ordered by the
// service they have received.
const (
	// freshService is the service of the first class: enough to see whether a
	// program works at all. A larger value finishes more jobs without an
	// interruption, and keeps each new job waiting longer behind other new ones.
	freshService = 3 * time.Minute
	// lasBase and lasGrowth are the bounds of the LAS classes, in GPU-seconds: the
	// first bound, and the ratio of each to the one before. Closer bounds separate
	// jobs sooner and park more of them.
	lasBase   = float64(freshService / time.Second)
	lasGrowth = 4
)

// Boosts: a job that has waited for long goes before all but the first class, for a
// time.
const (
	// boostWaitTimes is how long a job waits for a boost, as a multiple of the
	// service it has received: while the machine keeps up with that, a job ends
	// within five times its length. A job without any service is boosted from its
	// start. A smaller value helps long jobs; a larger one, short jobs.
	boostWaitTimes = 4
	// boostWaitMost bounds that wait, because people look for their job within a
	// day. A larger value lengthens the longest wait.
	boostWaitMost = 24 * time.Hour
	// boostLeast is the shortest boost. A larger value finishes more jobs within
	// one boost and parks fewer, and keeps the next job waiting.
	boostLeast = 30 * time.Minute
	// boostPart: a job that has waited for days is boosted for a tenth of its wait.
	boostPart = 10
	// boostFirst is the service below which a job goes first among the boosted. It
	// exceeds freshService plus one boost, so such a job has not used up a boost
	// yet, and most jobs need no more than one. A larger value shortens the mean
	// wait and lengthens the longest.
	boostFirst = 48 * time.Minute
)

// Preemption.
const (
	// minRun is the least time a job runs before it is parked, unless Rules.MinRun
	// says otherwise. A smaller value starts new jobs sooner and parks more.
	minRun = time.Minute
	// minRunCosts is the same as a multiple of the cost of parking and resuming: at
	// two, parking takes at most a third of a card's time, however jobs arrive.
	minRunCosts = 2
	// restart is what a job that saved its own work is taken to lose when it runs
	// again: programs load their data and compile. At two minutes a job that saves
	// when it is told to runs for four before it gives way. A larger value keeps
	// the next job waiting; with a smaller one, slow programs load more than they
	// work. It is at most restartRuns times Rules.MinRun.
	restart     = 2 * time.Minute
	restartRuns = 2
)

// Reservations.
const (
	// reservationsMost is how many waiting jobs have a reservation under
	// Conservative, and where jobs can be parked. More delays fewer jobs, and lets
	// fewer overtake.
	reservationsMost = 8
	// reservationSoon bounds how far ahead GPUs are reserved where jobs can be
	// parked: running jobs make room within minutes, and GPUs reserved for longer
	// lie idle.
	reservationSoon = freshService
	// reservationMoments is how many ends of running jobs are tried for a
	// reservation behind others. Fewer give up on a job sooner, and cost less.
	reservationMoments = 64
	// DefaultMaxBypass is the overtake limit, two days. Clearing many cards for one
	// job idles most of them until the longest job on them ends, so a shorter limit
	// costs the other jobs more than it gives this one.
	DefaultMaxBypass = 48 * time.Hour
	// DefaultBorrowTime is how long a user may have to wait at most for GPUs of their
	// share that a job holds which cannot give way.
	DefaultBorrowTime = 4 * time.Hour
)

// borrowGrace is the part of Rules.BorrowTime by which a job may exceed it: a limit
// counts the grace period after it, which users do not think of.
const borrowGrace = 20

// Estimates.
const (
	// estimateStep is the ratio of neighbouring estimates: closer ones count as
	// equal, so that a queue has few shapes. A larger step makes decisions
	// cheaper, and lets fewer jobs overtake.
	estimateStep = 1.189207115002721 // the fourth root of two
	// otherBerthsEstimate is how long another berth's jobs are expected to last; it
	// tells nothing about them.
	otherBerthsEstimate = 24 * time.Hour
)

// Fair share.
const (
	// FairQuantum is the usual value of State.FairQuantum: one allocated GPU counts
	// as an hour at once, so that waiting users get their turns before any usage
	// was measured. A larger value makes users alternate, whatever their usage.
	FairQuantum = 3600.0
	// cpuWeight is what each CPU of a CPU job counts as beside jobs with GPUs, for
	// service and preemption: little beside a GPU, and enough that the sizes of CPU
	// jobs differ. In fair share it counts only where the host's CPUs are not known.
	cpuWeight = 0.01
	// forgettable is usage too small to decide anything. Short jobs add little
	// each, and many of them much.
	forgettable = 1e-3
)
