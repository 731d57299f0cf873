package gpu

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

var healthStart = time.Date(2026, 3, 14, 15, 9, 26, 0, time.UTC)

// patient is a machine of two cards whose health is watched. The second is
// always well, and must stay so whatever happens to the first.
type patient struct {
	t       *testing.T
	h       *Health
	now     time.Time
	device  Device
	fault   string // why the card is not in the samples; "absent": without a word
	failing bool   // samples fail
	xids    []Xid
	told    []HealthChange
}

func newPatient(t *testing.T) *patient {
	p := &patient{t: t, h: NewHealth(), now: healthStart, device: Unknown(3, "GPU-3", "Fake")}
	p.device.BusID = "00000000:3B:00.0"
	p.device.Condition.UncorrectedECC = 0
	p.look(0)
	return p
}

func (p *patient) healthy() Device {
	d := Unknown(1, "GPU-1", "Fake")
	d.BusID, d.Condition.UncorrectedECC = "00000000:1B:00.0", 0
	return d
}

// look lets seconds pass and takes a sample.
func (p *patient) look(seconds float64) {
	p.now = p.now.Add(time.Duration(seconds * float64(time.Second)))
	s := Sample{At: p.now, Xids: p.xids, Devices: []Device{p.healthy()}}
	p.xids = nil
	if p.failing {
		p.told = append(p.told, p.h.Failed(p.now, Sample{Xids: s.Xids})...)
		return
	}
	switch p.fault {
	case "":
		s.Devices = append(s.Devices, p.device)
	case "absent":
	default:
		s.Faults = []Fault{{Index: 3, UUID: "GPU-3", Kind: p.fault}}
	}
	p.told = append(p.told, p.h.Observe(p.now, s, []Device{p.healthy(), p.device})...)
}

// watch looks once a second.
func (p *patient) watch(seconds int) {
	for range seconds {
		p.look(1)
	}
}

func (p *patient) xid(code int) {
	p.xids = append(p.xids, Xid{At: p.now, UUID: "GPU-3", Code: code})
}

func (p *patient) is(want string) {
	p.t.Helper()
	v := p.h.Of("GPU-3")
	if got := strings.TrimSpace(v.State.String() + " " + v.Cause); got != want {
		p.t.Fatalf("after %s it is %q (%s), want %q", p.now.Sub(healthStart), got, v.Reason, want)
	}
	if other := p.h.Of("GPU-1"); other.State != HealthOK {
		p.t.Fatalf("the other card is %s: %s", other.State, other.Reason)
	}
	if v.State != HealthOK && (v.Reason == "" || v.Since.IsZero()) {
		p.t.Fatalf("no reason or no since: %+v", v)
	}
}

func (p *patient) set(state HealthState, by string) {
	p.told = append(p.told, p.h.Set(p.now, p.device, state, by, "smells of smoke")...)
}

func (p *patient) restart(bootID string) {
	p.t.Helper()
	data, err := p.h.Save("boot 1")
	if err != nil {
		p.t.Fatal(err)
	}
	p.h = NewHealth()
	if err := p.h.Restore(data, bootID); err != nil {
		p.t.Fatal(err)
	}
}

