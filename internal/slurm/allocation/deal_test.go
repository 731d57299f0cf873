package allocation

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"berth/internal/job"
	_ "berth/internal/tests/testkit" // the seed of rapid
)

func tasksOf(specs ...job.Spec) (list []*task) {
	for i, s := range specs {
		list = append(list, &task{id: i + 1, spec: s, inFile: true})
	}
	return list
}

func many(n int, s job.Spec) []job.Spec { return slices.Repeat([]job.Spec{s}, n) }

func TestDeal(t *testing.T) {
	half := job.Spec{GPUs: 1, VRAMMiB: 12 << 10}
	whole := job.Spec{GPUs: 1}
	gpus := func(n int) *room { return &room{gpus: n, gpuMiB: 24 << 10, cpus: 8} }
	for name, test := range map[string]struct {
		specs []job.Spec
		rooms []*room
		pace  pace
		want  []int // how many each room gets
	}{
		"two jobs of half the memory count as one whole":             {many(40, half), []*room{gpus(2)}, pace{}, []int{8}},
		"a job without a declaration takes a GPU":                    {many(40, whole), []*room{gpus(2)}, pace{}, []int{4}},
		"each allocation is filled twice, the rest is kept back":     {many(40, whole), []*room{gpus(2), gpus(4)}, pace{}, []int{4, 8}},
		"few jobs are spread":                                        {many(4, whole), []*room{gpus(2), gpus(2)}, pace{}, []int{2, 2}},
		"short jobs are dealt for two minutes":                       {many(400, whole), []*room{gpus(2)}, pace{ended: 10, total: 20 * time.Second}, []int{120}},
		"CPU jobs are counted by CPUs":                               {many(40, job.Spec{CPUs: 4}), []*room{gpus(2)}, pace{}, []int{4}},
		"no more than there are":                                     {many(1, whole), []*room{gpus(2), gpus(2)}, pace{}, []int{1, 0}},
		"an exclusive job takes the GPU whatever it declares":        {many(9, job.Spec{GPUs: 1, VRAMMiB: 1, Exclusive: true}), []*room{gpus(1)}, pace{}, []int{2}},
		"the memory of an unknown GPU is guessed":                    {many(9, job.Spec{GPUs: 1, VRAMMiB: guessedMiB / 2}), []*room{{gpus: 1, cpus: 1}}, pace{}, []int{4}},
		"a job that has no time left in one goes to the other":       {many(2, job.Spec{GPUs: 1, TimeLimit: time.Hour}), []*room{{gpus: 1, left: time.Minute, whole: 2 * time.Hour}, gpus(1)}, pace{}, []int{0, 2}},
		"a job longer than any allocation is tried":                  {many(1, job.Spec{GPUs: 1, TimeLimit: 9 * time.Hour}), []*room{{gpus: 1, left: time.Hour, whole: 2 * time.Hour}}, pace{}, []int{1}},
		"the longer jobs of one allocation leave others to the next": {append(many(1, job.Spec{GPUs: 1, TimeLimit: 10 * time.Hour}), many(2, job.Spec{GPUs: 1, TimeLimit: time.Hour})...), []*room{gpus(1), gpus(1)}, pace{}, []int{1, 2}},
	} {
		deal(tasksOf(test.specs...), test.rooms, test.pace)
		var got []int
		for _, r := range test.rooms {
			got = append(got, len(r.dealt))
		}
		if !slices.Equal(got, test.want) {
			t.Errorf("%s: %v, want %v", name, got, test.want)
		}
	}
}

func TestDealKeepsPriorityAndDependencies(t *testing.T) {
	tasks := tasksOf(many(5, job.Spec{GPUs: 1})...)
	tasks[3].spec.Priority = 5
	tasks[4].after = []dependency{{tasks[0], job.AfterOK}}
	tasks[1].inFile = false
	tasks[2].outcome = job.OK
	r := &room{gpus: 4, cpus: 4}
	if deal(tasks, []*room{r}, pace{}); !slices.Equal(r.dealt, []*task{tasks[3], tasks[0]}) {
		t.Errorf("dealt %v", r.dealt)
	}
}

