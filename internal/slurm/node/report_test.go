package node

import (
	"testing"
	"time"

	"berth/internal/slurm/handover"
)

func TestHowLongSlurmWaits(t *testing.T) {
	for config, want := range map[string]time.Duration{
		"": 30 * second, "KillWait=5\n": 5 * second, "ClusterName=x\n killwait = 60 # long\n": 60 * second, "#KillWait=5\n": 30 * second, "KillWait=none\n": 30 * second,
	} {
		if got := killWait(config); got != want {
			t.Errorf("%q: %s", config, got)
		}
	}
}

func TestWhenAReportDiffers(t *testing.T) {
	at, util := time.Unix(1e9, 0), 50.0
	near, far := 50.5, 60.0
	now := handover.Now{At: at, NowMiB: map[int]int64{1: 5}, AvgUtil: &util}
	tests := []struct {
		what   string
		change func(*handover.Now)
		want   bool
	}{
		{"nothing", func(*handover.Now) {}, false},
		{"memory", func(n *handover.Now) { n.NowMiB = map[int]int64{1: 6} }, true},
		{"its peak", func(n *handover.Now) { n.PeakMiB = map[int]int64{1: 6} }, true},
		{"a little utilisation", func(n *handover.Now) { n.AvgUtil = &near }, false},
		{"much utilisation", func(n *handover.Now) { n.AvgUtil = &far }, true},
		{"utilisation is not known", func(n *handover.Now) { n.AvgUtil = nil }, true},
		{"only a minute passed", func(n *handover.Now) { n.At = at.Add(time.Minute) }, true},
	}
	for _, test := range tests {
		later := now
		later.At = at.Add(5 * second)
		test.change(&later)
		if differs(now, later) != test.want {
			t.Errorf("%s changed: differs is %v", test.what, !test.want)
		}
	}
}
