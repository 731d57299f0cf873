package metrics

import (
	"fmt"
	"runtime"
	"strings"
	"time"

	"berth/internal/job"
)

// Set is the metrics of one daemon, from its start.
type Set struct {
	since    time.Time
	families []*family
	users    *users

	submitted, rounds, commitFailures *family
	waits, runs, decisions, commits   *family // histograms
	ended, restarts                   *family
	parks, notParked, parkedBytes     *family
	resumes, notResumed, resumedBytes *family
	parkTime, resumeTime, parkedFor   *family // histograms
	requests, latency                 *family
}

// The buckets, in seconds.
var (
	waitBuckets   = []float64{1, 10, 60, 300, 900, 3600, 3 * 3600, 6 * 3600, 12 * 3600, 24 * 3600, 48 * 3600, 168 * 3600}
	decideBuckets = []float64{20e-6, 50e-6, 100e-6, 200e-6, 500e-6, 0.001, 0.002, 0.005, 0.01, 0.1, 1}
	diskBuckets   = []float64{0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.5, 1, 5}
	parkBuckets   = []float64{0.1, 0.5, 1, 2, 5, 10, 20, 60, 120, 300}
)

// outcomes are the values of the label outcome: those of docs/reference/states.md,
// without the number of an exit status and the name of a signal.
var outcomes = []job.Outcome{job.OK, "exit", "signal", job.Timeout, job.OOM, job.Overuse, job.Infeasible, job.Launch, job.Lost, job.Resume, job.WasCancelled, job.Depends}

// causes are the values of the label cause.
var causes = map[job.EventKind]string{job.EventRetry: "retry", job.EventRequeued: "requeue", job.EventPreempted: "preemption"}

// New makes the metrics of a daemon of that version.
func New(version string) *Set {
	s := &Set{since: time.Now(), users: &users{known: map[string]bool{}}}
	info := s.add("gauge", "berth_build_info", "Always 1; the labels describe the program.", nil, "go_version", "version")
	info.set(1, runtime.Version(), version)

	s.submitted = s.add("counter", "berth_jobs_submitted_total", "Jobs that were submitted.", nil)
	s.waits = s.add("histogram", "berth_job_wait_seconds", "How long jobs waited for room before they started.", waitBuckets)
	s.runs = s.add("histogram", "berth_job_run_seconds", "How long the last attempt of ended jobs ran, without the time for which it was parked.", waitBuckets)
	s.ended = s.add("counter", "berth_jobs_ended_total", "Jobs that ended, by outcome.", nil, "outcome")
	for _, outcome := range outcomes {
		s.ended.add(0, string(outcome))
	}
	s.restarts = s.add("counter", "berth_job_restarts_total", "Attempts that ended with the job queued again, by cause.", nil, "cause")
	for _, cause := range causes {
		s.restarts.add(0, cause)
	}

	s.rounds = s.add("counter", "berth_rounds_total", "Rounds of the scheduling loop.", nil)
	s.decisions = s.add("histogram", "berth_decision_seconds", "How long the scheduler took to decide.", decideBuckets)
	s.commits = s.add("histogram", "berth_store_commit_seconds", "How long the scheduling loop took to write to the database.", diskBuckets)
	s.commitFailures = s.add("counter", "berth_store_commit_failures_total", "Writes of the scheduling loop that failed.", nil)

	s.parks = s.add("counter", "berth_parks_total", "Jobs that were parked.", nil)
	s.notParked = s.add("counter", "berth_park_failures_total", "Jobs that could not be parked and went on running.", nil)
	s.parkedBytes = s.add("counter", "berth_parked_bytes_total", "GPU memory moved to the host.", nil)
	s.parkTime = s.add("histogram", "berth_park_seconds", "How long it took to park a job.", parkBuckets)
	s.resumes = s.add("counter", "berth_resumes_total", "Parked jobs that were resumed.", nil)
	s.notResumed = s.add("counter", "berth_resume_failures_total", "Parked jobs that could not be resumed yet and stayed parked.", nil)
	s.resumedBytes = s.add("counter", "berth_resumed_bytes_total", "GPU memory moved back from the host.", nil)
	s.resumeTime = s.add("histogram", "berth_resume_seconds", "How long it took to resume a job.", parkBuckets)
	s.parkedFor = s.add("histogram", "berth_parked_seconds", "How long resumed jobs had been parked.", waitBuckets)

	s.requests = s.add("counter", "berth_api_requests_total", "Requests to the API, by operation and class of status.", nil, "code", "operation")
	s.latency = s.add("histogram", "berth_api_request_seconds", "How long requests to the API took, without streams.", diskBuckets, "operation")
	return s
}

