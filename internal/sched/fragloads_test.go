package sched

import "math/rand/v2"

// studyVariant is a load made of the trace.
type studyVariant struct {
	name   string
	change func([]errand) []errand
}

// madeUpGiB are sizes of jobs that nobody measured: many small, few large.
var madeUpGiB = []int64{2, 4, 4, 6, 8, 8, 8, 10, 10, 12, 12, 16, 16, 20, 24, 24, 32, 40, 48, 64}

func studyVariants() []studyVariant {
	stretch := func(by float64) func([]errand) []errand {
		return func(all []errand) []errand {
			for i := range all {
				all[i].submit *= by
			}
			return all
		}
	}
	return []studyVariant{
		{"shares", stretch(1)}, {"shares, × 1.1", stretch(1.1)}, {"shares, × 1.3", stretch(1.3)},
		{"VRAM = share × 80 GiB, × 1.1", func(all []errand) []errand {
			return stretch(1.1)(altered(all, 1, 0, func(e *errand, _ *rand.Rand) {
				e.request.VRAMMiB, e.request.Share = int64(e.request.Share*studyCardMiB), 0
			}))
		}},
		{"VRAM made up, 30 % undeclared", func(all []errand) []errand {
			return altered(all, 2, 0.9, func(e *errand, r *rand.Rand) {
				e.request.Share = 0
				if r.Float64() > 0.3 {
					e.request.VRAMMiB = madeUpGiB[r.IntN(len(madeUpGiB))] << 10
				}
			})
		}},
		{"the same without gangs", func(all []errand) []errand {
			var single []errand
			for _, e := range all {
				if e.request.GPUs == 1 {
					single = append(single, e)
				}
			}
			return altered(single, 2, 0.9, func(e *errand, r *rand.Rand) {
				e.request.Share = 0
				if r.Float64() > 0.3 {
					e.request.VRAMMiB = madeUpGiB[r.IntN(len(madeUpGiB))] << 10
				}
			})
		}},
		{"share and VRAM made up", func(all []errand) []errand {
			return altered(all, 3, 0.9, func(e *errand, r *rand.Rand) {
				if e.request.Share > 0 {
					e.request.VRAMMiB = madeUpGiB[r.IntN(len(madeUpGiB))] << 10
				}
			})
		}},
		{"30 % made gangs of 2, 4, 8", func(all []errand) []errand {
			return altered(all, 4, 0.8, func(e *errand, r *rand.Rand) {
				if u := r.Float64(); u < 0.3 {
					e.request.GPUs = 2 << int(u*10)
				}
			})
		}},
	}
}

// altered changes the jobs of one card, and where a load is given stretches the
// arrivals so that eight cards are offered that much.
func altered(all []errand, seed uint64, load float64, change func(*errand, *rand.Rand)) []errand {
	r := rand.New(rand.NewPCG(seed, 7))
	var area float64
	for i := range all {
		if all[i].request.GPUs == 1 {
			change(&all[i], r)
		}
		area += all[i].duration * all[i].part() * float64(all[i].request.GPUs)
	}
	if load > 0 {
		by := area / 8 / all[len(all)-1].submit / load
		for i := range all {
			all[i].submit *= by
		}
	}
	return all
}