func TestHealth(t *testing.T) {
	tests := map[string]func(p *patient){
		"a card without problems is ok": func(p *patient) { p.watch(30); p.is("ok") },
		"a lost card is quarantined at once and ok again after three good samples over five seconds": func(p *patient) {
			p.fault = FaultLost
			p.look(1)
			p.is("quarantined lost")
			p.fault = ""
			p.look(1)
			p.look(1)
			p.look(1)
			p.look(2.9)
			p.is("quarantined lost")
			p.look(0.2)
			p.is("ok")
		},
		"two good samples are not enough however long they take": func(p *patient) {
			p.fault = FaultLost
			p.look(1)
			p.fault = ""
			p.look(10)
			p.look(10)
			p.is("quarantined lost")
			p.look(1)
			p.is("ok")
		},
		"a card that hangs is suspect at once and quarantined within fifteen seconds": func(p *patient) {
			p.fault = FaultHangs
			p.look(1)
			p.is("suspect hangs")
			p.watch(8)
			p.is("suspect hangs")
			p.watch(1)
			p.is("quarantined hangs")
			p.fault = ""
			p.watch(5)
			p.is("quarantined hangs")
			p.watch(1)
			p.is("ok")
		},
		"an unreadable card is treated like one that hangs": func(p *patient) {
			p.fault = FaultUnreadable
			p.look(1)
			p.is("suspect unreadable")
			p.watch(10)
			p.is("quarantined unreadable")
		},
		"a card that is missing without a word is suspect, then quarantined": func(p *patient) {
			p.fault = "absent"
			p.look(1)
			p.is("suspect missing")
			p.watch(10)
			p.is("quarantined missing")
		},
		"a card that made every sample fail at first is quarantined by when it was last read": func(p *patient) {
			p.failing = true
			p.watch(7)
			p.failing, p.fault = false, FaultHangs
			p.look(1)
			p.watch(4)
			p.is("suspect hangs")
			p.watch(1)
			p.is("quarantined hangs")
			// How long that was goes by when it was last read: the reason's own clock has shown five seconds.
			if got := p.h.Of("GPU-3").Reason; got != "does not answer the driver" {
				p.t.Fatalf("the reason is %q", got)
			}
		},
		"a card that comes and goes does not flap": func(p *patient) {
			for range 20 {
				p.fault = "absent"
				p.look(1)
				p.fault = ""
				p.watch(3)
			}
			if len(p.told) != 2 {
				p.t.Fatalf("told %d times: %v", len(p.told), p.told)
			}
			p.is("quarantined missing")
		},
		"failed samples neither raise nor end a problem": func(p *patient) {
			p.failing = true
			p.watch(60)
			p.is("ok")
			p.failing, p.fault = false, FaultHangs
			p.look(1)
			p.failing, p.fault = true, ""
			p.watch(60)
			p.is("suspect hangs")
		},
		"an Xid that comes with a failed sample counts": func(p *patient) {
			p.failing = true
			p.xid(48)
			p.look(1)
			p.is("quarantined xid")
		},
		"application errors never take a card out of service": func(p *patient) {
			for _, code := range []int{13, 31, 43, 45, 68, 69, 94, 109} {
				p.xid(code)
			}
			p.look(1)
			p.is("ok")
			if x := p.h.Of("GPU-3").LastXid; x == nil || x.Code != 109 || x.Text == "" {
				p.t.Fatalf("last Xid %+v", x)
			}
			if len(p.told) != 8 || p.told[0].Note == "" || p.told[0].Odd {
				p.t.Fatalf("told %v", p.told)
			}
		},
		"an unknown Xid is odd and takes no card out of service": func(p *patient) {
			p.xid(9999)
			p.look(1)
			p.is("ok")
			if len(p.told) != 1 || !p.told[0].Odd {
				p.t.Fatalf("told %v", p.told)
			}
		},
		"the same harmless Xid is told once a minute": func(p *patient) {
			for range 90 {
				p.xid(31)
				p.look(1)
			}
			if len(p.told) != 2 {
				p.t.Fatalf("told %d times", len(p.told))
			}
		},
		"an Xid is found by the address on the bus": func(p *patient) {
			p.xids = []Xid{{At: p.now, BusID: "0000:3b:00", Code: 95}}
			p.look(1)
			p.is("quarantined xid")
		},
		"an Xid about the whole card is about its parts": func(p *patient) {
			p.device.Part = &Part{Of: 1, Profile: "1g.10gb"}
			p.device.Index = PartIndex(1, 0)
			p.xids = []Xid{{At: p.now, BusID: "0000:3b:00", Code: 63}, {At: p.now, UUID: "GPU-1", Code: 31}}
			p.look(1)
			if x := p.h.Of("GPU-3").LastXid; x == nil || x.Code != 31 {
				p.t.Fatalf("last Xid %+v", x)
			}
		},
		"fallen off the bus without a number counts as lost": func(p *patient) {
			p.xid(0)
			p.look(1)
			p.is("quarantined lost")
		},
		"an NVLink error makes a card suspect": func(p *patient) {
			p.xid(74)
			p.look(1)
			p.is("suspect nvlink")
		},
		"without a recovery action from the driver a hard Xid remains": func(p *patient) {
			p.xid(48)
			p.look(1)
			p.watch(600)
			p.is("quarantined xid")
		},
		"a hard Xid ends when the driver has asked for nothing for a minute": func(p *patient) {
			p.device.Condition.Recovery = RecoveryNone
			p.xid(48)
			p.look(1)
			p.watch(59)
			p.is("quarantined xid")
			p.watch(1)
			p.is("ok")
		},
		"another Xid begins that minute anew": func(p *patient) {
			p.device.Condition.Recovery = RecoveryNone
			p.xid(48)
			p.watch(50)
			p.xid(48)
			p.watch(55)
			p.is("quarantined xid")
			p.watch(10)
			p.is("ok")
		},
		"a hard Xid ends by a reset": func(p *patient) {
			p.xid(48)
			p.look(1)
			p.fault = "absent"
			p.watch(3)
			p.fault = ""
			p.watch(6)
			p.is("ok")
		},
		"an Xid that comes when a card is just back is not forgotten": func(p *patient) {
			p.xid(48)
			p.look(1)
			p.fault = "absent"
			p.watch(3)
			p.fault = ""
			p.watch(5)
			p.xid(48)
			p.watch(30)
			p.is("quarantined xid")
		},
		"a count of errors that begins anew is a reset": func(p *patient) {
			p.device.Condition.UncorrectedECC = 5
			p.xid(48)
			p.look(1)
			p.device.Condition.UncorrectedECC = 0
			p.look(1)
			p.is("ok")
		},
		"a card that missed a single sample was not reset": func(p *patient) {
			p.xid(48)
			p.look(1)
			p.fault = "absent"
			p.look(1)
			p.fault = ""
			p.watch(20)
			p.is("quarantined xid")
		},
		"nor was one that missed one now and then": func(p *patient) {
			p.xid(48)
			p.look(1)
			for range 3 {
				p.fault = "absent"
				p.look(1)
				p.fault = ""
				p.look(1)
			}
			p.watch(20)
			p.is("quarantined xid")
		},
		"a card that could not be read meanwhile begins that minute anew": func(p *patient) {
			p.device.Condition.Recovery = RecoveryNone
			p.xid(48)
			p.watch(50)
			p.fault = FaultHangs
			p.look(1)
			p.fault = ""
			p.watch(55)
			p.is("quarantined xid")
			p.watch(10)
			p.is("ok")
		},
		"an Xid of before a reset or a pardon does not count again": func(p *patient) {
			p.xid(48)
			old := p.xids[0]
			p.look(1)
			p.set(HealthOK, "root")
			p.is("ok")
			p.xids = []Xid{old}
			p.look(1)
			p.is("ok")
			p.restart("boot 1")
			p.xids = []Xid{old}
			p.look(1)
			p.is("ok")
			p.xid(48)
			p.look(1)
			p.is("quarantined xid")
		},
		"the driver's recovery action decides": func(p *patient) {
			for action, want := range map[string]string{
				RecoveryReset: "quarantined recovery", RecoveryReboot: "quarantined recovery", RecoveryBusReset: "quarantined recovery",
				RecoveryDrainAndReset: "quarantined recovery", RecoveryDrain: "suspect recovery", RecoveryFabric: "suspect recovery",
			} {
				p.device.Condition.Recovery = action
				p.look(1)
				p.is(want)
				p.device.Condition.Recovery = RecoveryNone
				p.watch(5)
				p.is(want)
				p.watch(1)
				p.is("ok")
			}
		},
		"a recovery action that is not reported any more remains": func(p *patient) {
			p.device.Condition.Recovery = RecoveryReset
			p.look(1)
			p.device.Condition.Recovery = ""
			p.watch(100)
			p.is("quarantined recovery")
		},
		"a milder recovery action counts after some time": func(p *patient) {
			p.device.Condition.Recovery = RecoveryReset
			p.look(1)
			p.device.Condition.Recovery = RecoveryDrain
			p.watch(3)
			p.is("quarantined recovery")
			p.watch(5)
			p.is("suspect recovery")
		},
		"uncorrected errors make a card suspect for ten minutes after the last": func(p *patient) {
			p.device.Condition.UncorrectedECC = 2
			p.look(1)
			p.is("suspect ecc")
			if got := p.h.Of("GPU-3").Reason; got != "uncorrected ECC errors rose from 0 to 2" {
				p.t.Fatal(got)
			}
			p.look(500)
			p.device.Condition.UncorrectedECC = 3
			p.look(1)
			p.look(599)
			p.is("suspect ecc")
			p.look(1)
			p.is("ok")
		},
		"errors of before berth came are history": func(p *patient) {
			p.h, p.device.Condition.UncorrectedECC = NewHealth(), 7
			p.watch(3)
			p.is("ok")
		},
		"a recovery action that says worse than the errors wins": func(p *patient) {
			p.device.Condition.UncorrectedECC, p.device.Condition.Recovery = 1, RecoveryReset
			p.look(1)
			p.is("quarantined recovery")
		},
		"rows that wait to be remapped make a card suspect until they do not": func(p *patient) {
			p.device.Condition.RowsPending = true
			p.watch(1000)
			p.is("suspect rows-pending")
			p.device.Condition.RowsPending = false
			p.watch(6)
			p.is("ok")
		},
		"rows that could not be remapped quarantine it": func(p *patient) {
			p.device.Condition.RowsFailed = true
			p.look(1)
			p.is("quarantined rows-failed")
		},
		"what a job left behind makes a card suspect until it is gone": func(p *patient) {
			p.told = append(p.told, p.h.Leftover(p.now, "GPU-3", "the memory of job 7 is not free yet: 12000 MiB", 64)...)
			p.is("suspect leftover")
			p.device.UsedMiB = 12064
			p.watch(100)
			p.is("suspect leftover")
			p.told = append(p.told, p.h.Leftover(p.now, "GPU-3", "", 0)...)
			p.is("ok")
			if len(p.told) != 2 {
				p.t.Fatalf("told %v", p.told)
			}
		},
		"what nobody watches any more ends when the memory is free": func(p *patient) {
			p.h.Leftover(p.now, "GPU-3", "the memory of job 7 is not free yet: 12000 MiB", 64)
			p.restart("boot 1")
			p.device.UsedMiB = 12064
			p.watch(10)
			p.is("suspect leftover")
			p.device.UsedMiB = 64
			p.look(1)
			p.is("ok")
		},
		"a user's decision holds until a user changes it": func(p *patient) {
			p.set(HealthQuarantined, "root")
			p.is("quarantined person")
			p.device.Condition.Recovery = RecoveryNone
			p.watch(100)
			p.fault = "absent"
			p.watch(5)
			p.fault = ""
			p.watch(100)
			p.is("quarantined person")
			if v := p.h.Of("GPU-3"); v.By != "root" || v.Reason != "smells of smoke" {
				p.t.Fatalf("%+v", v)
			}
			p.set(HealthSuspect, "ann")
			p.is("suspect person")
			p.set(HealthOK, "ann")
			p.is("ok")
		},
		"a user's ok waives what is known, but not what is new or worse": func(p *patient) {
			p.device.Condition.RowsPending = true
			p.look(1)
			p.set(HealthOK, "root")
			p.watch(100)
			p.is("ok")
			p.device.Condition.RowsFailed = true
			p.look(1)
			p.is("quarantined rows-failed")
			p.device.Condition.RowsFailed, p.device.Condition.RowsPending = false, false
			p.watch(10)
			p.is("ok")
			p.device.Condition.RowsPending = true
			p.look(1)
			p.is("suspect rows-pending")
		},
		"a person's ok does not hold against a recovery action that got worse": func(p *patient) {
			p.device.Condition.Recovery = RecoveryDrain
			p.look(1)
			p.set(HealthOK, "root")
			p.look(1)
			p.is("ok")
			p.device.Condition.Recovery = RecoveryReset
			p.look(1)
			p.is("quarantined recovery")
		},
		"everything is remembered over a restart of berth": func(p *patient) {
			p.xid(48)
			p.look(1)
			before := p.h.Of("GPU-3")
			p.restart("boot 1")
			if diff := cmp.Diff(before, p.h.Of("GPU-3")); diff != "" {
				p.t.Fatal(diff)
			}
			p.watch(100)
			p.is("quarantined xid")
			if len(p.told) != 1 {
				p.t.Fatalf("told again: %v", p.told)
			}
		},
		"a new reason for the same word is remembered too": func(p *patient) {
			p.set(HealthQuarantined, "eve")
			p.restart("boot 1")
			p.told = p.h.Set(p.now, p.device, HealthQuarantined, "eve", "smells of fire")
			if len(p.told) != 0 || !p.h.Changed() {
				p.t.Fatalf("to be saved: %v; told: %v", p.h.Changed(), p.told)
			}
			p.restart("boot 2")
			if v := p.h.Of("GPU-3"); v.Reason != "smells of fire" || v.By != "eve" {
				p.t.Fatalf("it is %+v", v)
			}
		},
		"errors that came while berth was away count": func(p *patient) {
			p.device.Condition.UncorrectedECC = 1
			p.look(1)
			p.look(700)
			p.is("ok")
			p.restart("boot 1")
			p.device.Condition.UncorrectedECC = 2
			p.look(1)
			p.is("suspect ecc")
		},
		"a reboot ends all trouble but a person's word": func(p *patient) {
			p.xid(48)
			p.look(1)
			p.restart("boot 2")
			p.look(1)
			p.is("ok")
			p.set(HealthQuarantined, "root")
			p.restart("boot 3")
			p.look(1)
			p.is("quarantined person")
		},
		"a clock that is set back makes no wait longer": func(p *patient) {
			p.device.Condition.UncorrectedECC = 1
			p.look(1)
			p.now = p.now.Add(-time.Hour)
			p.look(0)
			p.look(601)
			p.is("ok")
		},
		"a whole card that was divided is not missing": func(p *patient) {
			part := Unknown(PartIndex(3, 0), "MIG-1", "Fake")
			part.Part = &Part{Of: 3}
			for range 30 {
				p.now = p.now.Add(time.Second)
				p.h.Observe(p.now, Sample{Devices: []Device{p.healthy(), part}}, []Device{p.healthy(), p.device, part})
			}
			p.is("ok")
		},
	}
	for name, play := range tests {
		t.Run(name, func(t *testing.T) { play(newPatient(t)) })
	}
}

