package metrics

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"berth/internal/job"
	"berth/internal/tests/testkit"
)

var start = time.Date(2026, 3, 14, 15, 9, 26, 0, time.UTC)

// full is a set and a state in which every metric has a value.
func full() (*Set, State) {
	s := New("1.2.3")
	s.Served("list", 200, time.Millisecond, false)
	return s, State{
		Users: map[string]User{"ann": {Jobs: 3, Running: 1, GPUs: 0.5}}, ReadAt: start,
		Cards: []Card{{Index: 3, UUID: "GPU-3", Name: "H200", TotalMiB: 1024, Health: "ok"}},
	}
}

// scrape is what Prometheus would read.
func scrape(t *testing.T, s *Set, state State, users int) map[string]*dto.MetricFamily {
	t.Helper()
	text := s.Text(state, users)
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(bytes.NewReader(text))
	testkit.Must(t, err)
	return families
}

// value is the value of a series, as in `name{a="b"}`; a histogram's is its count
// and sum.
func value(t *testing.T, families map[string]*dto.MetricFamily, series string) string {
	t.Helper()
	name, labels, _ := strings.Cut(strings.TrimSuffix(series, "}"), "{")
	family := families[name]
	if family == nil {
		return "no metric"
	}
	for _, m := range family.Metric {
		var list []string
		for _, l := range m.Label {
			list = append(list, fmt.Sprintf("%s=%q", l.GetName(), l.GetValue()))
		}
		if strings.Join(list, ",") != labels {
			continue
		}
		switch {
		case m.Histogram != nil:
			return fmt.Sprintf("%d %g", m.Histogram.GetSampleCount(), m.Histogram.GetSampleSum())
		case m.Counter != nil:
			return fmt.Sprintf("%g", m.Counter.GetValue())
		}
		return fmt.Sprintf("%g", m.Gauge.GetValue())
	}
	return "no series"
}

func wantValues(t *testing.T, families map[string]*dto.MetricFamily, want map[string]string) {
	t.Helper()
	for series, number := range want {
		if got := value(t, families, series); got != number {
			t.Errorf("%s is %s, want %s", series, got, number)
		}
	}
}

// TestThePageHasEveryMetric: docs/reference/metrics.md lists every metric with its
// type and labels, and no others.
func TestThePageHasEveryMetric(t *testing.T) {
	page, err := os.ReadFile("../../../docs/reference/metrics.md")
	testkit.Must(t, err)
	listed := map[string]string{}
	for _, row := range regexp.MustCompile("(?m)^\\| `(berth_[a-z_]+)` \\| ([a-z]+) \\|([^|]*)\\| [^|]+\\|$").FindAllStringSubmatch(string(page), -1) {
		if _, twice := listed[row[1]]; twice {
			t.Errorf("%s is listed twice", row[1])
		}
		labels := strings.NewReplacer("`", "", ",", "").Replace(row[3])
		names := strings.Fields(labels)
		slices.Sort(names)
		listed[row[1]] = row[2] + " " + strings.Join(names, ",")
	}
	set, state := full()
	for name, family := range scrape(t, set, state, 10) {
		if !strings.HasPrefix(name, "berth_") {
			continue
		}
		var labels []string
		for _, l := range family.Metric[0].Label {
			labels = append(labels, l.GetName())
		}
		got := strings.ToLower(family.GetType().String()) + " " + strings.Join(labels, ",")
		if listed[name] != got {
			t.Errorf("%s is %q, and on the page %q", name, got, listed[name])
		}
		delete(listed, name)
	}
	for name := range listed {
		t.Errorf("the page lists %s, which does not exist", name)
	}
}