func TestReady(t *testing.T) {
	for _, test := range []struct {
		outcome job.Outcome
		on      job.Condition
		ready   bool
		broken  bool
	}{
		{"", job.AfterOK, false, false}, {job.OK, job.AfterOK, true, false}, {job.Exited(1), job.AfterOK, false, true},
		{job.OK, job.AfterFail, false, true}, {job.Exited(1), job.AfterFail, true, false}, {job.OK, job.AfterAny, true, false}, {job.Depends, job.AfterAny, true, false},
	} {
		one := &task{outcome: test.outcome}
		ready, broken := (&task{after: []dependency{{one, test.on}}}).ready()
		if ready != test.ready || (broken != nil) != test.broken {
			t.Errorf("%+v: %v %v", test, ready, broken)
		}
	}
}

// TestDealProperties: nothing is dealt twice, only what waits is dealt, and no room
// with free space stays empty while a job waits that fits it.
func TestDealProperties(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var specs []job.Spec
		for range rapid.IntRange(0, 30).Draw(t, "jobs") {
			specs = append(specs, job.Spec{GPUs: rapid.IntRange(0, 2).Draw(t, "gpus"), VRAMMiB: rapid.SampledFrom([]int64{0, 1 << 10, 12 << 10}).Draw(t, "vram"),
				TimeLimit: rapid.SampledFrom([]time.Duration{0, time.Minute, time.Hour}).Draw(t, "time"), Priority: rapid.IntRange(0, 2).Draw(t, "priority")})
		}
		tasks := tasksOf(specs...)
		for _, task := range tasks {
			task.in = rapid.IntRange(0, 1).Draw(t, "in")
		}
		var rooms []*room
		for range rapid.IntRange(0, 4).Draw(t, "rooms") {
			rooms = append(rooms, &room{gpus: rapid.IntRange(0, 4).Draw(t, "room gpus"), cpus: 4, gpuMiB: 24 << 10, left: rapid.SampledFrom([]time.Duration{0, 2 * time.Minute, 2 * time.Hour}).Draw(t, "left"), whole: 3 * time.Hour})
		}
		seen := map[int]bool{}
		deal(tasks, rooms, pace{})
		for _, r := range rooms {
			for _, task := range r.dealt {
				if seen[task.id] || task.in != 0 {
					t.Fatalf("job %d is dealt twice", task.id)
				}
				seen[task.id] = true
			}
		}
		for i, r := range rooms {
			_, enough := r.work(pace{})
			for _, task := range tasks {
				if task.in == 0 && !seen[task.id] && !enough && r.fits(&task.spec) {
					t.Fatalf("job %d fits room %d, which has space", task.id, i)
				}
			}
		}
	})
}

func TestParseSlurm(t *testing.T) {
	for line, want := range map[string]string{
		"":                          "[]",
		"--gres=gpu:2 -t 8h":        "[--gres=gpu:2 -t 480]",
		"-t8h --time=90m --time 2d": "[-t480 --time=90 --time 2880]",
		"-t 30 --time=1-12 -t 0:30": "[-t 30 --time=1-12 -t 0:30]",
		"-p gpu --constraint='a b' --exclusive -H": "[-p gpu --constraint=a b --exclusive -H]",
		"-t soon": "[-t soon]",
	} {
		words, err := ParseSlurm(line)
		if got := fmt.Sprint(words); err != nil || got != want {
			t.Errorf("%q: %s, %v; want %s", line, got, err, want)
		}
	}
	for _, line := range []string{"job.sh", "-J x", "--job-name=x", "--comment=x", "--array=1-3", "-N 2", "--requeue", "--signal=USR1", "-o", "--gres", "--wrap='true'", "'open", "-", "--", "--a\nb"} {
		if words, err := ParseSlurm(line); err == nil {
			t.Errorf("%q: %q", line, words)
		}
	}
}

func TestStoppedWith(t *testing.T) {
	told := time.Unix(1000, 0)
	at := func(seconds int64, o job.Outcome) *job.View {
		end := time.Unix(seconds, 0)
		return &job.View{Outcome: &o, EndedAt: &end}
	}
	for _, test := range []struct {
		view *job.View
		want bool
	}{{at(1001, job.Exited(1)), true}, {at(996, job.Signalled("TERM")), true}, {at(990, job.Exited(1)), false}, {at(1001, job.OK), false}} {
		if got := stoppedWith(told, test.view); got != test.want {
			t.Errorf("%v at %v: %v", *test.view.Outcome, test.view.EndedAt, got)
		}
	}
	if stoppedWith(time.Time{}, at(1001, job.Exited(1))) {
		t.Error("an allocation that goes on stops no job")
	}
}
