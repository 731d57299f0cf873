package sched

import (
	"flag"
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"

	"berth/internal/job"
)

// TestMain looks at more cases than rapid does by itself: the states are
// wide, and each is cheap. The flag on the command line still decides.
func TestMain(m *testing.M) {
	if err := flag.Set("rapid.checks", "400"); err != nil {
		panic(err)
	}
	os.Exit(m.Run())
}

// cardOf is a healthy, empty card.
func cardOf(index int, totalMiB int64) Card {
	return Card{Index: index, UUID: fmt.Sprintf("GPU-%d", index), Name: "Test GPU", TotalMiB: totalMiB, NUMA: -1, UtilPct: -1}
}

// cardsOf are healthy, empty cards, numbered from 0.
func cardsOf(totalsMiB ...int64) []Card {
	cards := make([]Card, len(totalsMiB))
	for i, total := range totalsMiB {
		cards[i] = cardOf(i, total)
	}
	return cards
}

// with changes cards in place, by index, and gives them back.
func with(cards []Card, index int, change func(*Card)) []Card {
	change(&cards[index])
	return cards
}

// asks are jobs named 1, 2, … in this order.
func asks(specs ...job.Spec) []job.Spec { return specs }

func vram(mib int64) job.Spec                { return job.Spec{GPUs: 1, VRAMMiB: mib} }
func vrams(gpus int, mib int64) job.Spec     { return job.Spec{GPUs: gpus, VRAMMiB: mib} }
func share(f float64) job.Spec               { return job.Spec{GPUs: 1, Share: f} }
func idle(gpus int) job.Spec                 { return job.Spec{GPUs: gpus} }
func cpus(n int) job.Spec                    { return job.Spec{CPUs: n} }
func mem(mib int64) job.Spec                 { return job.Spec{MemMiB: mib} }
func ids(mib int64, indices ...int) job.Spec { return job.Spec{GPUs: 1, VRAMMiB: mib, IDs: indices} }

func also(spec job.Spec, change func(*job.Spec)) job.Spec {
	change(&spec)
	return spec
}

// queueOf queues the specs as jobs 1, 2, … under the rules.
func queueOf(rules Rules, specs []job.Spec) *Queue {
	q := NewQueue()
	for i, spec := range specs {
		q.Add(Pending{
			Job: strconv.Itoa(i + 1), Priority: spec.Priority, Rank: int64(i), Seq: int64(i),
			Request: NewRequest(spec, spec.VRAMMiB, rules),
		})
	}
	return q
}

// brief writes a plan as "1@0 2@3,1 !4": job 1 on gpu0, job 2 on gpu3 and
// gpu1, job 4 refused. A CPU job is "5@".
func brief(p Plan) string {
	var words []string
	for _, s := range p.Starts {
		words = append(words, s.Job+"@"+joinIDs(s.Grant.GPUs))
	}
	for _, r := range p.Infeasible {
		words = append(words, "!"+r.Job)
	}
	return strings.Join(words, " ")
}

// row is one sentence about Decide.
type row struct {
	says  string
	rules func(*Rules)
	cards []Card
	host  Host
	held  []Allocation
	blind string // why the GPUs are unreadable
	most  int    // MaxStarts
	jobs  []job.Spec

	users  string // whose the jobs are: "ann bob ann"
	arrays string // which array each is a task of: "17 - 17"
	atOnce int    // the limit of those arrays
	groups string // which of its user's groups each is in: "io - io"
	lab    func(*State)

	want string
}

func (r row) state() State {
	rules := DefaultRules()
	if r.rules != nil {
		r.rules(&rules)
	}
	s := State{
		Rules: rules, Cards: r.cards, Host: r.host, Allocations: r.held, Unreadable: r.blind,
		MaxStarts: r.most, Queue: queueOf(rules, r.jobs),
	}
	users, arrays, groups := strings.Fields(r.users), strings.Fields(r.arrays), strings.Fields(r.groups)
	for _, p := range s.Queue.First(s.Queue.Len()) {
		if p.Seq < int64(len(users)) {
			p.User = users[p.Seq]
		}
		if p.Seq < int64(len(arrays)) && arrays[p.Seq] != "-" {
			p.Array, p.ArrayLimit = arrays[p.Seq], r.atOnce
		}
		if p.Seq < int64(len(groups)) && groups[p.Seq] != "-" {
			p.Group = groups[p.Seq]
		}
		s.Queue.Add(p)
	}
	if r.lab != nil {
		r.lab(&s)
	}
	return s
}

func checkRows(t *testing.T, rows []row) {
	t.Helper()
	for _, r := range rows {
		t.Run(r.says, func(t *testing.T) {
			if got := brief(Decide(r.state())); got != r.want {
				t.Errorf("plan is %q, want %q", got, r.want)
			}
		})
	}
}
