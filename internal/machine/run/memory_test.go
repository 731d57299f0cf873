package run

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"berth/internal/job"
)

// A machine may hold hundreds of jobs; their supervisors must not be noticed.
func TestASupervisorIsSmall(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	var tokens []string
	for i := range 10 {
		o := b.order(fmt.Sprint(i), "sleep 1000")
		for n := range 30 {
			o.Env = append(o.Env, fmt.Sprintf("FILLER%d=%s", n, strings.Repeat("x", 200)))
		}
		tokens = append(tokens, b.start(o))
		b.next(Started)
	}
	var rss, pss int
	for _, token := range tokens {
		id, _ := b.Identity(token)
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/smaps_rollup", id.KeepPID))
		if err != nil {
			t.Skipf("cannot measure: %v", err)
		}
		rss, pss = max(rss, field(string(text), "Rss:")), max(pss, field(string(text), "Pss:"))
	}
	t.Logf("the largest of %d supervisors with a job: %d KiB resident, %d KiB of its own share", len(tokens), rss, pss)
	if rss > 4096 || pss > 1536 {
		t.Errorf("%d KiB resident, %d KiB share; at most 4096 and 1536", rss, pss)
	}
	for _, token := range tokens {
		b.Stop(token, job.StopCancel, 0)
	}
	for range tokens {
		b.next(Ended)
	}
}

func field(text, name string) (kib int) {
	for line := range strings.Lines(text) {
		if rest, found := strings.CutPrefix(line, name); found {
			fmt.Sscan(rest, &kib)
		}
	}
	return kib
}
