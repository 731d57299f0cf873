package cli

import (
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"berth/internal/cli/session"
	"berth/internal/job"
	"berth/internal/machine/site"
	"berth/internal/queue/config"
	"berth/internal/slurm"
	"berth/internal/text"
)

// place settles where the jobs of a run go. The config says what the cluster has,
// and where jobs go otherwise; a config that cannot be read matters only to jobs
// that go to Slurm.
func (f *runFlags) place(cmd *cobra.Command) error {
	switch f.opt.To = job.Place(f.to); f.opt.To {
	case "", job.ToHere, job.ToSlurm:
	default:
		return badFlag(cmd, "to", text.Mismatch(f.to, text.Or([]string{string(job.ToHere), string(job.ToSlurm)})))
	}
	if _, err := slurm.Words(f.opt.SlurmOptions); err != nil {
		return err
	}
	cfg, err := clusterConfig()
	if err != nil {
		f.opt.Slurm.Unread = fmt.Errorf("the config cannot be read: %w", err)
		return nil
	}
	f.opt.Slurm = cfg.Slurm
	if f.opt.To == "" && !f.opt.AsGpusched {
		f.opt.To = cfg.Engine
	}
	return nil
}

// clusterConfig is the user's config, or else the machine's.
func clusterConfig() (config.Config, error) {
	places, err := site.PrivatePlaces(os.Getenv)
	if err != nil || !session.Exists(places.Config) {
		places = site.SharedPlaces()
	}
	return config.Load(places.Config, places.Shared, false)
}
