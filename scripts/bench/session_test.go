package main

import (
	"context"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"berth/internal/tests/testkit"
)

// A measurement that fails or hangs is reported, and neither it nor what it started
// or wrote remains. What it told before counts, and the next one is measured.
func TestMeasurementsThatFailOrHangAreReported(t *testing.T) {
	const row = `echo '{"what":"a row","value":2,"Guarded":true,"OK":true}' >>` + told + `; `
	pids := t.TempDir() + "/pids"
	scripts := map[string]string{
		"fails":  row + "mkdir -m 500 closed; exit 3",
		"hangs":  "echo $$ >>" + pids + "; (trap '' TERM; setsid sleep 1000 & echo $! >>" + pids + "; wait) & wait",
		"sleeps": "sleep 1000",
		"works":  row,
	}
	s := session{dir: t.TempDir(), end: time.Now().Add(time.Hour), child: func(ctx context.Context, name string) *exec.Cmd {
		return exec.CommandContext(ctx, "sh", "-c", scripts[name])
	}}
	s.measured(t.Context(), measurement{name: "fails", most: time.Minute})
	if s.lost != 1 || len(s.rows) != 1 {
		t.Errorf("after a failure: %d lost, rows %v", s.lost, s.rows)
	}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan bool)
	go func() { s.measured(ctx, measurement{name: "hangs", most: time.Hour}); close(ended) }()
	testkit.Eventually(t, "both processes", func() bool {
		text, _ := os.ReadFile(pids)
		return strings.Count(string(text), "\n") == 2
	})
	stop()
	<-ended
	s.measured(t.Context(), measurement{name: "sleeps", most: 20 * time.Millisecond})
	if s.lost != 3 {
		t.Errorf("after two that hang: %d lost", s.lost)
	}
	for _, pid := range strings.Fields(testkit.Read(t, pids)) {
		if _, err := os.Stat("/proc/" + pid); err == nil {
			t.Errorf("process %s is still there", pid)
		}
	}
	s.measured(t.Context(), measurement{name: "works", most: time.Minute})
	if s.lost != 3 || len(s.rows) != 2 {
		t.Errorf("after one that works: %d lost, rows %v", s.lost, s.rows)
	}
	if left, err := os.ReadDir(s.dir); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v (%v)", left, err)
	}
	s.end = time.Now()
	s.measured(t.Context(), measurement{name: "works", most: time.Minute})
	if s.lost != 4 || len(s.rows) != 2 {
		t.Errorf("after the time is over: %d lost, rows %v", s.lost, s.rows)
	}
}

// The better of several tries counts, and a row that stays worse is missed.
func TestWorseRowsAreMeasuredAgain(t *testing.T) {
	count := t.TempDir() + "/count"
	s := session{dir: t.TempDir(), end: time.Now().Add(time.Hour), child: func(ctx context.Context, _ string) *exec.Cmd {
		return exec.CommandContext(ctx, "sh", "-c", `echo >>`+count+`; n=$(wc -l <`+count+`)
			echo '{"what":"better","value":'$((4-n))',"Guarded":true}' >>`+told+`
			echo '{"what":"slow","value":'$n',"Guarded":true}' >>`+told)
	}, was: map[string]row{"better": {Value: 1}, "slow": {Value: 0.5}}}
	s.measured(t.Context(), measurement{name: "any", most: time.Hour})
	if len(s.rows) != 2 || s.rows[0].Value != 1 || s.rows[1].Value != 1 || s.missed != 1 {
		t.Errorf("rows %v, %d missed", s.rows, s.missed)
	}
}
