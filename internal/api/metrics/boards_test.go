package metrics

import (
	"encoding/json"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"

	"berth/internal/tests/testkit"
)

const packaging = "../../../packaging"

// board is what a test reads of a Grafana board.
type board struct {
	Panels []struct {
		ID      int
		Type    string
		Title   string
		GridPos struct{ X, Y, W, H int }
		Targets []struct {
			RefID string `json:"refId"`
			Expr  string
		}
	}
}

type ruleFile struct {
	Groups []struct {
		Rules []struct {
			Alert, Expr string
			Labels      map[string]string
			Annotations map[string]string
		}
	}
}

func readBoard(t *testing.T) (b board) {
	t.Helper()
	testkit.Must(t, json.Unmarshal([]byte(testkit.Read(t, packaging+"/grafana/berth.json")), &b))
	return b
}

func readRules(t *testing.T) (r ruleFile) {
	t.Helper()
	testkit.Must(t, yaml.Unmarshal([]byte(testkit.Read(t, packaging+"/prometheus/berth.rules.yml")), &r))
	return r
}

var named = regexp.MustCompile(`\bberth_[a-z_]+`)

// TestBoardAndRulesNameOnlyWhatExists: and the board shows every metric.
func TestBoardAndRulesNameOnlyWhatExists(t *testing.T) {
	exists := map[string]bool{}
	set, state := full()
	for name, family := range scrape(t, set, state, 10) {
		if exists[name] = true; family.Metric[0].Histogram != nil {
			delete(exists, name)
			exists[name+"_bucket"], exists[name+"_count"] = true, true
		}
	}
	shown := map[string]bool{}
	check := func(where, expr string) {
		names := named.FindAllString(expr, -1)
		if len(names) == 0 && !strings.Contains(expr, "up{") && !strings.Contains(expr, "process_") {
			t.Errorf("%s: %q names no metric of berth", where, expr)
		}
		for _, name := range names {
			if shown[name] = true; !exists[name] {
				t.Errorf("%s: there is no metric %s", where, name)
			}
		}
	}
	for _, group := range readRules(t).Groups {
		for _, rule := range group.Rules {
			check(rule.Alert, rule.Expr)
		}
	}
	clear(shown)
	panels := map[int]string{}
	for _, panel := range readBoard(t).Panels {
		if other, twice := panels[panel.ID]; twice {
			t.Errorf("the panels %q and %q have the same id", other, panel.Title)
		}
		panels[panel.ID] = panel.Title
		if panel.Type != "row" && len(panel.Targets) == 0 {
			t.Errorf("the panel %q shows nothing", panel.Title)
		}
		if panel.GridPos.X+panel.GridPos.W > 24 {
			t.Errorf("the panel %q is cut off", panel.Title)
		}
		for _, target := range panel.Targets {
			check("the panel "+panel.Title, target.Expr)
		}
	}
	for name := range exists {
		base := strings.TrimSuffix(strings.TrimSuffix(name, "_count"), "_bucket")
		if strings.HasPrefix(name, "berth_") && !shown[name] && !shown[base+"_bucket"] {
			t.Errorf("the board does not show %s", name)
		}
	}
}

// TestEveryAlertSaysWhatToDoAndIsTested: each has a severity, words, and a case
// that makes it fire.
func TestEveryAlertSaysWhatToDoAndIsTested(t *testing.T) {
	cases := testkit.Read(t, packaging+"/prometheus/berth.rules.test.yml")
	for _, group := range readRules(t).Groups {
		for _, rule := range group.Rules {
			if rule.Annotations["summary"] == "" || rule.Annotations["description"] == "" || rule.Labels["severity"] == "" {
				t.Errorf("%s has no summary, description or severity", rule.Alert)
			}
			if fires := `[{labels: 'ALERTS{alertname="` + rule.Alert + `"`; !strings.Contains(cases, fires) {
				t.Errorf("%s fires in no test", rule.Alert)
			}
		}
	}
}

func TestRulesPleasePromtool(t *testing.T) {
	promtool, err := exec.LookPath("promtool")
	if err != nil {
		t.Skip("promtool is missing")
	}
	dir, err := filepath.Abs(packaging + "/prometheus")
	testkit.Must(t, err)
	for _, args := range [][]string{{"check", "rules", "berth.rules.yml"}, {"test", "rules", "berth.rules.test.yml"}} {
		cmd := exec.CommandContext(t.Context(), promtool, args...)
		cmd.Dir = dir
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("promtool %s: %v\n%s", strings.Join(args, " "), err, out)
		}
	}
}