// TestMetricsPleasePromtool: names, types, units and help are as Prometheus wants
// them.
func TestMetricsPleasePromtool(t *testing.T) {
	promtool, err := exec.LookPath("promtool")
	if err != nil {
		t.Skip("promtool is missing")
	}
	set, state := full()
	text := set.Text(state, 10)
	cmd := exec.CommandContext(t.Context(), promtool, "check", "metrics")
	cmd.Stdin = bytes.NewReader(text)
	if out, err := cmd.CombinedOutput(); err != nil || len(out) > 0 {
		t.Errorf("%v\n%s", err, out)
	}
}

func TestEventsAreCounted(t *testing.T) {
	s := New("test")
	at := func(d time.Duration) time.Time { return start.Add(d) }
	run := func(outcome job.Outcome, began, ended time.Duration) *job.Job {
		j := &job.Job{SubmittedAt: start, Outcome: outcome}
		j.StartedAt, j.EndedAt = at(began), at(ended)
		return j
	}
	requeued := run("", time.Hour, 0)
	requeued.WaitsSince = at(50 * time.Minute)
	adopted := run("", time.Hour, 0)
	adopted.Spec.Adopt = &job.Process{}
	s.Events([]job.Event{
		{Kind: job.EventQueued, Job: run("", 0, 0)},
		{Kind: job.EventStarted, Job: run("", 10*time.Second, 0)},
		{Kind: job.EventStarted, Job: requeued},
		{Kind: job.EventStarted, Job: adopted},
		{Kind: job.EventStarted, Job: run("", -time.Second, 0)}, // the clock was set back
		{Kind: job.EventEnded, Job: run(job.OK, time.Second, 3*time.Second)},
		{Kind: job.EventEnded, Job: run(job.Exited(3), time.Second, 2*time.Second)},
		{Kind: job.EventEnded, Job: run(job.Exited(4), time.Second, 2*time.Second)},
		{Kind: job.EventEnded, Job: run(job.Signalled("SEGV"), time.Second, 2*time.Second)},
		{Kind: job.EventEnded, Job: &job.Job{Outcome: job.Infeasible}}, // it never ran
		{Kind: job.EventRetry, Job: requeued},
		{Kind: job.EventRequeued, Job: requeued},
		{Kind: job.EventPreempted, Job: requeued},
		{Kind: job.EventGPUsLost},
		{Kind: job.EventNotice, Job: requeued},
	})
	wantValues(t, scrape(t, s, State{}, 10), map[string]string{
		"berth_jobs_submitted_total":                   "1",
		"berth_job_wait_seconds":                       "3 610",
		"berth_job_run_seconds":                        "4 5",
		`berth_jobs_ended_total{outcome="ok"}`:         "1",
		`berth_jobs_ended_total{outcome="exit"}`:       "2",
		`berth_jobs_ended_total{outcome="signal"}`:     "1",
		`berth_jobs_ended_total{outcome="infeasible"}`: "1",
		`berth_jobs_ended_total{outcome="oom"}`:        "0",
		`berth_job_restarts_total{cause="retry"}`:      "1",
		`berth_job_restarts_total{cause="requeue"}`:    "1",
		`berth_job_restarts_total{cause="preemption"}`: "1",
	})
}

// TestTheOutcomesArePresentFromTheStart: a rate of a series that appears with its
// first event misses that event. And none but those of the page appears later.
func TestTheOutcomesArePresentFromTheStart(t *testing.T) {
	s := New("test")
	before := len(scrape(t, s, State{}, 0)["berth_jobs_ended_total"].Metric)
	for _, outcome := range []job.Outcome{job.OK, job.Timeout, job.OOM, job.Overuse, job.Infeasible, job.Launch, job.Lost, job.Resume, job.WasCancelled, job.Depends, job.Exited(1), job.Signalled("KILL")} {
		s.Events([]job.Event{{Kind: job.EventEnded, Job: &job.Job{Outcome: outcome}}})
	}
	if after := len(scrape(t, s, State{}, 0)["berth_jobs_ended_total"].Metric); before != after || before != len(outcomes) {
		t.Errorf("%d outcomes at the start, %d later, %d are meant", before, after, len(outcomes))
	}
}

