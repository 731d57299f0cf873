package sim

import (
	"fmt"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// gpuSecondsUntil is what each user had of the cards until a moment.
func gpuSecondsUntil(in *input, res Result, moment Millis) map[string]float64 {
	had := map[string]float64{}
	for i := range in.Jobs {
		j := &in.Jobs[i]
		for _, s := range res.Fates[i].Segments {
			had[j.User] += float64(j.GPUs) * max(0, min(s.End, moment)-min(s.Start, moment)).Seconds()
		}
	}
	return had
}

// TestSplittingAJobGainsNoShare lets one user submit the same work in parts, of
// cards or of time, and another as large jobs. Both always wait. Without parking the
// one has no more of the cards than the other but for what is out at a time. With
// parking classes of service come before shares, and pieces of less than three
// minutes go before what had more: there pieces that are longer than all of the
// classes have up to three fifths, because one of them finds room where a large job
// does not.
func TestSplittingAJobGainsNoShare(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const gpus, hours = 4, 48
		pieces := rapid.IntRange(2, 8).Draw(t, "pieces")
		wide := rapid.Bool().Draw(t, "of cards")
		whole := seconds("", "ann", 0, 4*3600, gpus)
		part := seconds("", "bob", 0, 4*3600/float64(pieces), gpus)
		if wide {
			pieces = gpus
			part = seconds("", "bob", 0, 4*3600, 1)
		}
		p, err := ParsePolicy("fair")
		if err != nil {
			t.Fatal(err)
		}
		in := input{Machine: Machine{GPUs: gpus, VRAMMiB: 1000}, Policy: p, Estimates: Perfect}
		parking := rapid.Bool().Draw(t, "parking")
		if parking {
			if in.Policy, err = ParsePolicy(Default); err != nil {
				t.Fatal(err)
			}
			in.Park = &Parking{EachWay: 20_000}
		}
		for i := range 2 * hours / 4 {
			whole.ID = fmt.Sprint("w", i)
			in.Jobs = append(in.Jobs, whole)
			for k := range pieces {
				part.ID = fmt.Sprint("p", i, "-", k)
				in.Jobs = append(in.Jobs, part)
			}
		}
		had := gpuSecondsUntil(&in, run(in), Millis(hours*time.Hour/time.Millisecond))
		// A job of each at a time, and the hours that a card counts for at once.
		most := had["ann"] + 2*gpus*4*3600
		if parking {
			most = max(most, 0.61*(had["ann"]+had["bob"]))
		}
		if had["bob"] > most {
			t.Fatalf("in %d pieces (of cards: %v) bob had %.0f GPU-seconds, ann %.0f", pieces, wide, had["bob"], had["ann"])
		}
		if had["ann"]+had["bob"] < 0.9*gpus*hours*3600 {
			t.Fatalf("the cards are not busy: this tests nothing")
		}
	})
}
