package engine

import (
	"slices"
	"testing"
	"time"

	"berth/internal/job"
	"berth/internal/machine/gpu"
	"berth/internal/queue/engine/launch"
)

func TestACardThatWasRememberedUnderAnotherNumberIsThereOnce(t *testing.T) {
	r := newRig(t, 2, func(c *Config) {
		c.Devices = []gpu.Device{{Index: 7, UUID: "GPU-1", Name: "Fake", TotalMiB: 24576}}
	})
	cards := r.at().cards.Book.List()
	if len(cards) != 2 || cards[1].Index != 1 || cards[1].Stale {
		t.Fatalf("cards %+v", cards)
	}
	if d, ok := r.at().cards.Book.Device("GPU-1"); !ok || d.Index != 1 {
		t.Errorf("it is %+v", d)
	}
}

func TestACardThatIsMissingSaysWhenItWasLastRead(t *testing.T) {
	r := newRig(t, 2, func(c *Config) {
		c.Devices = []gpu.Device{{Index: 2, UUID: "GPU-2", Name: "Fake", TotalMiB: 24576}}
	})
	begun := r.now
	r.devices = r.devices[:1]
	r.pass(time.Second)
	if at := r.at().cards.Book.SeenAt(0); !at.Equal(r.now) {
		t.Errorf("a card that is there was read at %v", at)
	}
	if at := r.at().cards.Book.SeenAt(1); !at.Equal(begun) {
		t.Errorf("a card that is missing was read at %v", at)
	}
	if at := r.at().cards.Book.SeenAt(2); !at.IsZero() {
		t.Errorf("a card that was never there was read at %v", at)
	}
}

// TestAPartThatIsNoMoreKeepsNobodyBusy: nothing is read of it that could end its
// trouble, but what a person said of it stands.
func TestAPartThatIsNoMoreKeepsNobodyBusy(t *testing.T) {
	r := newRig(t, 1)
	whole, parts := r.devices, make([]gpu.Device, 2)
	for i := range parts {
		parts[i] = whole[0]
		parts[i].Index, parts[i].UUID, parts[i].Part = gpu.PartIndex(0, i), []string{"MIG-0", "MIG-1"}[i], &gpu.Part{Of: 0}
	}
	r.devices = slices.Clone(parts)
	r.pass(time.Second)
	r.at().health.Set(parts[1].Index, gpu.HealthQuarantined, "root", "not for today")
	for i := range parts {
		r.xid(i, 48)
	}
	if r.e.turn.cards.Book.Health.Settled() {
		t.Fatal("an Xid may pass")
	}
	r.devices = whole
	r.pass(time.Second)
	if !r.e.turn.cards.Book.Health.Settled() {
		t.Error("what is no more is waited for")
	}
	r.devices = parts
	r.pass(time.Second)
	if v := r.at().cards.Book.HealthOf("MIG-0"); v.State != gpu.HealthOK {
		t.Errorf("a part that is made anew is %+v", v)
	}
	if v := r.at().cards.Book.HealthOf("MIG-1"); v.State != gpu.HealthQuarantined || v.By != "root" {
		t.Errorf("a person's word did not stand: %+v", v)
	}
	r.again()
	if v := r.at().cards.Book.HealthOf("MIG-0"); v.State != gpu.HealthOK {
		t.Errorf("after a restart it is %+v", v)
	}
}

func TestAJobIsToldUUIDsWhileACardIsGoneThatWasThere(t *testing.T) {
	r := newRig(t, 2, func(c *Config) {
		c.Devices = []gpu.Device{{Index: 7, UUID: "GPU-dead", Name: "Fake", TotalMiB: 24576}}
	})
	l := &launch.Launcher{}
	j := &job.Job{ID: "1", Spec: spec(), Attempt: job.Attempt{Grant: job.Grant{GPUs: []int{0}, UUIDs: []string{"GPU-0"}}}}
	visible := func(want string) {
		t.Helper()
		o, err := l.Order(j, r.e.turn.cards.Book.Given)
		if env := o.Env; err != nil || !slices.Contains(env, "CUDA_VISIBLE_DEVICES="+want) {
			t.Errorf("it is told %v, want %s", env, want)
		}
	}
	visible("0")
	r.lose(1)
	visible("GPU-0")
	if d, _ := r.at().cards.Book.Device("GPU-0"); d.DriverIndex != 0 {
		t.Errorf("people are told the driver calls it %d", d.DriverIndex)
	}
	r.pass(time.Second)
	visible("0")
}
