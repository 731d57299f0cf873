package engine

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"berth/internal/job"
	"berth/internal/machine/keep"
	"berth/internal/machine/run"
	"berth/internal/queue/engine/settings"
	"berth/internal/queue/engine/waiting"
	"berth/internal/sched"
	"berth/internal/sched/sim"
)

// TestAReplayDoesWhatTheEngineDid, start by start and preemption by preemption, to the
// millisecond: with jobs that are parked, that save their own work, that stay, and that
// could not be parked before, and with little host memory.
func TestAReplayDoesWhatTheEngineDid(t *testing.T) {
	t.Parallel()
	turns := sched.DefaultRules()
	turns.Slice = true
	fair, lent := turns, turns
	fair.Fair = true
	lent.Fair, lent.BorrowTime = true, 4*time.Hour
	for _, test := range []struct {
		name  string
		rules sched.Rules
		limit sched.Limit
	}{{"turns", turns, sched.Limit{}}, {"fair share", fair, sched.Limit{}}, {"shares that are lent", lent, sched.Limit{Share: 2}}} {
		t.Run(test.name, func(t *testing.T) {
			parkings, requeues, refused := 0, 0, 0
			for seed := range uint64(5) {
				d := newDay(t, seed, test.rules, test.limit)
				d.live()
				lived, replayed := d.lived(), d.replay(test.rules, test.limit)
				if !slices.Equal(lived, replayed) {
					i := 0
					for i < min(len(lived), len(replayed)) && lived[i] == replayed[i] {
						i++
					}
					t.Errorf("seed %d: after %d equal segments of %d and %d:\n%s\nand in the replay\n%s", seed, i, len(lived), len(replayed),
						strings.Join(lived[i:min(i+5, len(lived))], "\n"), strings.Join(replayed[i:min(i+5, len(replayed))], "\n"))
				}
				for _, j := range d.jobs {
					switch more := len(j.segments) - 1; {
					case more < 0:
						refused++
					case j.Saves != 0:
						requeues += more
					default:
						parkings += more
					}
				}
			}
			if min(parkings, requeues) < 10 || test.limit.Share > 0 && refused == 0 {
				t.Errorf("jobs were parked %d times and requeued %d times, and %d were refused", parkings, requeues, refused)
			}
		})
	}
}

// day is a workload on a machine where everything takes exactly as long as it is
// planned to take.
type day struct {
	*rig
	jobs   []*dayJob
	coming []happening // by time
	unborn []*dayJob   // jobs that never started
	done   int
}

// dayJob is a job of the day, which has its place in it as its id, and what became of
// it.
type dayJob struct {
	sim.Job
	token    string
	left     time.Duration // of its work
	works    time.Time     // when it began to make progress
	began    time.Time     // on its cards
	cards    []int
	segments []sim.Segment
}

// happening is what comes to pass at that time. ends is the job whose work is done then,
// unless it has to leave its cards before.
type happening struct {
	at   time.Time
	do   func()
	ends *dayJob
}

const (
	dayCards   = 4
	dayCardMiB = 24576
	dayHostMiB = 2 * dayCardMiB
	dayLimit   = 3 * time.Hour    // more than any job takes
	dayClock   = 20 * time.Minute // between two saves of one program
	dayHalf    = 7 * 24 * time.Hour
)

// programs differ in how their jobs can make room.
var programs = []struct {
	command string
	gpus    []int
	spec    func(*job.Spec)
	sim     func(*sim.Job)
}{
	{"single", []int{1}, func(*job.Spec) {}, func(*sim.Job) {}},
	{"stays", []int{1}, func(s *job.Spec) { s.NoPark = true }, func(j *sim.Job) { j.Parks = sim.CannotPark }},
	{"parks", []int{2, 3}, func(s *job.Spec) { s.Preemptible = job.PreemptByPark }, func(j *sim.Job) { j.Parks = sim.CanPark }},
	{"refuses", []int{2, 3}, func(s *job.Spec) { s.Preemptible = job.PreemptByPark }, func(j *sim.Job) { j.Parks = sim.CannotPark }},
	{"fixed", []int{2, 4}, func(*job.Spec) {}, func(*sim.Job) {}},
	{"saves", []int{2, 4}, saves(job.CheckpointTold), func(j *sim.Job) {
		j.Saves, j.Ends = sim.WhenTold, sim.Ends{Within: inMillis(job.Defaults().Grace), After: 4000}
	}},
	{"clock", []int{1, 2}, saves(job.Checkpoint(dayClock)), func(j *sim.Job) {
		j.Saves, j.Ends = sim.Saves(inMillis(dayClock)), sim.Ends{Within: inMillis(job.Defaults().Grace), After: 4000}
		j.Silent, j.Parks = true, sim.CannotPark
	}},
}

