package engine

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"berth/internal/queue/series"
)

// recorded keeps the last set of readings, in words.
func recorded(said *string) func(*Config) {
	return func(cfg *Config) {
		cfg.Measured = func(all []series.Reading) {
			var words []string
			for _, r := range all {
				words = append(words, fmt.Sprintf("%d/%s/%s/%d/gpu%d:%d", r.Track.Kind, r.Track.Owner, r.Track.ID, r.Track.Attempt, r.Track.GPU, r.Point.MiB))
			}
			slices.Sort(words)
			*said = strings.Join(words, " ")
		}
	}
}

func TestEverySampleIsRecordedForThePast(t *testing.T) {
	var said string
	r := newRig(t, 2, recorded(&said))
	want := func(when, want string) {
		t.Helper()
		if said != want {
			t.Errorf("%s: recorded %s, want %s", when, said, want)
		}
	}
	want("no job", "1//GPU-0/0/gpu0:0 1//GPU-1/0/gpu0:0")
	r.submit(spec(vram(8000)))
	r.look()
	want("not measured yet", "1//GPU-0/0/gpu0:0 1//GPU-1/0/gpu0:0 2/ann/1/1/gpu0:-1")
	r.uses("1", 0, 3000)
	r.devices[0].Processes[0].PeakMiB = 5000
	r.look()
	want("a peak between two samples", "1//GPU-0/0/gpu0:3000 1//GPU-1/0/gpu0:0 2/ann/1/1/gpu0:5000")
	r.uses("1", 1, 700)
	r.devices[0].Processes[0].PeakMiB = 0
	r.look()
	want("a card that it was not given", "1//GPU-0/0/gpu0:3000 1//GPU-1/0/gpu0:700 2/ann/1/1/gpu0:3000 2/ann/1/1/gpu1:700")
}

func TestAParkedJobIsRecordedAsParked(t *testing.T) {
	var said string
	r := parkedRig(t, recorded(&said))
	if !strings.Contains(said, "2/ann/1/1/gpu0:5000") {
		t.Errorf("while it runs: %s", said)
	}
	r.park()
	r.pass(time.Second)
	if want := "1//GPU-0/0/gpu0:0 3/ann/1/1/gpu0:5000"; said != want {
		t.Errorf("recorded %s, want %s", said, want)
	}
}
