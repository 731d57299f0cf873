package cli

import (
	"context"
	"time"

	"berth/internal/api"
	"berth/internal/cli/session"
	"berth/internal/job"
	"berth/internal/queue"
	"berth/internal/sched"
	"berth/internal/sched/sim"
	"berth/internal/text/problem"
)

// fetchHistory gets the jobs that ran under this daemon. They are replayed on its
// GPUs unless flags say otherwise.
func (o *simulateOptions) fetchHistory(ctx context.Context, s *session.Session, set *settings, now time.Time) (*sim.Workload, error) {
	machine, changed := set.machine, set.changed
	since, err := optionalWhen("since", o.since, now)
	if err != nil {
		return nil, err
	}
	if !changed("gpus") || !changed("vram") {
		gpus, err := api.Call(ctx, s.Client, api.ListGPUs, api.None{})
		if err != nil {
			return nil, err
		}
		own := machineOf(s, gpus, changed("vram"))
		if !changed("gpus") {
			machine.GPUs = own.GPUs
		}
		if !changed("vram") {
			machine.VRAMMiB = own.VRAMMiB
		}
		if machine.GPUs == 0 || machine.VRAMMiB == 0 {
			return nil, problem.Newf(problem.Unable, "choose the machine to replay on: berth simulate --history --gpus 8 --vram 80G", "the daemon has no GPUs")
		}
	}
	jobs, _, err := fetchJobs(ctx, s, api.Query{
		Select: api.Select{States: []string{string(job.Finished), string(job.Failed), string(job.Cancelled)}},
		Over:   true, Since: since,
	}, 0)
	if err != nil {
		return nil, err
	}
	return sim.FromHistory(jobs, machine, set.choices.Park.Restart), nil
}

// asTheDaemonParks sets what no flag says of parking: which jobs, how fast, and in
// how much host memory.
func (o *simulateOptions) asTheDaemonParks(ctx context.Context, s *session.Session, set *settings) error {
	status, err := api.Call(ctx, s.Client, api.GetStatus, api.None{})
	if err != nil || status.Parking == nil || status.Parking.Cannot != "" {
		return err
	}
	p, own := set.choices.Park, status.Parking
	if !set.changed("park-cost") {
		p.Pace = &sched.Pace{Out: own.OutMiBs, Back: own.BackMiBs}
		if p.Who == sim.ThatAskFor && own.Jobs == queue.ParkAll {
			p.Who = sim.SingleGPU
		}
	}
	if !set.changed("park-memory") && own.RoomMiB != nil {
		p.MemoryMiB = max(1, own.HostMiB+*own.RoomMiB) // 0 is no limit
	}
	return nil
}

// machineOf describes the daemon's machine. A replay has equal GPUs only.
func machineOf(s *session.Session, gpus []api.GPU, sized bool) sim.Machine {
	m := sim.Machine{GPUs: min(len(gpus), sim.MaxGPUs)}
	differ := false
	for _, g := range gpus {
		differ = differ || m.VRAMMiB > 0 && g.TotalMiB != m.VRAMMiB
		m.VRAMMiB = max(m.VRAMMiB, g.TotalMiB)
	}
	if differ && !sized {
		s.Say("the GPUs differ in size; the replay takes the largest for all (--vram sets another)")
	}
	return m
}