func TestWhatTheEngineTellsIsCounted(t *testing.T) {
	s := New("test")
	s.Round()
	s.Decided(2 * time.Second)
	s.Committed(time.Second, nil)
	s.Committed(time.Second, errors.New("full"))
	s.Parked(2*time.Second, 3)
	s.Parked(0, 4) // berth was not there
	s.NotParked()
	s.Resumed(time.Second, time.Minute, 3)
	s.Resumed(0, time.Minute, 4)
	s.NotResumed()
	s.Served("list", 200, time.Second, false)
	s.Served("list", 404, time.Second, false)
	s.Served("events", 200, time.Hour, true)
	wantValues(t, scrape(t, s, State{}, 10), map[string]string{
		"berth_rounds_total":                                         "1",
		"berth_decision_seconds":                                     "1 2",
		"berth_store_commit_seconds":                                 "2 2",
		"berth_store_commit_failures_total":                          "1",
		"berth_parks_total":                                          "2",
		"berth_park_seconds":                                         "1 2",
		"berth_parked_bytes_total":                                   "7.340032e+06",
		"berth_park_failures_total":                                  "1",
		"berth_resumes_total":                                        "2",
		"berth_resume_seconds":                                       "1 1",
		"berth_parked_seconds":                                       "2 120",
		"berth_resumed_bytes_total":                                  "7.340032e+06",
		"berth_resume_failures_total":                                "1",
		`berth_api_requests_total{code="2xx",operation="list"}`:      "1",
		`berth_api_requests_total{code="4xx",operation="list"}`:      "1",
		`berth_api_requests_total{code="2xx",operation="events"}`:    "1",
		`berth_api_request_seconds{operation="list"}`:                "2 2",
		`berth_api_request_seconds{operation="events"}`:              "no series",
		`berth_build_info{go_version="go1.2",version="not a build"}`: "no series",
	})
}

func TestAScrapeShowsTheState(t *testing.T) {
	state := State{
		Queued: 5, Running: 2, Parked: 1, Room: 1, Held: 2, Later: 3, Dependent: 4, OldestWait: time.Minute,
		IdleJobs: 1, ParkedMiB: 2, Blocked: true, Strays: 1, Requests: 6, InFlight: 7, StoreBytes: 4096, Unreadable: true, ReadAt: start,
		Cards: []Card{
			{Index: 0, UUID: "GPU-a", Name: "H200\xff", TotalMiB: 4, UsedMiB: 3, ExternalMiB: 2, BookedMiB: 1, UtilPct: 50, PowerW: 300, PowerLimitW: 700, TemperatureC: 40, Health: "suspect", Paused: true, Stale: true, Jobs: 2},
			{Index: 1, UUID: "GPU-b", Health: "ok", UtilPct: -1, PowerW: -1, PowerLimitW: -1, TemperatureC: -1},
		},
	}
	wantValues(t, scrape(t, New("test"), state, 10), map[string]string{
		`berth_jobs{state="queued"}`:                                       "5",
		`berth_jobs{state="running"}`:                                      "2",
		`berth_jobs{state="parked"}`:                                       "1",
		`berth_waiting_jobs{reason="room"}`:                                "1",
		`berth_waiting_jobs{reason="release"}`:                             "2",
		`berth_waiting_jobs{reason="time"}`:                                "3",
		`berth_waiting_jobs{reason="jobs"}`:                                "4",
		"berth_queue_oldest_wait_seconds":                                  "60",
		"berth_idle_jobs":                                                  "1",
		"berth_parked_host_bytes":                                          "2.097152e+06",
		"berth_starts_blocked":                                             "1",
		"berth_unknown_supervisors":                                        "1",
		"berth_loop_waiting_requests":                                      "6",
		"berth_api_in_flight_requests":                                     "7",
		"berth_store_size_bytes":                                           "4096",
		"berth_gpus_unreadable":                                            "1",
		"berth_gpus_read_timestamp_seconds":                                fmt.Sprintf("%g", float64(start.Unix())),
		`berth_gpu_info{gpu="0",name="H200` + "\uFFFD" + `",uuid="GPU-a"}`: "1",
		`berth_gpu_memory_total_bytes{gpu="0"}`:                            "4.194304e+06",
		`berth_gpu_memory_used_bytes{gpu="0"}`:                             "3.145728e+06",
		`berth_gpu_memory_external_bytes{gpu="0"}`:                         "2.097152e+06",
		`berth_gpu_memory_allocated_bytes{gpu="0"}`:                        "1.048576e+06",
		`berth_gpu_utilization_ratio{gpu="0"}`:                             "0.5",
		`berth_gpu_power_watts{gpu="0"}`:                                   "300",
		`berth_gpu_power_limit_watts{gpu="0"}`:                             "700",
		`berth_gpu_temperature_celsius{gpu="0"}`:                           "40",
		`berth_gpu_health{gpu="0",health="suspect"}`:                       "1",
		`berth_gpu_health{gpu="0",health="ok"}`:                            "0",
		`berth_gpu_health{gpu="1",health="ok"}`:                            "1",
		`berth_gpu_paused{gpu="0"}`:                                        "1",
		`berth_gpu_stale{gpu="0"}`:                                         "1",
		`berth_gpu_jobs{gpu="0"}`:                                          "2",
		`berth_gpu_utilization_ratio{gpu="1"}`:                             "no series",
		`berth_gpu_power_watts{gpu="1"}`:                                   "no series",
		`berth_gpu_temperature_celsius{gpu="1"}`:                           "no series",
	})
}

