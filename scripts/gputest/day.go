package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"berth/internal/api"
)

// A day of a small group, scaled down to four minutes on one GPU: a few long jobs
// that can be parked, and many short ones with a higher priority. It runs live
// without parking and with it, and beside that is what berth simulate says of the
// same jobs with the cost that was measured here.

// dayLimit bounds both runs and what comes before them.
const dayLimit = 13 * time.Minute

// The day. One job has the GPU at a time.
const (
	daySpan   = 190 * time.Second // the last job is submitted by then
	dayShort  = 40
	dayLong   = 4
	dayMiB    = 256 // of each job
	dayMinRun = time.Second
)

// dayJob is one job of the day.
type dayJob struct {
	at    time.Duration
	work  time.Duration // what the program does, without its start
	long  bool
	alone time.Duration // how long it takes alone on the GPU
}

// theDay is the same on every machine.
func theDay() []dayJob {
	rng := rand.New(rand.NewPCG(4, 2026))
	between := func(low, high time.Duration) time.Duration {
		return (low + time.Duration(rng.Int64N(int64(high-low)))).Round(100 * time.Millisecond)
	}
	var jobs []dayJob
	for i := range dayLong {
		jobs = append(jobs, dayJob{at: time.Duration(i) * daySpan / dayLong, work: between(28*time.Second, 38*time.Second), long: true})
	}
	for range dayShort {
		jobs = append(jobs, dayJob{at: between(0, daySpan), work: between(300*time.Millisecond, 1500*time.Millisecond)})
	}
	slices.SortFunc(jobs, func(a, b dayJob) int { return int(a.at - b.at) })
	return jobs
}

// dayResult is one way to run the day.
type dayResult struct {
	Name                          string
	LiveMeanS, LiveP95S           float64
	PredictedMeanS, PredictedP95S float64
	ShortMeanS, LongMeanS         float64 // live, of the short jobs and of the long ones
	Parkings                      int
	Pieces                        []piece
}

// piece is a job on the GPU, in seconds since the beginning of the day.
type piece struct {
	From, To float64
	Long     bool
}

// liveDay runs the day both ways, and writes the figures and a picture.
func liveDay(ctx context.Context, h *host, to string, out io.Writer) {
	t := &trial{host: h, name: "day", dir: filepath.Join(h.dir, "day")}
	defer t.clean()
	need(os.Mkdir(t.dir, 0o755))
	jobs := theDay()
	cost := t.measureDay(ctx, jobs)
	fmt.Fprintf(out, "parking costs %.2f s each way\n", cost.Seconds())
	var results []dayResult
	for _, parks := range []bool{false, true} {
		r := t.runDay(ctx, jobs, parks)
		t.predictDay(ctx, jobs, &r, parks, cost)
		fmt.Fprintf(out, "%-16s mean wait %5.1f s live, %5.1f s predicted (%+.0f %%); 95 %% waited less than %.1f s live, %.1f s predicted; short jobs %.1f s, long ones %.1f s; parked %d times\n",
			r.Name, r.LiveMeanS, r.PredictedMeanS, 100*(r.PredictedMeanS/r.LiveMeanS-1), r.LiveP95S, r.PredictedP95S, r.ShortMeanS, r.LongMeanS, r.Parkings)
		results = append(results, r)
	}
	fmt.Fprintf(out, "%d jobs wait %.1f times as long without parking\n", len(jobs), results[0].LiveMeanS/results[1].LiveMeanS)
	if to == "" {
		return
	}
	need(os.WriteFile(to+".json", must(json.MarshalIndent(results, "", " ")), 0o644))
	need(os.WriteFile(to+".svg", []byte(drawDay(h.Card.Name, results)), 0o644))
}

// program is what a job of the day runs.
func (j dayJob) program(t *trial) program {
	return program{with: t.bare(), mib: dayMiB, hold: j.work, steps: true}
}

// tookPattern finds how long a move took in what berth show says.
var tookPattern = regexp.MustCompile(`(?:memory|gpu\d+) in ([0-9.]+) s`)

// measureDay finds how long the programs take alone, and what it costs to park one.
func (t *trial) measureDay(ctx context.Context, jobs []dayJob) time.Duration {
	d := must(t.onCard(ctx, "--poll", "0.1"))
	defer d.stop()
	// Several of each: the first loads files from the disk.
	took := func(work time.Duration) time.Duration {
		var times []time.Duration
		for range 3 {
			id := must(d.run(ctx, dayJob{work: work}.program(t)))
			ends := must(d.allWell(ctx, id))
			times = append(times, ends[0].EndedAt.Sub(*ends[0].SubmittedAt))
		}
		return slices.Min(times)
	}
	low := took(time.Second)
	high := took(4 * time.Second)
	for i := range jobs {
		jobs[i].alone = low + time.Duration(float64(high-low)*(jobs[i].work-time.Second).Seconds()/3)
	}
	t.say("a job of 1 s takes %v alone, one of 4 s %v", low, high)
	id := must(d.run(ctx, dayJob{work: 20 * time.Second}.program(t), "--preemptible"))
	need(d.ready(ctx, id))
	for range 2 {
		must(d.berth(ctx, "park", id))
		must(d.berth(ctx, "unpark", id))
	}
	d.act(ctx, api.ActCancel, id)
	events := must(d.berth(ctx, "show", id))
	var sum float64
	var n int
	for _, found := range tookPattern.FindAllStringSubmatch(events, -1) {
		if s, err := strconv.ParseFloat(found[1], 64); err == nil {
			sum, n = sum+s, n+1
		}
	}
	if n == 0 {
		need(fmt.Errorf("berth show says nothing of how long parking took:\n%s", events))
	}
	return time.Duration(sum / float64(n) * float64(time.Second))
}

