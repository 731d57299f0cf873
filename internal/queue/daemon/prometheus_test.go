package daemon

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"berth/internal/job"
	"berth/internal/tests/testkit"
)

// prometheus is a running Prometheus.
type prometheus struct {
	t       *testing.T
	address string
	log     *testkit.Buffer
}

// startPrometheus scrapes an address and evaluates the rules that berth ships.
func startPrometheus(t *testing.T, target string) *prometheus {
	t.Helper()
	program, err := exec.LookPath("prometheus")
	if err != nil {
		t.Skip("prometheus is missing (on Debian: apt-get install prometheus)")
	}
	rules, err := filepath.Abs("../../../packaging/prometheus/berth.rules.yml")
	testkit.Must(t, err)
	dir := t.TempDir()
	config := filepath.Join(dir, "prometheus.yml")
	testkit.Write(t, config, fmt.Sprintf(`
global: {scrape_interval: 1s, evaluation_interval: 200ms}
rule_files: [%q]
scrape_configs:
  - job_name: berth
    static_configs: [{targets: [%q]}]
`, rules, target))
	free, err := net.Listen("tcp", "127.0.0.1:0")
	testkit.Must(t, err)
	p := &prometheus{t: t, address: free.Addr().String(), log: &testkit.Buffer{}}
	testkit.Must(t, free.Close())
	ctx, cancel := context.WithCancel(context.Background())
	cmd := exec.CommandContext(ctx, program, "--config.file="+config, "--storage.tsdb.path="+filepath.Join(dir, "data"), "--web.listen-address="+p.address)
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.Stdout, cmd.Stderr = p.log, p.log
	testkit.Must(t, cmd.Start())
	t.Cleanup(func() {
		cancel()
		_ = cmd.Wait() // it was told to stop
	})
	return p
}

// get asks Prometheus's API.
func (p *prometheus) get(path string, query url.Values, into any) error {
	r, err := http.NewRequestWithContext(p.t.Context(), http.MethodGet, "http://"+p.address+path+"?"+query.Encode(), nil)
	if err != nil {
		return err
	}
	transport := &http.Transport{DisableKeepAlives: true}
	reply, err := transport.RoundTrip(r)
	if err != nil {
		return err
	}
	defer reply.Body.Close()
	var body struct {
		Status, Error string
		Data          json.RawMessage
	}
	if err := json.NewDecoder(reply.Body).Decode(&body); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	if body.Status != "success" {
		return fmt.Errorf("%s: %s", path, body.Error)
	}
	return json.Unmarshal(body.Data, into)
}

// series is how many series an expression has now.
func (p *prometheus) series(expr string) (int, error) {
	var result struct{ Result []json.RawMessage }
	err := p.get("/api/v1/query", url.Values{"query": {expr}}, &result)
	return len(result.Result), err
}

// TestPrometheusUnderstandsTheBoardAndTheRules: a real one scrapes a daemon, every
// expression of the board has a value, and every rule is evaluated.
func TestPrometheusUnderstandsTheBoardAndTheRules(t *testing.T) {
	t.Parallel()
	l, address := scraped(t)
	p := startPrometheus(t, address)
	line, open := l.gate("open")
	defer open()
	l.untilState(l.one(sh(line, "gpus", "2", "vram", "20G")), job.Running)
	l.one(sh("true", "vram", "20G"))
	l.finished(l.one(sh("true", "gpus", "0")))
	testkit.Eventually(t, "prometheus has scraped the daemon three times", func() bool {
		n, err := p.series(`count_over_time(up{job="berth"}[1m]) >= 3 and up{job="berth"} == 1`)
		return err == nil && n == 1
	})
	var board struct {
		Panels []struct {
			Title   string
			Targets []struct{ Expr string }
		}
	}
	testkit.Must(t, json.Unmarshal([]byte(testkit.Read(t, "../../../packaging/grafana/berth.json")), &board))
	unknown := regexp.MustCompile(`power|temperature`) // to simulated cards
	words := strings.NewReplacer("$__rate_interval", "1m", "$instance", ".*")
	shown := 0
	for _, panel := range board.Panels {
		for _, target := range panel.Targets {
			shown++
			expr := words.Replace(target.Expr)
			// After a scrape that took too long, Prometheus has nothing until the next.
			testkit.Eventually(t, fmt.Sprintf("the panel %q has a series of %s", panel.Title, expr), func() bool {
				n, err := p.series(expr)
				return err == nil && (n > 0 || unknown.MatchString(expr))
			})
		}
	}
	if shown < 50 {
		t.Errorf("only %d expressions were found", shown)
	}
	p.rulesAreEvaluated()
	if t.Failed() {
		t.Log(p.log.String())
	}
}

func (p *prometheus) rulesAreEvaluated() {
	type rule struct{ Name, Health, LastError, State, Query string }
	var rules struct {
		Groups []struct{ Rules []rule }
	}
	var all []rule
	testkit.Eventually(p.t, "every rule was evaluated", func() bool {
		if err := p.get("/api/v1/rules", nil, &rules); err != nil || len(rules.Groups) != 1 {
			return false
		}
		all = rules.Groups[0].Rules
		for _, r := range all {
			if r.Health == "unknown" {
				return false
			}
		}
		return true
	})
	for _, r := range all {
		if r.Health != "ok" || r.State == "firing" {
			p.t.Errorf("%s is %s and %s: %s", r.Name, r.Health, r.State, r.LastError)
		}
	}
	if len(all) < 15 {
		p.t.Errorf("only %d rules were evaluated", len(all))
	}
}
