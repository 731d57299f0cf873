package daemon

import (
	"context"

	"berth/internal/api"
)

// newServer makes the server of a daemon: the daemon answers every endpoint.
func (d *Daemon) newServer(o api.ServerOptions) *api.Server {
	o.Identify, o.Version, o.Gate = d.door.Identify, d.svc.version, d.svc.gate
	o.Streams.Attach, o.Streams.Events, o.Streams.Backup = d.terminals.Attach, d.events.Events, d.admin.Backup
	if o.Streams.Log == nil {
		o.Streams.Log = d.logs.Log
	}
	s := api.NewServer(o)
	api.Handle(s, api.Submit, d.submits.Submit)
	api.Handle(s, api.ListJobs, d.jobs.Jobs)
	api.Handle(s, api.GetJob, api.ByID(d.jobs.Job))
	api.Handle(s, api.GetWhy, api.ByID(d.jobs.Why))
	api.Handle(s, api.Act, d.actions.Act)
	api.Handle(s, api.EditJob, d.actions.Edit)
	api.Handle(s, api.WaitForJobs, d.waits.Wait)
	api.Handle(s, api.ListBatches, d.jobs.Batches)
	api.Handle(s, api.ListSweeps, d.sweeps.Sweeps)
	api.Handle(s, api.ListTrials, d.sweeps.Trials)
	api.Handle(s, api.AddTrials, d.sweeps.AddTrials)
	api.Handle(s, api.ListSnapshots, api.Plain(d.jobs.Snapshots))
	api.Handle(s, api.Adopt, d.adopts.Adopt)
	api.Handle(s, api.ListStrays, api.Plain(d.adopts.Strays))
	api.Handle(s, api.AdoptStrays, d.adopts.AdoptStrays)

	api.Handle(s, api.GetJobSamples, d.samples.JobSamples)
	api.Handle(s, api.GetGPUSamples, d.samples.GPUSamples)

	api.Handle(s, api.ListGroups, d.groups.Groups)
	api.Handle(s, api.SetGroup, d.groups.SetGroup)
	api.Handle(s, api.RemoveGroup, d.groups.RemoveGroup)

	api.Handle(s, api.GetNotify, d.messages.Notify)
	api.Handle(s, api.SetNotify, d.messages.SetNotify)
	api.Handle(s, api.SendNotify, d.messages.SendNotify)

	api.Handle(s, api.ListGPUs, api.Plain(d.cards.GPUs))
	api.Handle(s, api.PauseGPU, d.cards.pausing(true))
	api.Handle(s, api.ResumeGPU, d.cards.pausing(false))
	api.Handle(s, api.DrainGPU, d.cards.DrainGPU)
	api.Handle(s, api.SetHealth, d.cards.SetHealth)
	api.Handle(s, api.ListCardEvents, d.cards.CardHistory)
	api.Handle(s, api.ReleaseGPUs, d.cards.ReleaseGPUs)

	api.Handle(s, api.GetStatus, api.Plain(d.admin.Status))
	api.Handle(s, api.GetStats, d.history.Stats)
	api.Handle(s, api.GetReplay, d.history.Replay)
	api.Handle(s, api.Reload, d.admin.Reload)
	api.Handle(s, api.GetSnapshot, api.Plain(d.admin.Snapshot))

	api.Handle(s, api.NewToken, d.door.NewToken)
	api.Handle(s, api.ListTokens, api.Plain(d.door.Tokens))
	api.Handle(s, api.RevokeTokens, d.door.RevokeTokens)
	api.Handle(s, api.RevokeToken, d.door.RevokeToken)
	api.Handle(s, api.NewLogin, d.door.NewLogin)
	api.Handle(s, api.OpenSession, d.door.OpenSession)
	api.Handle(s, api.EndSession, d.door.EndSession)
	return s
}

// pausing is PauseGPU as a handler.
func (h *cards) pausing(pause bool) func(context.Context, api.Caller, api.GPUIndex) (api.GPU, error) {
	return func(ctx context.Context, c api.Caller, q api.GPUIndex) (api.GPU, error) {
		return h.PauseGPU(ctx, c, q.Index, pause)
	}
}