func TestHealthChangesAreSentences(t *testing.T) {
	p := newPatient(t)
	p.xid(48)
	p.xid(31)
	p.look(1)
	p.set(HealthOK, "root")
	p.set(HealthQuarantined, "ann")
	p.set(HealthOK, "ann")
	p.fault = FaultLost
	p.look(1)
	p.fault = ""
	p.watch(6)
	var got []string
	for _, c := range p.told {
		got = append(got, c.String())
	}
	want := []string{
		"gpu3 reports Xid 31 (memory page fault): an application error, not a fault of the GPU",
		"gpu3 quarantined: Xid 48 (double-bit ECC error)",
		"gpu3 cleared by root; it was quarantined: Xid 48 (double-bit ECC error)",
		"gpu3 quarantined by ann: smells of smoke",
		"gpu3 cleared by ann; it was quarantined: smells of smoke",
		"gpu3 quarantined: has fallen off the bus",
		"gpu3 ok again; it was quarantined: has fallen off the bus",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestHealthRefusesWhatIsNoSave(t *testing.T) {
	for _, text := range []string{"", "[]", "{", `{"cards":[{"uuid":"a","trouble":{"xid":{"level":"?"}}}]}`} {
		if err := NewHealth().Restore([]byte(text), "boot"); err == nil {
			t.Errorf("%q was taken", text)
		}
	}
	h := NewHealth()
	if err := h.Restore([]byte(`{"boot":"b","cards":[{"uuid":"a","trouble":{"xid":null,"gremlins":{"level":2},"ecc":{"level":9}}}]}`), "b"); err != nil {
		t.Error(err)
	}
	if v := h.Of("a"); v.State != HealthOK {
		t.Errorf("made up %+v", v)
	}
}

func TestHealthDoesNotWaitForCardsThatNobodyAsksFor(t *testing.T) {
	h, bad := NewHealth(), Unknown(1, "GPU-1", "Fake")
	h.Observe(healthStart, Sample{Devices: []Device{bad}, Xids: []Xid{{UUID: "GPU-1", Code: 48}}}, nil)
	saved, err := h.Save("boot")
	if err != nil {
		t.Fatal(err)
	}
	next := NewHealth()
	if err := next.Restore(saved, "boot"); err != nil {
		t.Fatal(err)
	}
	if next.Observe(healthStart, Sample{Devices: []Device{Unknown(0, "GPU-0", "Fake")}}, nil); !next.Settled() {
		t.Error("a card that is not among those asked for is waited for")
	}
	if next.Observe(healthStart, Sample{Devices: []Device{bad}}, nil); next.Settled() || next.Of("GPU-1").State != HealthQuarantined {
		t.Error("a card that is there again is not looked after")
	}
}

func TestPlainBus(t *testing.T) {
	for in, want := range map[string]string{
		"00000000:3B:00.0": ":3b:00", "0000:3b:00": ":3b:00", "0000:3b:00.0": ":3b:00", "00000001:3b:00.0": "1:3b:00", "": "", "junk": "junk",
	} {
		if got := plainBus(in); got != want {
			t.Errorf("%q became %q, want %q", in, got, want)
		}
	}
}

func BenchmarkHealthObserve(b *testing.B) {
	h, s := NewHealth(), Sample{}
	for i := range 8 {
		s.Devices = append(s.Devices, Unknown(i, string(rune('a'+i)), "Fake"))
	}
	for b.Loop() {
		h.Observe(healthStart, s, s.Devices)
	}
}
