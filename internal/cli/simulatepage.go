package cli

import (
	"bytes"
	_ "embed"
	"fmt"
	"html/template"
	"math"
	"slices"
	"strings"

	"berth/internal/sim"
)

//go:embed simulate.html
var simulatePage string

var pageTemplate = template.Must(template.New("page").Parse(simulatePage))

// pageData is what the page shows. Charts are made here, from numbers and
// escaped words alone.
type pageData struct {
	Source, Title, About, Hint string
	Colours                    []int
	Policies                   []pagePolicy
	Rows                       []pageRow
	Waits                      template.HTML
	Key                        []keyEntry
}

type pagePolicy struct {
	Name, About string
	Colour      int
	Use, Gantt  template.HTML
}

type pageRow struct {
	Title, Bound string
	Cells        []pageCell
}

type pageCell struct {
	Text string
	Best bool
}

type keyEntry struct {
	Name   string
	Colour int
}

// replaysPage is the replays as one page that asks nothing of anybody.
func replaysPage(w *workload, replays []replayed) ([]byte, error) {
	axis := timeAxis(w, replays)
	paint := newPalette(w)
	data := pageData{
		Source: printable(w.source), Title: printable(workloadText(w, replays)),
		Rows: pageRows(replays), Waits: waitChart(w, replays), Key: paint.key, Hint: paint.hint,
	}
	data.About = "Replayed in virtual time with berth's own decisions."
	if seeds := replays[0].Seeds; seeds > 0 {
		data.About += " The table has " + seedsText(seeds) + "; the charts show the trace as it is."
	}
	for c := range colours {
		data.Colours = append(data.Colours, c)
	}
	for i := range replays {
		r := &replays[i]
		p := pagePolicy{Name: r.Policy, Colour: i % (colours - 1)}
		if known, err := sim.ParsePolicy(r.Policy); err == nil {
			p.About = known.About
		}
		p.Use = useChart(w, &r.result, axis, p.Colour)
		p.Gantt = ganttChart(w, &r.result, axis, paint)
		data.Policies = append(data.Policies, p)
	}
	var page bytes.Buffer
	if err := pageTemplate.Execute(&page, data); err != nil {
		return nil, fmt.Errorf("write the page: %w", err)
	}
	return page.Bytes(), nil
}

// lessIsBetter names the figures in which a policy can win by having little;
// in those of moreIsBetter by having much. The others are nobody's merit.
var (
	lessIsBetter = []string{"wait_mean_s", "wait_p50_s", "wait_p95_s", "wait_p99_s", "wait_max_s", "bounded_slowdown_mean", "flow_mean_s", "makespan_s", "fragmentation", "worst_over_median_user"}
	moreIsBetter = []string{"gpu_useful", "jain_users"}
)

func pageRows(replays []replayed) []pageRow {
	var rows []pageRow
	for _, f := range sim.Figures() {
		row := pageRow{Title: f.Title}
		values := make([]float64, len(replays))
		for i := range replays {
			values[i] = *f.Of(&replays[i].Metrics)
		}
		best := math.NaN()
		switch {
		case slices.Min(values) == slices.Max(values):
		case slices.Contains(lessIsBetter, f.Name):
			best = slices.Min(values)
		case slices.Contains(moreIsBetter, f.Name):
			best = slices.Max(values)
		}
		for i, v := range values {
			row.Cells = append(row.Cells, pageCell{Text: figureCell(&f, &replays[i]), Best: v == best})
		}
		if f.Bound != nil {
			row.Bound = figureText(f.Unit, *f.Bound(&replays[0].Metrics))
		}
		rows = append(rows, row)
	}
	return rows
}

// colours is how many there are; the last is for everything else.
const colours = 9

// palette gives the jobs their colours: by user, or where there is only one,
// by how many cards they take.
type palette struct {
	byUser map[string]int // nil: by the number of cards
	key    []keyEntry
	hint   string
}

func newPalette(w *workload) palette {
	area := map[string]float64{}
	sizes := map[int]bool{}
	for i := range w.jobs {
		j := &w.jobs[i]
		area[j.User] += float64(j.GPUs) * w.machine.Part(j) * j.Duration.Seconds()
		sizes[min(j.GPUs, colours)] = true
	}
	if len(area) < 2 {
		p := palette{hint: "Colours are for how many cards a job takes."}
		for gpus := 1; gpus <= colours; gpus++ {
			if !sizes[gpus] {
				continue
			}
			name := plural(gpus, "GPU")
			if gpus == colours {
				name += " or more"
			}
			p.key = append(p.key, keyEntry{name, gpus - 1})
		}
		return p
	}
	p := palette{byUser: map[string]int{}, hint: "Colours are for users, those with most GPU time first."}
	for i, user := range byArea(area) {
		if i == colours-1 {
			p.key = append(p.key, keyEntry{fmt.Sprintf("%d others", len(area)-i), i})
			break
		}
		p.byUser[user] = i
		p.key = append(p.key, keyEntry{userText(user), i})
	}
	return p
}

func byArea(area map[string]float64) []string {
	users := make([]string, 0, len(area))
	for user := range area {
		users = append(users, user)
	}
	slices.SortFunc(users, func(a, b string) int {
		if area[a] != area[b] {
			if area[a] > area[b] {
				return -1
			}
			return 1
		}
		return strings.Compare(a, b)
	})
	return users
}

func userText(user string) string {
	if user == "" {
		return "(no user)"
	}
	return printable(clip(user))
}

func (p *palette) of(j *sim.Job) int {
	if p.byUser == nil {
		return min(j.GPUs, colours) - 1
	}
	if c, own := p.byUser[j.User]; own {
		return c
	}
	return colours - 1
}
