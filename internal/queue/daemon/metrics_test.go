package daemon

import (
	"io"
	"net/http"
	"regexp"
	"strings"
	"testing"
	"time"

	"berth/internal/api"
	"berth/internal/job"
	"berth/internal/queue/config"
	"berth/internal/tests/testkit"
)

// scraped is a daemon with an address for metrics.
func scraped(t *testing.T, change ...func(*Options)) (l *lab, address string) {
	t.Helper()
	l = newLab(t, append(change, with(func(c *config.Config) { c.MetricsListen = "127.0.0.1:0" }))...)
	s, err := api.Call(l.ctx, l.Client, api.GetStatus, api.None{})
	testkit.Must(t, err)
	if s.Metrics == "" {
		t.Fatalf("it does not listen for metrics: %v", s.Warnings)
	}
	return l, s.Metrics
}

func scrape(t *testing.T, address string) string {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+address+"/metrics", nil)
	testkit.Must(t, err)
	transport := &http.Transport{}
	defer transport.CloseIdleConnections()
	reply, err := transport.RoundTrip(r)
	testkit.Must(t, err)
	defer reply.Body.Close()
	text, err := io.ReadAll(reply.Body)
	testkit.Must(t, err)
	if reply.StatusCode != http.StatusOK {
		t.Fatalf("%d %s", reply.StatusCode, text)
	}
	return string(text)
}

// lacks lists the lines that a scrape does not have.
func lacks(text string, lines ...string) (missing []string) {
	for _, line := range lines {
		if !strings.Contains("\n"+text, "\n"+line+"\n") {
			missing = append(missing, line)
		}
	}
	return missing
}

func TestMetricsShowTheQueueAndTheCards(t *testing.T) {
	t.Parallel()
	l, address := scraped(t)
	user := l.d.people.Name(l.d.people.UID)
	line, open := l.gate("open")
	first := l.one(sh(line, "gpus", "2", "vram", "20G", "name", "sesame"))
	l.untilState(first, job.Running)
	l.submit(sh("echo hidden", "vram", "20G", "name", "sesame"), sh("true", "after", first), sh("true", "begin", "now+1h"), sh("exit 3", "gpus", "0"))
	held := l.one(sh("true", "hold", "true"))
	_, err := api.Call(l.ctx, l.Client, api.PauseGPU, api.GPUIndex{Index: 1})
	testkit.Must(t, err)
	// The one that needs no card has ended.
	var missing []string
	testkit.Eventually(t, "the scrape has every line", func() bool {
		missing = lacks(scrape(t, address),
			`berth_jobs{state="queued"} 4`, `berth_jobs{state="running"} 1`, `berth_jobs{state="parked"} 0`,
			`berth_waiting_jobs{reason="room"} 1`, `berth_waiting_jobs{reason="release"} 1`, `berth_waiting_jobs{reason="time"} 1`, `berth_waiting_jobs{reason="jobs"} 1`,
			`berth_jobs_submitted_total 6`, `berth_jobs_ended_total{outcome="exit"} 1`, `berth_job_wait_seconds_count 2`, `berth_job_run_seconds_count 1`,
			`berth_user_jobs{user="`+user+`"} 5`, `berth_user_running_jobs{user="`+user+`"} 1`, `berth_user_gpus{user="`+user+`"} 2`,
			`berth_gpu_memory_allocated_bytes{gpu="0"} 2.147483648e+10`, `berth_gpu_memory_total_bytes{gpu="1"} 2.5769803776e+10`,
			`berth_gpu_jobs{gpu="0"} 1`, `berth_gpu_jobs{gpu="1"} 1`, `berth_gpu_paused{gpu="0"} 0`, `berth_gpu_paused{gpu="1"} 1`,
			`berth_gpu_health{gpu="0",health="ok"} 1`, `berth_gpu_stale{gpu="0"} 0`, `berth_gpus_unreadable 0`, `berth_starts_blocked 0`,
			`berth_api_requests_total{code="2xx",operation="submit"} 3`,
		)
		return len(missing) == 0
	})
	if len(missing) > 0 {
		t.Errorf("the scrape lacks %q", missing)
	}
	text := scrape(t, address)
	for _, never := range []string{"sesame", "hidden", l.dir()} {
		if strings.Contains(text, never) {
			t.Errorf("the scrape has %q", never)
		}
	}
	if waits := regexp.MustCompile(`(?m)^berth_queue_oldest_wait_seconds 0$`); waits.MatchString(text) {
		t.Error("no job waits for room")
	}
	l.act(api.ActRelease, held)
	open()
}

// TestAScrapeWakesNoDriver: at rest the daemon reads its cards every five seconds,
// however often it is scraped.
func TestAScrapeWakesNoDriver(t *testing.T) {
	t.Parallel()
	_, address := scraped(t)
	read := regexp.MustCompile(`(?m)^berth_gpus_read_timestamp_seconds .*$`)
	testkit.Eventually(t, "the cards were read", func() bool { return read.MatchString(scrape(t, address)) })
	times := map[string]bool{}
	begun := time.Now()
	for range 50 {
		times[read.FindString(scrape(t, address))] = true
	}
	if most := 2 + int(time.Since(begun)/(5*time.Second)); len(times) > most {
		t.Errorf("the cards were read %d times for 50 scrapes", len(times))
	}
}

// TestAPortForMetricsThatIsTakenIsTriedAgain: the daemon works without it, and
// says so.
func TestAPortForMetricsThatIsTakenIsTriedAgain(t *testing.T) {
	t.Parallel()
	_, taken := scraped(t)
	l := newLab(t, with(func(c *config.Config) { c.MetricsListen = taken }))
	s, err := api.Call(l.ctx, l.Client, api.GetStatus, api.None{})
	testkit.Must(t, err)
	if len(s.Warnings) != 1 || !strings.Contains(s.Warnings[0], "not listening for metrics") || s.Metrics != "" {
		t.Errorf("warnings %q, address %q", s.Warnings, s.Metrics)
	}
}
