package report

import (
	"fmt"
	"strings"
	"time"

	"berth/internal/sched/sim"
	"berth/internal/text"
)

// binds is the share of time, or of GPU time, from which on a limit is worth naming.
const binds = 0.01

// Bounds says in sentences which limits of a real machine the replays met.
func (r *Report) Bounds() (sentences []string) {
	for i := range r.Replays {
		m := &r.Replays[i].Metrics
		var met []string
		meet := func(share float64, format string) {
			if share >= binds {
				met = append(met, fmt.Sprintf(format, 100*share))
			}
		}
		meet(m.GPUFixed, "jobs that cannot give way had %.0f %% of the GPU time while others waited")
		if r.Park != nil && r.Park.MemoryMiB > 0 {
			meet(m.HostFull, "the "+gib(r.Park.MemoryMiB)+" of host memory for parked jobs were full for %.0f %% of the time (--park-memory)")
		}
		meet(m.OwnGPUsBusy, "parked jobs waited for their own GPUs beside free ones for %.0f %% of the time")
		if len(met) > 0 {
			sentences = append(sentences, fmt.Sprintf("%s is bound: %s", m.Policy, strings.Join(met, "; ")))
		}
	}
	return sentences
}

func gib(mib int64) string { return strings.TrimSuffix(text.GiB(mib), ".0") + " GiB" }

// parkText says which jobs were parked in the replays; empty: none.
func (r *Report) parkText() string {
	if r.Park == nil {
		return ""
	}
	most := 0.0
	for i := range r.Replays {
		most = max(most, r.Replays[i].Preemptions)
	}
	if most == 0 {
		return ""
	}
	who := map[sim.Parkable]string{
		sim.EveryJob: "Every job can be parked", sim.SingleGPU: "Jobs with one GPU can be parked", sim.ThatAskFor: "Jobs that ask for it can be parked",
	}[r.Park.Who]
	if r.Park.MemoryMiB > 0 {
		who += fmt.Sprintf(", in %s of host memory", gib(r.Park.MemoryMiB))
	}
	switch saves := r.Park.GangsSave; {
	case saves == sim.WhenTold:
		who += ". Jobs with several GPUs save their own work when they are told to"
	case saves > 0:
		who += ". Jobs with several GPUs save their own work every " + text.Span(time.Duration(saves)*time.Millisecond)
	}
	return who + "."
}