// newDay has an engine that knows which program cannot be parked.
func newDay(t *testing.T, seed uint64, rules sched.Rules, limit sched.Limit) *day {
	d := &day{rig: newRig(t, dayCards, func(c *Config) {
		c.Rules, c.HalfLife, c.Limits.Default, c.Submissions = rules, dayHalf, limit, true
		c.Parking = settings.Parking{All: true, MemoryMiB: dayHostMiB, FreeMiB: freeMiB(1 << 30)}
	})}
	rng := rand.New(rand.NewPCG(seed, 1))
	at := time.Duration(0)
	for i := range 60 {
		p := &programs[rng.IntN(len(programs))]
		j := &dayJob{Job: sim.Job{
			ID: strconv.Itoa(i + 1), User: []string{"ann", "bob"}[rng.IntN(2)], Submit: inMillis(at), Command: p.command,
			GPUs: p.gpus[rng.IntN(len(p.gpus))], Duration: inMillis(time.Minute << rng.IntN(7)), UsedMiB: int64(2048 << rng.IntN(4)),
		}}
		p.sim(&j.Job)
		j.left = inTime(j.Duration)
		row := &job.Job{ID: j.ID, User: j.User, Spec: spec(gpus(j.GPUs), p.spec)}
		row.Spec.Shell = p.command
		if j.Saves == 0 && rng.IntN(2) == 0 { // a replay knows no grace
			j.Limit, row.Spec.TimeLimit, row.Spec.Grace = inMillis(dayLimit), dayLimit, 0
		}
		d.jobs = append(d.jobs, j)
		d.later(start0.Add(at), func() {
			d.at().queue.Number([]*job.Job{row})
			d.at().queue.Submit([]*job.Job{row})
			d.unborn = append(d.unborn, j)
		})
		at += time.Duration(rng.IntN(600_000)) * time.Millisecond
		if p.command == "refuses" {
			refused := *row
			refused.Grant.GPUs = make([]int, j.GPUs)
			d.at().attempts.Parking.Refusals.Learn(&refused, waiting.KindOf(row), true)
		}
	}
	return d
}

// later has something come to pass, after what comes at the same time already.
func (d *day) later(at time.Time, do func()) *happening {
	i, _ := slices.BinarySearchFunc(d.coming, at, func(h happening, at time.Time) int { return cmp.Or(h.at.Compare(at), -1) })
	d.coming = slices.Insert(d.coming, i, happening{at: at, do: do})
	return &d.coming[i]
}

// live has the engine go through the day. It decides when something happens and when it
// asked for it, and again after it changed something.
func (d *day) live() {
	d.t.Helper()
	for steps := 0; d.done < len(d.jobs); steps++ {
		next := upToMillis(d.e.turn.round.decideAt())
		if next.IsZero() || len(d.coming) > 0 && d.coming[0].at.Before(next) {
			if len(d.coming) == 0 || steps > 10_000 {
				d.t.Fatalf("%d of %d jobs ended in %d steps, and nothing comes", d.done, len(d.jobs), steps)
			}
			next = d.coming[0].at
		}
		if next.After(d.now) {
			d.now = next
		}
		for len(d.coming) > 0 && !d.coming[0].at.After(d.now) {
			do := d.coming[0].do
			d.coming = d.coming[1:]
			do()
		}
		for more := true; more; more = d.obey() {
			d.look()
			d.step()
		}
		d.unborn = slices.DeleteFunc(d.unborn, func(j *dayJob) bool {
			refused := d.row(j.ID).Outcome == job.Infeasible
			if refused {
				d.done++
			}
			return refused || j.cards != nil
		})
	}
}

// obey carries out what the engine did, and reports whether that was anything.
func (d *day) obey() (acted bool) {
	did := d.did
	d.did = nil
	for _, act := range did {
		words := strings.Fields(act)
		switch {
		case words[0] == "go":
			j := d.find(func(j *dayJob) bool { return j.ID == words[1] })
			j.token = words[2]
			restart := time.Duration(0)
			if d.row(j.ID).Attempt.Number > 1 {
				restart = d.e.turn.cfg.Rules.Restart()
			}
			d.begins(j, restart)
		case words[0] == "resume":
			j := d.byToken(words[1])
			d.begins(j, d.cost(j).ResumeTime)
			d.later(j.works, func() { d.tells(j, keep.ParkNews{}) })
		case words[0] == "park" || words[0] == "stop":
			d.leaves(d.byToken(words[1]), words[0] == "park")
		default:
			continue
		}
		acted = true
	}
	return acted
}

