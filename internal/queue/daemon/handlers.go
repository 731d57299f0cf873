package daemon

import (
	"context"

	"berth/internal/api"
)

// newServer makes the server of a daemon: the daemon answers every endpoint.
func (d *Daemon) newServer(o api.ServerOptions) *api.Server {
	o.Identify, o.Version, o.Gate = d.Identify, d.opt.Version, d.gate
	o.Streams.Attach, o.Streams.Events, o.Streams.Backup = d.Attach, d.Events, d.Backup
	if o.Streams.Log == nil {
		o.Streams.Log = d.Log
	}
	s := api.NewServer(o)
	api.Handle(s, api.Submit, d.Submit)
	api.Handle(s, api.ListJobs, d.Jobs)
	api.Handle(s, api.GetJob, api.ByID(d.Job))
	api.Handle(s, api.GetWhy, api.ByID(d.Why))
	api.Handle(s, api.Act, d.Act)
	api.Handle(s, api.EditJob, d.Edit)
	api.Handle(s, api.WaitForJobs, d.Wait)
	api.Handle(s, api.ListBatches, d.Batches)
	api.Handle(s, api.ListSnapshots, api.Plain(d.Snapshots))
	api.Handle(s, api.Adopt, d.Adopt)
	api.Handle(s, api.ListStrays, api.Plain(d.Strays))
	api.Handle(s, api.AdoptStrays, d.AdoptStrays)

	api.Handle(s, api.GetJobSamples, d.JobSamples)
	api.Handle(s, api.GetGPUSamples, d.GPUSamples)

	api.Handle(s, api.ListGroups, d.Groups)
	api.Handle(s, api.SetGroup, d.SetGroup)
	api.Handle(s, api.RemoveGroup, d.RemoveGroup)

	api.Handle(s, api.GetNotify, d.Notify)
	api.Handle(s, api.SetNotify, d.SetNotify)
	api.Handle(s, api.SendNotify, d.SendNotify)

	api.Handle(s, api.ListGPUs, api.Plain(d.GPUs))
	api.Handle(s, api.PauseGPU, d.pausing(true))
	api.Handle(s, api.ResumeGPU, d.pausing(false))
	api.Handle(s, api.DrainGPU, d.DrainGPU)
	api.Handle(s, api.SetHealth, d.SetHealth)
	api.Handle(s, api.ListCardEvents, d.CardHistory)
	api.Handle(s, api.ReleaseGPUs, d.ReleaseGPUs)

	api.Handle(s, api.GetStatus, api.Plain(d.Status))
	api.Handle(s, api.GetStats, d.Stats)
	api.Handle(s, api.GetReplay, d.Replay)
	api.Handle(s, api.Reload, d.Reload)
	api.Handle(s, api.GetSnapshot, api.Plain(d.Snapshot))

	api.Handle(s, api.NewToken, d.NewToken)
	api.Handle(s, api.ListTokens, api.Plain(d.Tokens))
	api.Handle(s, api.RevokeTokens, d.RevokeTokens)
	api.Handle(s, api.RevokeToken, d.RevokeToken)
	api.Handle(s, api.NewLogin, d.NewLogin)
	api.Handle(s, api.OpenSession, d.OpenSession)
	api.Handle(s, api.EndSession, d.EndSession)
	return s
}

// pausing is PauseGPU as a handler.
func (d *Daemon) pausing(pause bool) func(context.Context, api.Caller, api.GPUIndex) (api.GPU, error) {
	return func(ctx context.Context, c api.Caller, q api.GPUIndex) (api.GPU, error) {
		return d.PauseGPU(ctx, c, q.Index, pause)
	}
}