// runDay runs the day on a daemon of its own.
func (t *trial) runDay(ctx context.Context, jobs []dayJob, parks bool) dayResult {
	r := dayResult{Name: "without parking"}
	flags := []string{"--poll", "0.1", "--min-run", dayMinRun.String(), "--parking", "off"}
	if parks {
		r.Name, flags[5] = "with parking", "preemptible"
	}
	d := must(t.onCard(ctx, flags...))
	defer d.stop()
	began := time.Now()
	ids := make([]string, len(jobs))
	for i, j := range jobs {
		select {
		case <-ctx.Done():
			need(ctx.Err())
		case <-time.After(time.Until(began.Add(j.at))):
		}
		more := []string{"--preemptible", "--name", "long"}
		if !j.long {
			more = []string{"--priority", "1", "--name", "short"}
		}
		ids[i] = must(d.run(ctx, j.program(t), more...))
	}
	ends := must(d.allWell(ctx, ids...))
	if len(t.wrong) > 0 {
		need(errors.New(strings.Join(t.wrong, "; ")))
	}
	var waits, short, long []float64
	for i, e := range ends {
		wait := e.EndedAt.Sub(*e.SubmittedAt).Seconds() - jobs[i].alone.Seconds()
		waits = append(waits, max(0, wait))
		if r.Parkings += e.Parkings; jobs[i].long {
			long = append(long, max(0, wait))
		} else {
			short = append(short, max(0, wait))
		}
		for _, p := range d.pieces(ctx, ids[i], began) {
			p.Long = jobs[i].long
			r.Pieces = append(r.Pieces, p)
		}
	}
	r.LiveMeanS, r.ShortMeanS, r.LongMeanS = mean(waits), mean(short), mean(long)
	slices.Sort(waits)
	r.LiveP95S = waits[len(waits)*95/100]
	return r
}

// pieces are when a job was on the GPU.
func (d *daemon) pieces(ctx context.Context, id string, began time.Time) []piece {
	v := must(d.job(ctx, id))
	var list []piece
	from := v.StartedAt.Sub(began).Seconds()
	for _, e := range v.Events {
		switch at := e.Time.Sub(began).Seconds(); e.Kind {
		case "parked":
			list = append(list, piece{From: from, To: at})
		case "resumed":
			from = at
		}
	}
	return append(list, piece{From: from, To: v.EndedAt.Sub(began).Seconds()})
}

func mean(values []float64) (m float64) {
	for _, v := range values {
		m += v / float64(len(values))
	}
	return m
}

// predictDay asks berth simulate about the same day.
func (t *trial) predictDay(ctx context.Context, jobs []dayJob, r *dayResult, parks bool, cost time.Duration) {
	trace := filepath.Join(t.dir, "day.csv")
	var b strings.Builder
	b.WriteString("submit_s,duration_s,priority\n")
	for _, j := range jobs {
		fmt.Fprintf(&b, "%.3f,%.3f,%d\n", j.at.Seconds(), j.alone.Seconds(), map[bool]int{false: 1, true: 0}[j.long])
	}
	need(os.WriteFile(trace, []byte(b.String()), 0o644))
	args := []string{"simulate", trace, "--json", "--gpus", "1", "--policy", "default", "--min-run", dayMinRun.String()}
	if parks {
		args = append(args, "--park-cost", fmt.Sprintf("%.3f", cost.Seconds()), "--park-memory", "0")
	}
	text, err := t.command(ctx, t.program("berth"), args...).Output()
	needTo("berth simulate", err)
	var report []struct {
		Mean float64 `json:"wait_mean_s"`
		P95  float64 `json:"wait_p95_s"`
	}
	if err := json.Unmarshal(text, &report); err != nil || len(report) != 1 {
		need(fmt.Errorf("berth simulate printed %.200q", text))
	}
	r.PredictedMeanS, r.PredictedP95S = report[0].Mean, report[0].P95
}

// drawDay draws both days one below the other: what was on the GPU, and how long
// jobs waited.
func drawDay(card string, results []dayResult) string {
	const width, left, row = 900.0, 20.0, 90.0
	last := 0.0
	for _, r := range results {
		for _, p := range r.Pieces {
			last = max(last, p.To)
		}
	}
	x := func(s float64) float64 { return left + s/last*(width-2*left) }
	var b strings.Builder
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %.0f %.0f" font-family="sans-serif" font-size="13">`+"\n", width, 40+row*float64(len(results)))
	fmt.Fprintf(&b, `<rect width="100%%" height="100%%" fill="#fff"/>`+"\n")
	fmt.Fprintf(&b, `<text x="%.0f" y="20">One %s, %d jobs in %.0f s: long jobs (dark) and short ones (light)</text>`+"\n", left, escape(card), dayLong+dayShort, daySpan.Seconds())
	for i, r := range results {
		y := 40 + row*float64(i)
		fmt.Fprintf(&b, `<text x="%.0f" y="%.0f">%s: mean wait %.1f s, predicted %.1f s</text>`+"\n", left, y+14, r.Name, r.LiveMeanS, r.PredictedMeanS)
		for _, p := range r.Pieces {
			colour := "#f0a63c"
			if p.Long {
				colour = "#2b4c7e"
			}
			fmt.Fprintf(&b, `<rect x="%.1f" y="%.0f" width="%.1f" height="40" fill="%s"/>`+"\n", x(p.From), y+24, max(0.5, x(p.To)-x(p.From)), colour)
		}
	}
	b.WriteString("</svg>\n")
	return b.String()
}

func escape(s string) string {
	return strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;").Replace(s)
}
