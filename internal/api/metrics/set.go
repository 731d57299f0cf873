package metrics

import (
	"bytes"
	"fmt"
	"runtime"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/common/expfmt"

	"berth/internal/job"
)

// Set is the metrics of one daemon, from its start.
type Set struct {
	registry *prometheus.Registry
	users    *users

	submitted                         prometheus.Counter
	waits, runs                       prometheus.Histogram
	ended, restarts                   *prometheus.CounterVec
	rounds                            prometheus.Counter
	decisions, commits                prometheus.Histogram
	commitFailures                    prometheus.Counter
	parks, notParked, parkedBytes     prometheus.Counter
	resumes, notResumed, resumedBytes prometheus.Counter
	parkTime, resumeTime, parkedFor   prometheus.Histogram
	requests                          *prometheus.CounterVec
	latency                           *prometheus.HistogramVec
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
	s := &Set{registry: prometheus.NewRegistry(), users: newUsers()}
	s.registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	info := s.gaugeVec("berth_build_info", "Always 1; the labels describe the program.", "version", "go_version")
	info.WithLabelValues(version, runtime.Version()).Set(1)

	s.submitted = s.counter("berth_jobs_submitted_total", "Jobs that were submitted.")
	s.waits = s.histogram("berth_job_wait_seconds", "How long jobs waited for room before they started.", waitBuckets)
	s.runs = s.histogram("berth_job_run_seconds", "How long the last attempt of ended jobs ran, without the time for which it was parked.", waitBuckets)
	s.ended = s.counterVec("berth_jobs_ended_total", "Jobs that ended, by outcome.", "outcome")
	for _, outcome := range outcomes {
		s.ended.WithLabelValues(string(outcome))
	}
	s.restarts = s.counterVec("berth_job_restarts_total", "Attempts that ended with the job queued again, by cause.", "cause")
	for _, cause := range causes {
		s.restarts.WithLabelValues(cause)
	}

	s.rounds = s.counter("berth_rounds_total", "Rounds of the scheduling loop.")
	s.decisions = s.histogram("berth_decision_seconds", "How long the scheduler took to decide.", decideBuckets)
	s.commits = s.histogram("berth_store_commit_seconds", "How long the scheduling loop took to write to the database.", diskBuckets)
	s.commitFailures = s.counter("berth_store_commit_failures_total", "Writes of the scheduling loop that failed.")

	s.parks = s.counter("berth_parks_total", "Jobs that were parked.")
	s.notParked = s.counter("berth_park_failures_total", "Jobs that could not be parked and went on running.")
	s.parkedBytes = s.counter("berth_parked_bytes_total", "GPU memory moved to the host.")
	s.parkTime = s.histogram("berth_park_seconds", "How long it took to park a job.", parkBuckets)
	s.resumes = s.counter("berth_resumes_total", "Parked jobs that were resumed.")
	s.notResumed = s.counter("berth_resume_failures_total", "Parked jobs that could not be resumed yet and stayed parked.")
	s.resumedBytes = s.counter("berth_resumed_bytes_total", "GPU memory moved back from the host.")
	s.resumeTime = s.histogram("berth_resume_seconds", "How long it took to resume a job.", parkBuckets)
	s.parkedFor = s.histogram("berth_parked_seconds", "How long resumed jobs had been parked.", waitBuckets)

	s.requests = s.counterVec("berth_api_requests_total", "Requests to the API, by operation and class of status.", "operation", "code")
	s.latency = s.histogramVec("berth_api_request_seconds", "How long requests to the API took, without streams.", diskBuckets, "operation")
	return s
}

func (s *Set) counter(name, help string) prometheus.Counter {
	c := prometheus.NewCounter(prometheus.CounterOpts{Name: name, Help: help})
	s.registry.MustRegister(c)
	return c
}

func (s *Set) counterVec(name, help string, labels ...string) *prometheus.CounterVec {
	c := prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
	s.registry.MustRegister(c)
	return c
}

