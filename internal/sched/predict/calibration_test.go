package predict

import (
	"cmp"
	"encoding/csv"
	"fmt"
	"math"
	"math/rand"
	"os"
	"slices"
	"strconv"
	"testing"
	"time"
)

// traced is a job of a trace.
type traced struct {
	past        Past
	submit, end time.Duration
}

// readTrace reads the columns submit_s, duration_s, gpus, user, status and, where
// there is one, command.
func readTrace(path string) ([]traced, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	rows, err := csv.NewReader(file).ReadAll()
	if err != nil || len(rows) == 0 {
		return nil, fmt.Errorf("read %s: %w", path, err)
	}
	var jobs []traced
	for _, row := range rows[1:] {
		cell := func(name string) string {
			if i := slices.Index(rows[0], name); i >= 0 {
				return row[i]
			}
			return ""
		}
		seconds := func(name string) time.Duration {
			s, _ := strconv.ParseFloat(cell(name), 64)
			return time.Duration(s * float64(time.Second))
		}
		gpus, _ := strconv.Atoi(cell("gpus"))
		jobs = append(jobs, traced{
			past: Past{
				User: cell("user"), Command: cell("command"), GPUs: gpus, Ran: seconds("duration_s"),
				OK: cell("status") == "Pass" || cell("status") == "",
			},
			submit: seconds("submit_s"), end: seconds("submit_s") + seconds("duration_s"),
		})
	}
	slices.SortStableFunc(jobs, func(a, b traced) int { return cmp.Compare(a.submit, b.submit) })
	return jobs, nil
}

// score counts how estimates compare with what came.
type score struct {
	asked, guessed, within, below, above int
	factors, widths                      []float64
	users                                map[string]*[2]int // of each: estimates that held, estimates
}

func (s *score) note(user string, g Estimate, ran time.Duration) {
	s.asked++
	if g.Source == FromNothing {
		return
	}
	s.guessed++
	if s.users[user] == nil {
		s.users[user] = &[2]int{}
	}
	s.users[user][1]++
	real := math.Exp(logOf(ran))
	switch {
	case real < g.Low.Seconds()-0.5:
		s.below++
	case real > g.High.Seconds()+0.5:
		s.above++
	default:
		s.within++
		s.users[user][0]++
	}
	s.factors = append(s.factors, math.Exp(math.Abs(math.Log(real/max(1, g.Mid.Seconds())))))
	s.widths = append(s.widths, g.High.Seconds()/max(1, g.Mid.Seconds()))
}

func quantile(of []float64, q float64) float64 {
	if len(of) == 0 {
		return math.NaN()
	}
	sorted := slices.Sorted(slices.Values(of))
	return sorted[int(q*float64(len(sorted)-1))]
}

// ofUsers is the share that held, each user counting as much as another.
func (s *score) ofUsers() float64 {
	sum := 0.0
	for _, u := range s.users {
		sum += 100 * float64(u[0]) / float64(u[1])
	}
	return sum / float64(max(1, len(s.users)))
}

func (s *score) share(n int) float64 { return 100 * float64(n) / float64(max(1, s.guessed)) }

// replay asks for every job when it is submitted, and adds it when it is over, as
// if none had to wait.
func replay(jobs []traced, wellOnly bool) *score {
	ends := slices.SortedStableFunc(slices.Values(jobs), func(a, b traced) int { return cmp.Compare(a.end, b.end) })
	book, of := NewBook(), &score{users: map[string]*[2]int{}}
	for _, j := range jobs {
		for len(ends) > 0 && ends[0].end <= j.submit {
			book.Add(ends[0].past)
			ends = ends[1:]
		}
		if j.past.OK || !wellOnly {
			of.note(j.past.User, book.Duration(Ask{User: j.past.User, Command: j.past.Command, GPUs: j.past.GPUs}), j.past.Ran)
		}
	}
	return of
}

// BenchmarkCalibration measures how good estimates are on a trace of one's own:
// BERTH_TRACE=trace.csv go test ./internal/sched/predict -run - -bench Calibration
func BenchmarkCalibration(b *testing.B) {
	path := os.Getenv("BERTH_TRACE")
	if path == "" {
		b.Skip("BERTH_TRACE names no trace")
	}
	jobs, err := readTrace(path)
	if err != nil {
		b.Fatal(err)
	}
	for _, wellOnly := range []bool{false, true} {
		b.Run(map[bool]string{false: "all", true: "ended-well"}[wellOnly], func(b *testing.B) {
			var s *score
			for b.Loop() {
				s = replay(jobs, wellOnly)
			}
			b.ReportMetric(float64(s.asked), "jobs")
			b.ReportMetric(float64(s.guessed), "guessed")
			b.ReportMetric(s.share(s.within), "%within")
			b.ReportMetric(s.ofUsers(), "%within-of-users")
			b.ReportMetric(s.share(s.below), "%below-low")
			b.ReportMetric(s.share(s.above), "%above-high")
			b.ReportMetric(quantile(s.factors, 0.5), "median-factor")
			b.ReportMetric(quantile(s.factors, 0.9), "p90-factor")
			b.ReportMetric(quantile(s.widths, 0.5), "median-high/mid")
		})
	}
}

// If the runs of commands scatter as they are believed to, the intervals hold as
// often as they say, for few runs and for many.
func TestNineOfTenLieWithin(t *testing.T) {
	chance := rand.New(rand.NewSource(1))
	for _, runs := range []int{1, 2, 4, 16} {
		within, below, above := 0, 0, 0
		const trials = 4000
		for range trials {
			book, scatter := NewBook(), float64(sameCommand)
			// What is believed is itself uncertain by as much as three runs leave it.
			sum := 0.0
			for range priorRuns {
				x := chance.NormFloat64()
				sum += x * x
			}
			scatter *= math.Sqrt(priorRuns / sum)
			draw := func() time.Duration {
				return time.Duration(3e4 * math.Exp(scatter*chance.NormFloat64()) * float64(time.Second))
			}
			for range runs {
				book.Add(Past{User: "ann", Command: "train.py", GPUs: 1, Ran: draw(), OK: true})
			}
			g, real := book.Duration(Ask{User: "ann", Command: "train.py", GPUs: 1}), draw()
			switch {
			case real < g.Low:
				below++
			case real > g.High:
				above++
			default:
				within++
			}
		}
		if share := float64(within) / trials; share < 0.87 || share > 0.93 {
			t.Errorf("after %d runs %.3f of estimates hold (%d below, %d above), want 0.9", runs, share, below, above)
		}
	}
}
