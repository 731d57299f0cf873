package sim

import (
	"container/heap"
	"fmt"
	"testing"
	"time"
)

// tenThousand is a busy cluster: so many users, gangs and shares, more work
// than the cards can do at once.
func tenThousand(users int) []Job {
	jobs := make([]Job, 10_000)
	draw := draws(7)
	for i := range jobs {
		jobs[i] = seconds(fmt.Sprint(i), fmt.Sprint("user", int(float64(users)*draw())), 140*float64(i), 60+2000*draw()*draw(), 1<<int(3.2*draw()*draw()))
		if draw() < 0.3 && jobs[i].GPUs == 1 {
			jobs[i].Share = float64(1+int(9*draw())) / 10
		}
	}
	return jobs
}

// BenchmarkReplay replays ten thousand jobs under each policy, beside what
// the events alone cost: as many pushes to and pops from a bare heap.
func BenchmarkReplay(b *testing.B) {
	for _, users := range []int{49, 300} {
		jobs := tenThousand(users)
		for _, p := range Policies() {
			for _, park := range []*Parking{nil, {EachWay: 20_000}} {
				if park != nil && !p.Rules.Slice {
					continue
				}
				name := fmt.Sprintf("%s/users=%d/park=%v", p.Name, users, park != nil)
				in := Input{Jobs: jobs, Machine: Machine{GPUs: 8, VRAMMiB: 81_920}, Policy: p, Park: park}
				b.Run(name, func(b *testing.B) { benchmarkReplay(b, in) })
			}
		}
	}
}

func benchmarkReplay(b *testing.B, in Input) {
	replaying, bare := time.Duration(0), time.Duration(0)
	for b.Loop() {
		began := time.Now()
		Run(in)
		replaying += time.Since(began)
		began = time.Now()
		bareHeap(in.Jobs)
		bare += time.Since(began)
	}
	b.ReportMetric(float64(replaying)/float64(bare), "×bare-heap")
	b.ReportMetric(replaying.Seconds()/float64(b.N), "s/10k-jobs")
}

func bareHeap(jobs []Job) {
	order := bySubmission(jobs)
	var h ends
	for _, i := range order {
		heap.Push(&h, &active{place: i, end: jobs[i].Submit + jobs[i].Duration})
	}
	for len(h) > 0 {
		heap.Pop(&h)
	}
}

func TestTenThousandJobsReplayInSeconds(t *testing.T) {
	jobs := tenThousand(300)
	began := time.Now()
	in := Input{Jobs: jobs, Machine: Machine{GPUs: 8, VRAMMiB: 81_920}, Policy: policy(t, Default)}
	res := Run(in)
	took := time.Since(began)
	m := Measure(in, res)
	if m.Jobs != len(jobs) || m.GPUAllocated < 0.5 {
		t.Fatalf("not the workload that was meant: %+v", m)
	}
	// A quiet machine takes a tenth of a second or two. This bound is for a
	// slow one with the race detector, and still catches a whole pass over
	// the queue for every event.
	if took > 30*time.Second {
		t.Errorf("took %v", took)
	}
}