func (d *day) byToken(token string) *dayJob {
	return d.find(func(j *dayJob) bool { return j.token == token })
}

func (d *day) find(is func(*dayJob) bool) *dayJob {
	d.t.Helper()
	i := slices.IndexFunc(d.jobs, is)
	if i < 0 {
		d.t.Fatal("no such job")
	}
	return d.jobs[i]
}

// cost is what it costs to park a job.
func (d *day) cost(j *dayJob) sched.Preempt {
	return d.e.turn.attempts.Parking.Pace.Park(int64(j.GPUs) * j.UsedMiB)
}

// begins puts a job on its cards, where it makes progress after a while.
func (d *day) begins(j *dayJob, after time.Duration) {
	j.began, j.works, j.cards = d.now, upToMillis(d.now.Add(after)), d.row(j.ID).Grant.GPUs
	for _, card := range j.cards {
		d.uses(j.ID, card, j.UsedMiB)
	}
	d.later(j.works.Add(j.left), func() {
		d.done++
		d.ends(j, keep.Record{})
	}).ends = j
}

// leaves has a job off its cards as soon as it is planned to be.
func (d *day) leaves(j *dayJob, parks bool) {
	d.coming = slices.DeleteFunc(d.coming, func(h happening) bool { return h.ends == j })
	j.left -= max(0, d.now.Sub(j.works))
	if !parks {
		record := aside()
		if j.Silent { // it saves nothing when it is told to stop
			record.Signal = int(syscall.SIGTERM)
			j.left += max(0, d.now.Sub(j.works)) % dayClock
		}
		d.later(d.now.Add(inTime(j.Ends.After)), func() { d.ends(j, record) })
		return
	}
	d.later(upToMillis(d.now.Add(d.cost(j).StopTime)), func() {
		d.vacates(j)
		d.tells(j, keep.ParkNews{Parked: true})
	})
}

func (d *day) ends(j *dayJob, record keep.Record) {
	d.vacates(j)
	j.token = ""
	d.hear(run.Ended, j.ID, record, false)
}

func (d *day) vacates(j *dayJob) {
	for _, card := range j.cards {
		d.clear(card)
	}
	j.segments = append(j.segments, sim.Segment{Start: inMillis(j.began.Sub(start0)), End: inMillis(d.now.Sub(start0)), Cards: j.cards})
}

func (d *day) tells(j *dayJob, n keep.ParkNews) {
	number := d.at().line.Roster.Get(j.ID).Attempt.Number
	d.at().observer.absorb(run.Event{Kind: run.Parking, Token: j.token, Job: j.ID, Attempt: number, Park: n})
}

// lived is the day's segments in the order of their starts, in words.
func (d *day) lived() []string {
	return d.inWords(func(i int) []sim.Segment { return d.jobs[i].segments })
}

// replay is the same of a replay.
func (d *day) replay(rules sched.Rules, limit sched.Limit) []string {
	w := &sim.Workload{Machine: sim.Machine{GPUs: dayCards, VRAMMiB: dayCardMiB}, DefaultLimit: limit}
	for _, j := range d.jobs {
		w.Jobs = append(w.Jobs, j.Job)
	}
	pace := sched.FirstPace
	replays, _ := sim.Compare(w, []sim.Policy{{Name: "live", Rules: rules, HalfLife: dayHalf}}, sim.Choices{Park: &sim.Parking{
		Who: sim.SingleGPU, Pace: &pace, MemoryMiB: dayHostMiB, Restart: inMillis(rules.Restart()),
	}}, 0, sim.Watch{})
	return d.inWords(func(i int) []sim.Segment { return replays[0].Result.Fates[i].Segments })
}

func (d *day) inWords(segments func(i int) []sim.Segment) []string {
	type line struct {
		from sim.Millis
		text string
	}
	var lines []line
	for i, j := range d.jobs {
		for _, s := range segments(i) {
			lines = append(lines, line{s.Start, fmt.Sprintf("%v to %v: job %s (%s, submitted at %v) on %v", inTime(s.Start), inTime(s.End), j.ID, j.Command, inTime(j.Submit), s.Cards)})
		}
	}
	slices.SortStableFunc(lines, func(a, b line) int { return cmp.Compare(a.from, b.from) })
	words := make([]string, len(lines))
	for i := range lines {
		words[i] = lines[i].text
	}
	return words
}

func inMillis(d time.Duration) sim.Millis { return sim.Millis(d.Milliseconds()) }

func inTime(m sim.Millis) time.Duration { return time.Duration(m) * time.Millisecond }

func upToMillis(t time.Time) time.Time {
	if t.IsZero() {
		return t
	}
	return t.Add(time.Millisecond - time.Nanosecond).Truncate(time.Millisecond)
}
