package engine

import (
	"testing"
	"time"

	"berth/internal/gpu"
)

func TestACardThatWasRememberedUnderAnotherNumberIsThereOnce(t *testing.T) {
	r := newRig(t, 2, func(c *Config) {
		c.Devices = []gpu.Device{{Index: 7, UUID: "GPU-1", Name: "Fake", TotalMiB: 24576}}
	})
	cards := r.e.Cards()
	if len(cards) != 2 || cards[1].Index != 1 || cards[1].Stale {
		t.Fatalf("cards %+v", cards)
	}
	if d, ok := r.e.Device("GPU-1"); !ok || d.Index != 1 {
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
	if at := r.e.SeenAt(0); !at.Equal(r.now) {
		t.Errorf("a card that is there was read at %v", at)
	}
	if at := r.e.SeenAt(1); !at.Equal(begun) {
		t.Errorf("a card that is missing was read at %v", at)
	}
	if at := r.e.SeenAt(2); !at.IsZero() {
		t.Errorf("a card that was never there was read at %v", at)
	}
}
