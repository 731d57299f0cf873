package daemon

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"berth/internal/api"
	"berth/internal/machine/gpu"
	"berth/internal/machine/site"
	"berth/internal/queue"
	"berth/internal/queue/config"
	"berth/internal/queue/engine"
	"berth/internal/queue/engine/settings"
	"berth/internal/text/problem"
)

// Reload reads the config again for a caller, who learns what came of it.
func (d *Daemon) Reload(ctx context.Context, c api.Caller, r api.ReloadRequest) (api.Reloaded, error) {
	if err := d.administers(c, "can reload the config"); err != nil {
		d.note(c, "config reload", nil, "", err)
		return api.Reloaded{}, err
	}
	if r.DryRun {
		cfg, err := d.judged(r.Text)
		if err != nil {
			return api.Reloaded{}, err
		}
		return d.compare(ctx, &cfg), nil
	}
	if r.Text != nil {
		return api.Reloaded{}, problem.Newf(problem.Invalid, "the daemon reads its own file", "text: expected only with dry_run")
	}
	reply, err := d.reload(ctx)
	d.note(c, "config reload", nil, cmp.Or(strings.Join(reply.Changed, ", "), "no changes"), err)
	return reply, err
}

// judged is the config of a text, as this daemon would read it from its file.
func (d *Daemon) judged(text *string) (config.Config, error) {
	if text == nil {
		return d.loadConfig()
	}
	if len(*text) > config.MaxBytes {
		return config.Config{}, problem.Newf(problem.TooMuch, "", "a config of %d bytes; at most %d are read", len(*text), config.MaxBytes)
	}
	return d.settled(config.Parse("config.toml", []byte(*text), config.Default(d.opt.Places.Shared)))
}

// reload reads the config again. An invalid one changes nothing.
func (d *Daemon) reload(ctx context.Context) (api.Reloaded, error) {
	d.reloading.Lock()
	defer d.reloading.Unlock()
	_ = site.Notify("RELOADING=1")
	defer func() { _ = site.Notify("READY=1") }()
	cfg, err := d.loadConfig()
	if err != nil {
		d.log.Error("the new config is invalid; the old one stays in force", "err", err)
		return api.Reloaded{}, err
	}
	reply := d.compare(ctx, &cfg)
	d.cfg.Store(&cfg)
	d.machine.Samples.SetKeep(cfg.Samples)
	err = d.do(ctx, func(t *engine.Turn) {
		t.Settings().Rules(cfg.Rules, d.limits(&cfg))
		t.Settings().KeepAll(cfg.Preempt == queue.PreemptNever)
		t.Settings().Idle(cfg.IdleReport, cfg.IdleCancel)
		t.Settings().Overuse(cfg.Overuse(d.opt.Places.Shared))
		t.Settings().Parking(d.machine.Parking(cfg.ParkingOn(d.machine)))
		t.Settings().MaxGrace(cfg.Grace)
	})
	select {
	case d.reloaded <- struct{}{}:
	default:
	}
	d.log.Info("config read again", "changed", reply.Changed, "after_a_restart", reply.Restart, "warnings", reply.Warnings, "err", err)
	return reply, err
}

// limits are those of users on this machine. Where several share it, what they
// declare is measured before it counts.
func (d *Daemon) limits(cfg *config.Config) settings.Limits {
	limits := cfg.Limits.On(len(d.machine.Devices), d.machine.Host())
	limits.Measured = d.opt.Places.Shared
	return limits
}

// compare says what a config changes: at once against the one in force, and
// after a restart against the one that the daemon started with.
func (d *Daemon) compare(ctx context.Context, cfg *config.Config) api.Reloaded {
	live, _ := cfg.Changed(*d.config())
	_, restart := cfg.Changed(d.begun)
	warnings := slices.Concat(missingGPUs(cfg.GPUs, d.there), cfg.Warnings(d.opt.Places.Shared), cfg.UnknownUsers(ctx, d.users))
	return api.Reloaded{Config: d.opt.Places.Config, Changed: live, Restart: restart, Warnings: warnings}
}

// missingGPUs says which of the GPUs a config names do not exist here.
func missingGPUs(wanted []int, there []gpu.Device) (warnings []string) {
	if len(there) == 0 {
		return nil // they were never read
	}
	missing := 0
	for _, index := range wanted {
		if slices.ContainsFunc(there, func(dev gpu.Device) bool { return dev.Index == index }) {
			continue
		}
		missing++
		if parts := partsOf(index, there); len(parts) > 0 {
			warnings = append(warnings, fmt.Sprintf("scheduling.gpus names GPU %d, which is partitioned; its parts are %s", index, indices(parts)))
			continue
		}
		warnings = append(warnings, fmt.Sprintf("scheduling.gpus names GPU %d, which does not exist; this machine has %s", index, indices(there)))
	}
	if missing > 0 && missing == len(wanted) {
		warnings = append(warnings, "scheduling.gpus names no GPU of this machine, so no job gets one")
	}
	return warnings
}
