package sched

import (
	"encoding/csv"
	"flag"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"testing"
)

var (
	studyTrace  = flag.String("study-trace", "", "replay this trace with shares under several placements, and print a table")
	studyCopies = flag.Int("study-copies", 20, "with -study-trace: perturbed copies of it")
)

// errand is a job of the study. Times are seconds.
type errand struct {
	submit, duration float64
	request          Request
}

// part is how much of each of its cards it takes up.
func (e *errand) part() float64 {
	if e.request.undeclared() {
		return 1
	}
	return max(e.request.Share, float64(e.request.VRAMMiB)/studyCardMiB)
}

const studyCardMiB = 81920

// figures are a replay summed up.
type figures struct{ wait, slowdown, makespan, fragmented float64 }

// errandRun is a job on its cards.
type errandRun struct {
	held Allocation
	ends float64
	kind Request
}

// placer picks cards for a request: best fit, or by the growth of what is of no
// use to the mix.
type placer func(b *machine, options []option, r *Request, queue []errand, runs []errandRun) []option

func byPlacement(p Placement) placer {
	return func(_ *machine, options []option, r *Request, _ []errand, _ []errandRun) []option {
		return choose(options, r.GPUs, p)
	}
}

// byGrowth goes by a mix that is known, or where it is nil by what waits and runs.
func byGrowth(known []wish) placer {
	return func(b *machine, options []option, r *Request, queue []errand, runs []errandRun) []option {
		mix := known
		if mix == nil {
			var seen []Request
			for i := range queue {
				seen = append(seen, queue[i].request)
			}
			for i := range runs {
				seen = append(seen, runs[i].kind)
			}
			mix = mixOf(seen)
		}
		scored := slices.Clone(options)
		for i := range scored {
			// Growth first, best fit among equals.
			scored[i].leftMiB += b.growth(options[i], r, mix) * (1 << 20)
		}
		return choose(scored, r.GPUs, Pack)
	}
}

// study replays the errands on eight cards: in order of submission, whatever
// fits may pass what does not, nothing is reserved.
func study(errands []errand, place placer) (f figures) {
	order := slices.Clone(errands)
	slices.SortStableFunc(order, func(a, b errand) int { return compareFloats(a.submit, b.submit) })
	cards := make([]Card, 8)
	for i := range cards {
		cards[i] = cardOf(i, studyCardMiB)
	}
	var queue []errand
	var runs []errandRun
	now, next := order[0].submit, 0
	for next < len(order) || len(runs) > 0 {
		then := math.Inf(1)
		if next < len(order) {
			then = order[next].submit
		}
		for i := range runs {
			then = min(then, runs[i].ends)
		}
		f.fragmented += (then - now) * inPieces(cards, runs, queue)
		now = then
		runs = slices.DeleteFunc(runs, func(r errandRun) bool { return r.ends <= now })
		for ; next < len(order) && order[next].submit <= now; next++ {
			queue = append(queue, order[next])
		}
		s := State{Rules: DefaultRules(), Cards: cards}
		for i := range runs {
			s.Allocations = append(s.Allocations, runs[i].held)
		}
		b := s.machine()
		failed := map[Request]bool{}
		queue = slices.DeleteFunc(queue, func(e errand) bool {
			if failed[e.request] {
				return false
			}
			var options []option
			for i := range b.slots {
				c := &b.slots[i]
				if budgetMiB, obstacle := b.fit(c, &e.request); obstacle == "" {
					options = append(options, option{slot: c, budgetMiB: budgetMiB, leftMiB: c.headroomMiB - budgetMiB})
				}
			}
			if len(options) < e.request.GPUs {
				failed[e.request] = true
				return false
			}
			h := Allocation{Job: strconv.FormatFloat(e.submit, 'g', -1, 64), Share: e.request.Share, Alone: e.request.undeclared()}
			for _, o := range place(b, options, &e.request, queue, runs) {
				h.Cards, h.BudgetMiB = append(h.Cards, o.slot.Index), append(h.BudgetMiB, o.budgetMiB)
			}
			b.book(&h)
			runs = append(runs, errandRun{h, now + e.duration, e.request})
			f.wait += now - e.submit
			f.slowdown += max(1, (now-e.submit+e.duration)/max(e.duration, 10))
			f.makespan = max(f.makespan, now+e.duration-order[0].submit)
			return true
		})
	}
	n := float64(len(order))
	return figures{f.wait / n, f.slowdown / n, f.makespan, f.fragmented / f.makespan / 8 * 100}
}

