package batch

import (
	"testing"
	"time"

	"berth/internal/engine"
	"berth/internal/engine/settings"
	"berth/internal/gpu"
	"berth/internal/sched"
)

// withCards gives a session an engine that knows one card.
func withCards(s *session) *session {
	device := gpu.Unknown(0, "GPU-a", "Card")
	device.TotalMiB = 1000
	s.engine = engine.New(engine.Config{Settings: settings.Settings{Rules: sched.DefaultRules(), Devices: []gpu.Device{device}, Poll: time.Second}},
		s.store, nil, nil, nil, nil, 0)
	return s
}

func TestHowTheCardsStoodOutlivesARun(t *testing.T) {
	s, _ := newSession(t, "true\n")
	wantHealth := func(want gpu.HealthState) {
		t.Helper()
		s.engine.Outside(at0, s.takeHealth)
		if err := s.engine.Step(at0); err != nil {
			t.Fatal(err)
		}
		var v gpu.Verdict
		s.engine.Outside(at0, func(t *engine.Turn) { v = t.Cards().HealthOf("GPU-a") })
		if v.State != want {
			t.Errorf("the card is %v, want %v", v.State, want)
		}
	}
	withCards(s).engine.Outside(at0, func(t *engine.Turn) { t.Health().Set(0, gpu.HealthQuarantined, "ann", "it smells") })
	if err := s.engine.Step(at0); err != nil {
		t.Fatal(err)
	}
	withCards(s)
	wantHealth(gpu.HealthQuarantined)
	withCards(s).opt.Fresh = true
	wantHealth(gpu.HealthOK)
	withCards(s).opt.Fresh = false
	wantHealth(gpu.HealthOK)
}
