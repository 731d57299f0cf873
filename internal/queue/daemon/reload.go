package daemon

import (
	"cmp"
	"context"
	"slices"
	"strings"

	"berth/internal/api"
	"berth/internal/machine/site"
	"berth/internal/queue"
	"berth/internal/queue/config"
	"berth/internal/queue/engine"
	"berth/internal/text/problem"
)

// Reload reads the config again for a caller, who learns what came of it.
func (h *admin) Reload(ctx context.Context, c api.Caller, r api.ReloadRequest) (api.Reloaded, error) {
	if err := h.svc.administers(c, "can reload the config"); err != nil {
		h.svc.Note(c, "config reload", nil, "", err)
		return api.Reloaded{}, err
	}
	if r.DryRun {
		cfg, err := h.judged(r.Text)
		if err != nil {
			return api.Reloaded{}, err
		}
		return h.compare(ctx, &cfg), nil
	}
	if r.Text != nil {
		return api.Reloaded{}, problem.Newf(problem.Invalid, "the daemon reads its own file", "text: expected only with dry_run")
	}
	reply, err := h.reload(ctx)
	h.svc.Note(c, "config reload", nil, cmp.Or(strings.Join(reply.Changed, ", "), "no changes"), err)
	return reply, err
}

// judged is the config of a text, as this daemon would read it from its file.
func (h *admin) judged(text *string) (config.Config, error) {
	if text == nil {
		return h.opt.loadConfig()
	}
	if len(*text) > config.MaxBytes {
		return config.Config{}, problem.Newf(problem.TooMuch, "", "a config of %d bytes; at most %d are read", len(*text), config.MaxBytes)
	}
	return h.opt.settled(config.Parse("config.toml", []byte(*text), config.Default(h.svc.places.Shared)))
}

// reload reads the config again. An invalid one changes nothing.
func (h *admin) reload(ctx context.Context) (api.Reloaded, error) {
	h.reloading.Lock()
	defer h.reloading.Unlock()
	_ = site.Notify("RELOADING=1")
	defer func() { _ = site.Notify("READY=1") }()
	cfg, err := h.opt.loadConfig()
	if err != nil {
		h.svc.queue.Log.Error("the new config is invalid; the old one stays in force", "err", err)
		return api.Reloaded{}, err
	}
	reply := h.compare(ctx, &cfg)
	h.svc.cfg.Store(&cfg)
	h.svc.queue.Samples.SetKeep(cfg.Samples)
	err = h.svc.Do(ctx, func(t *engine.Turn) {
		limits := h.svc.limits(&cfg)
		t.Settings().Rules(cfg.RulesWith(limits), limits)
		t.Settings().KeepAll(cfg.Preempt == queue.PreemptNever)
		t.Settings().Idle(cfg.IdleReport, cfg.IdleCancel)
		t.Settings().Overuse(cfg.Overuse(h.svc.places.Shared))
		t.Settings().Parking(h.svc.queue.Parking(cfg.ParkingOn(h.svc.queue)))
		t.Settings().MaxGrace(cfg.Grace)
	})
	select {
	case h.tidier.reloaded <- struct{}{}:
	default:
	}
	h.svc.queue.Log.Info("config read again", "changed", reply.Changed, "after_a_restart", reply.Restart, "warnings", reply.Warnings, "err", err)
	return reply, err
}

// compare says what a config changes: at once against the one in force, and
// after a restart against the one that the daemon started with.
func (h *admin) compare(ctx context.Context, cfg *config.Config) api.Reloaded {
	live, _ := cfg.Changed(*h.svc.Config())
	_, restart := cfg.Changed(h.begun)
	warnings := slices.Concat(missingGPUs(cfg.GPUs, h.record.there), cfg.Warnings(h.svc.places.Shared), cfg.UnknownUsers(ctx, h.svc.people.Users))
	return api.Reloaded{Config: h.svc.places.Config, Changed: live, Restart: restart, Warnings: warnings}
}