func (s *Set) add(kind, name, help string, bounds []float64, labels ...string) *family {
	f := newFamily(kind, name, help, bounds, labels...)
	s.families = append(s.families, f)
	return f
}

// Text is a scrape: the counters, and the state at this moment. At most this many
// users get series of their own; 0: none.
func (s *Set) Text(state State, users int) []byte {
	now := &page{}
	now.program()
	now.process(s.since)
	now.state(state, s.users.shown(state.Users, users))
	return text(append(now.families, s.families...))
}

// Events counts what happened to jobs.
func (s *Set) Events(events []job.Event) {
	for _, ev := range events {
		if ev.Job == nil {
			continue
		}
		switch ev.Kind {
		case job.EventQueued:
			s.submitted.add(1)
		case job.EventStarted:
			s.started(ev.Job)
		case job.EventEnded:
			s.ended.add(1, outcomeClass(ev.Job.Outcome))
			if !ev.Job.StartedAt.IsZero() {
				s.runs.observe(ev.Job.Worked(ev.Job.EndedAt).Seconds())
			}
		case job.EventRetry, job.EventRequeued, job.EventPreempted:
			s.restarts.add(1, causes[ev.Kind])
		}
	}
}

// started counts a wait, which ends with a start. An adopted process waits for
// nothing.
func (s *Set) started(j *job.Job) {
	if j.Spec.Adopt != nil {
		return
	}
	since := j.SubmittedAt
	if j.WaitsSince.After(since) {
		since = j.WaitsSince
	}
	s.waits.observe(max(0, j.StartedAt.Sub(since).Seconds()))
}

// outcomeClass is one of outcomes.
func outcomeClass(o job.Outcome) string {
	class, _, _ := strings.Cut(string(o), ":")
	return class
}

// The engine's Watch.

func (s *Set) Round()                     { s.rounds.add(1) }
func (s *Set) Decided(took time.Duration) { s.decisions.observe(took.Seconds()) }

func (s *Set) Committed(took time.Duration, err error) {
	s.commits.observe(took.Seconds())
	if err != nil {
		s.commitFailures.add(1)
	}
}

func (s *Set) Parked(took time.Duration, parkedMiB int64) {
	s.parks.add(1)
	s.parkedBytes.add(float64(parkedMiB * mib))
	if took > 0 { // otherwise berth was not there
		s.parkTime.observe(took.Seconds())
	}
}

func (s *Set) NotParked() { s.notParked.add(1) }

func (s *Set) Resumed(took, parked time.Duration, resumedMiB int64) {
	s.resumes.add(1)
	s.resumedBytes.add(float64(resumedMiB * mib))
	s.parkedFor.observe(parked.Seconds())
	if took > 0 {
		s.resumeTime.observe(took.Seconds())
	}
}

func (s *Set) NotResumed() { s.notResumed.add(1) }

// Served counts a request to the API. A stream lasts as long as its reader likes.
func (s *Set) Served(operation string, status int, took time.Duration, stream bool) {
	s.requests.add(1, fmt.Sprintf("%dxx", status/100), operation)
	if !stream {
		s.latency.observe(took.Seconds(), operation)
	}
}