// inPieces is how many cards are free in all while a job waits for no more.
func inPieces(cards []Card, runs []errandRun, queue []errand) float64 {
	free := float64(len(cards))
	for i := range runs {
		e := errand{request: runs[i].kind}
		free -= e.part() * float64(len(runs[i].held.Cards))
	}
	for i := range queue {
		if queue[i].part()*float64(queue[i].request.GPUs) <= free+1e-9 {
			return free
		}
	}
	return 0
}

func compareFloats(a, b float64) int {
	switch {
	case a < b:
		return -1
	case a > b:
		return 1
	}
	return 0
}

// TestStudyOfPlacements prints the table of docs/studies/best-fit.md when it is given a
// trace; without one it replays a small made-up load and checks the replay.
func TestStudyOfPlacements(t *testing.T) {
	if *studyTrace == "" {
		r := rand.New(rand.NewPCG(1, 1))
		var small []errand
		for i := range 300 {
			e := errand{float64(i * 10), 20 + 100*r.Float64(), Request{GPUs: 1}}
			if r.IntN(2) == 0 {
				e.request.Share = 0.1 * float64(1+r.IntN(9))
			}
			small = append(small, e)
		}
		pack, spread := study(small, byPlacement(Pack)), study(small, byPlacement(Spread))
		if pack.fragmented >= spread.fragmented {
			t.Errorf("best fit leaves %.2f %% in pieces, the emptiest card %.2f %%", pack.fragmented, spread.fragmented)
		}
		return
	}
	traced := readErrands(t, *studyTrace)
	t.Logf("as it is, best fit: %+v", study(traced, byPlacement(Pack)))
	for _, v := range studyVariants() {
		errands := v.change(slices.Clone(traced))
		requests := make([]Request, len(errands))
		for i := range errands {
			requests[i] = errands[i].request
		}
		placers := []placer{byPlacement(Pack), byPlacement(Spread), byGrowth(nil), byGrowth(mixOf(requests))}
		all := make([][]figures, len(placers))
		for seed := range *studyCopies {
			copied := perturbed(errands, rand.New(rand.NewPCG(uint64(seed), 99)))
			for p := range placers {
				all[p] = append(all[p], study(copied, placers[p]))
			}
		}
		for p, name := range []string{"pack", "spread", "growth, queue", "growth, all"} {
			t.Logf("| %s | %s | %s | %s | %s | %s |", v.name, name,
				cell("%.0f", all[p], func(f figures, _ int) float64 { return f.wait }),
				cell("%+.2f", all[p], func(f figures, i int) float64 { return 100 * (f.wait/all[0][i].wait - 1) }),
				cell("%.1f", all[p], func(f figures, _ int) float64 { return f.slowdown }),
				cell("%.2f", all[p], func(f figures, _ int) float64 { return f.fragmented }))
		}
	}
}

// cell is a mean and half its 95 % interval (Student's, about 20 copies).
func cell(format string, all []figures, of func(figures, int) float64) string {
	var mean, squares float64
	n := float64(len(all))
	for i, f := range all {
		mean += of(f, i) / n
	}
	for i, f := range all {
		squares += (of(f, i) - mean) * (of(f, i) - mean)
	}
	return fmt.Sprintf(format+" ± %.2f", mean, 2.093*math.Sqrt(squares/(n-1)/n))
}

func perturbed(errands []errand, r *rand.Rand) []errand {
	out := slices.Clone(errands)
	gap := out[len(out)-1].submit / float64(len(out))
	for i := range out {
		out[i].submit = max(0, out[i].submit+gap*(2*r.Float64()-1))
		out[i].duration *= math.Exp(0.1 * r.NormFloat64())
	}
	return out
}

func readErrands(t *testing.T, path string) (errands []errand) {
	file, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	rows, err := csv.NewReader(file).ReadAll()
	if err != nil {
		t.Fatal(err)
	}
	number := func(text string) float64 { v, _ := strconv.ParseFloat(text, 64); return v }
	for _, row := range rows[1:] {
		e := errand{number(row[1]), number(row[2]), Request{GPUs: int(number(row[3]))}}
		if milli := number(row[4]); milli < 1000 {
			e.request.Share = milli / 1000
		}
		errands = append(errands, e)
	}
	return errands
}