func (s *Set) gaugeVec(name, help string, labels ...string) *prometheus.GaugeVec {
	g := prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: name, Help: help}, labels)
	s.registry.MustRegister(g)
	return g
}

func (s *Set) histogram(name, help string, buckets []float64) prometheus.Histogram {
	h := prometheus.NewHistogram(prometheus.HistogramOpts{Name: name, Help: help, Buckets: buckets})
	s.registry.MustRegister(h)
	return h
}

func (s *Set) histogramVec(name, help string, buckets []float64, labels ...string) *prometheus.HistogramVec {
	h := prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: name, Help: help, Buckets: buckets}, labels)
	s.registry.MustRegister(h)
	return h
}

// Text is a scrape: the counters, and the state at this moment. At most this many
// users get series of their own; 0: none.
func (s *Set) Text(state State, users int) ([]byte, error) {
	now := prometheus.NewRegistry()
	now.MustRegister(collector{state: state, users: s.users.shown(state.Users, users)})
	families, err := prometheus.Gatherers{s.registry, now}.Gather()
	if err != nil {
		return nil, fmt.Errorf("collect metrics: %w", err)
	}
	var text bytes.Buffer
	for _, family := range families {
		if _, err := expfmt.MetricFamilyToText(&text, family); err != nil {
			return nil, fmt.Errorf("write metrics: %w", err)
		}
	}
	return text.Bytes(), nil
}

// Events counts what happened to jobs.
func (s *Set) Events(events []job.Event) {
	for _, ev := range events {
		if ev.Job == nil {
			continue
		}
		switch ev.Kind {
		case job.EventQueued:
			s.submitted.Inc()
		case job.EventStarted:
			s.started(ev.Job)
		case job.EventEnded:
			s.ended.WithLabelValues(outcomeClass(ev.Job.Outcome)).Inc()
			if !ev.Job.StartedAt.IsZero() {
				s.runs.Observe(ev.Job.Worked(ev.Job.EndedAt).Seconds())
			}
		case job.EventRetry, job.EventRequeued, job.EventPreempted:
			s.restarts.WithLabelValues(causes[ev.Kind]).Inc()
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
	s.waits.Observe(max(0, j.StartedAt.Sub(since).Seconds()))
}

// outcomeClass is one of outcomes.
func outcomeClass(o job.Outcome) string {
	class, _, _ := strings.Cut(string(o), ":")
	return class
}

// The engine's Watch.

func (s *Set) Round()                     { s.rounds.Inc() }
func (s *Set) Decided(took time.Duration) { s.decisions.Observe(took.Seconds()) }

func (s *Set) Committed(took time.Duration, err error) {
	s.commits.Observe(took.Seconds())
	if err != nil {
		s.commitFailures.Inc()
	}
}

func (s *Set) Parked(took time.Duration, parkedMiB int64) {
	s.parks.Inc()
	s.parkedBytes.Add(float64(parkedMiB * mib))
	if took > 0 { // otherwise berth was not there
		s.parkTime.Observe(took.Seconds())
	}
}

func (s *Set) NotParked() { s.notParked.Inc() }

func (s *Set) Resumed(took, parked time.Duration, resumedMiB int64) {
	s.resumes.Inc()
	s.resumedBytes.Add(float64(resumedMiB * mib))
	s.parkedFor.Observe(parked.Seconds())
	if took > 0 {
		s.resumeTime.Observe(took.Seconds())
	}
}

func (s *Set) NotResumed() { s.notResumed.Inc() }

// Served counts a request to the API. A stream lasts as long as its reader likes.
func (s *Set) Served(operation string, status int, took time.Duration, stream bool) {
	s.requests.WithLabelValues(operation, fmt.Sprintf("%dxx", status/100)).Inc()
	if !stream {
		s.latency.WithLabelValues(operation).Observe(took.Seconds())
	}
}