// TestUsersAreBounded: however many there are, and whatever their names.
func TestUsersAreBounded(t *testing.T) {
	s := New("test")
	state := State{Users: map[string]User{"ann": {Jobs: 2, Running: 1, GPUs: 0.5}, "bob": {Jobs: 9, Running: 2, GPUs: 2}, "cy": {Jobs: 1, Running: 1, GPUs: 1}, "di": {Jobs: 1, GPUs: 0.25}}}
	wantValues(t, scrape(t, s, state, 2), map[string]string{
		`berth_user_jobs{user="ann"}`:           "2",
		`berth_user_jobs{user="bob"}`:           "9",
		`berth_user_jobs{user="cy"}`:            "no series",
		`berth_user_jobs{user="other"}`:         "2",
		`berth_user_running_jobs{user="other"}`: "1",
		`berth_user_gpus{user="other"}`:         "1.25",
	})
	// Who has a series keeps it, and one with more jobs does not take it over.
	state.Users = map[string]User{"ann": {Jobs: 1}, "eve\xff\n\"}": {Jobs: 100}}
	wantValues(t, scrape(t, s, state, 2), map[string]string{
		`berth_user_jobs{user="ann"}`:   "1",
		`berth_user_jobs{user="bob"}`:   "0",
		`berth_user_jobs{user="other"}`: "100",
	})
	families := scrape(t, s, state, 3)
	if got := value(t, families, "berth_user_jobs{user=\"eve\uFFFD\\n\\\"}\"}"); got != "100" {
		t.Errorf("a strange name: %s of %v", got, families["berth_user_jobs"])
	}
	if families := scrape(t, s, state, 0); families["berth_user_jobs"] != nil {
		t.Error("users are shown though none are to be")
	}
	state.Users = map[string]User{"a\xff": {Jobs: 1}, "a\xfe": {Jobs: 2}}
	wantValues(t, scrape(t, New("test"), state, 9), map[string]string{"berth_user_jobs{user=\"a\uFFFD\"}": "3"})
	// A user may be called as the rest are.
	state.Users = map[string]User{"other": {Jobs: 1}, "zoe": {Jobs: 1}}
	wantValues(t, scrape(t, New("test"), state, 1), map[string]string{`berth_user_jobs{user="other"}`: "2"})
}
