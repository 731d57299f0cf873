package run

import (
	"testing"
	"time"

	"berth/internal/job"
	"berth/internal/tests/testkit"
)

// TestCPUTimesOfJobs: the time of a job that computes grows, in its own processes, in
// those that it starts and in those that have ended. That of one that sleeps hardly
// does.
func TestCPUTimesOfJobs(t *testing.T) {
	for _, host := range cgroupHosts(t) {
		t.Run(host.name, func(t *testing.T) {
			b := newBench(t, host.option)
			const work = "while [ $i -lt 20000 ]; do i=$((i+1)); done"
			lines := map[string]string{
				"itself": "i=0; while :; do " + work + "; i=0; done",
				"below":  "setsid sh -c 'i=0; while :; do " + work + "; i=0; done' & wait",
				"ended":  "while :; do sh -c 'i=0; " + work + "'; done",
				"sleeps": "sleep 1000",
			}
			var jobs []Identity
			tokens := map[string]string{}
			for id, line := range lines {
				tokens[id] = b.start(b.order(id, line))
			}
			for range lines {
				b.next(Started)
			}
			for id, token := range tokens {
				identity, ok := b.Identity(token)
				if !ok || (identity.Cgroup != "") != host.cgroup {
					t.Fatalf("job %s: %+v, %v", id, identity, ok)
				}
				jobs = append(jobs, identity)
			}
			testkit.Eventually(t, "jobs that compute have used 300 ms, and the other less", func() bool {
				used := CPUTimes(jobs)
				for id, token := range tokens {
					if id != "sleeps" && used[token] < 300*time.Millisecond {
						return false
					}
				}
				slept, known := used[tokens["sleeps"]]
				return known && slept < 200*time.Millisecond
			})
			gone := Identity{Token: "gone", KeepPID: 1 << 22, KeepStart: 5}
			reused := Identity{Token: "reused", KeepPID: jobs[0].KeepPID, KeepStart: 1}
			if got := CPUTimes([]Identity{gone, reused, {Token: "unknown"}}); len(got) != 0 {
				t.Errorf("of what is not there: %v", got)
			}
			for _, token := range tokens {
				testkit.Must(t, b.Stop(token, job.StopCancel, 0))
			}
			for range lines {
				b.next(Ended)
			}
		})
	}
}
