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
	Colours, WaitColours       []int
	Policies                   []pagePolicy
	Tiles                      []tile
	Rows                       []pageRow
	Bands, Waits, Users        template.HTML
	UsersLeft                  string
	BandKey, Key               []keyEntry
	Preempts                   bool
	Closer                     bool   // some chart is drawn again, closer
	Begins                     string // what 0 on the axes is
}

type pagePolicy struct {
	Name, About string
	Colour      int
	Use         template.HTML
	Gantt       gantt
}

// tile is one figure of all policies as bars.
type tile struct {
	Title, Better string
	Bars          []tileBar
}

type tileBar struct {
	Name, Text string
	Colour     int
	Percent    float64
	Best       bool
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

// Colours: the last is for everything else, and no policy's.
const (
	colours       = 9
	policyColours = colours - 1
)

// replaysPage is the replays as one page that asks nothing of anybody.
func replaysPage(w *workload, replays []replayed) ([]byte, error) {
	a := timeAxis(w, replays)
	paint := newPalette(w)
	data := pageData{
		Source: printable(w.source), Title: printable(workloadText(w, replays)), About: aboutText(w, replays),
		Tiles: tilesOf(replays), Rows: pageRows(replays), Bands: bandChart(w, replays), Waits: waitChart(w, replays), BandKey: bandKey(),
		Key: paint.key, Hint: paint.hint, Begins: "the first submission",
	}
	if w.begin > 0 {
		data.Begins = "the snapshot"
	}
	var left int
	if data.Users, left = userChart(w, replays); left > 0 {
		data.UsersLeft = fmt.Sprintf("The %d users with most GPU time are drawn, %s are not.", maxDots, plural(left, "other"))
	}
	for c := range colours {
		data.Colours = append(data.Colours, c)
	}
	for c := range waitBands {
		data.WaitColours = append(data.WaitColours, c)
	}
	mostWait := 1.0
	for i := range replays {
		mostWait = max(mostWait, slices.Max(queueOver(w, &replays[i].result, a)))
		data.Preempts = data.Preempts || replays[i].result.Preemptions > 0
	}
	for i := range replays {
		data.Policies = append(data.Policies, policyCharts(w, replays, i, a, mostWait, paint))
		data.Closer = data.Closer || data.Policies[i].Gantt.Closer != ""
	}
	var page bytes.Buffer
	if err := pageTemplate.Execute(&page, data); err != nil {
		return nil, fmt.Errorf("write the page: %w", err)
	}
	return page.Bytes(), nil
}

func policyCharts(w *workload, replays []replayed, i int, a axis, mostWait float64, paint palette) pagePolicy {
	r := &replays[i]
	p := pagePolicy{Name: r.Policy, Colour: i % policyColours}
	if known, err := sim.ParsePolicy(r.Policy); err == nil {
		p.About = known.About
	}
	p.Use = useChart(w, &r.result, a, mostWait, p.Colour)
	p.Gantt = ganttChart(w, &r.result, a, busiestStretch(replays, a), paint, min(maxBlocks, maxPageBlocks/len(replays)))
	return p
}

func aboutText(w *workload, replays []replayed) string {
	about := "Replayed in virtual time with berth's own decisions; no job ran."
	if w.asked != "" {
		about += " Asked for with " + printable(w.asked) + "."
	}
	if w.assumed != "" {
		about += " " + w.assumed
	}
	if seeds := replays[0].Seeds; seeds > 0 {
		about += " The figures are " + seedsText(seeds) + "; the charts show the trace as it is."
	}
	return about
}

// lessIsBetter names the figures in which a policy can win by having little;
// in those of moreIsBetter by having much. The others are nobody's merit.
var (
	lessIsBetter = []string{"wait_mean_s", "wait_p50_s", "wait_p95_s", "wait_p99_s", "wait_max_s", "bounded_slowdown_mean", "flow_mean_s", "makespan_s", "fragmentation", "worst_over_median_user", "ooms"}
	moreIsBetter = []string{"gpu_useful", "jain_users"}
)

// tileFigures are the figures that people ask for first.
var tileFigures = []string{"wait_mean_s", "wait_max_s", "bounded_slowdown_mean", "makespan_s", "gpu_useful", "worst_over_median_user"}

func tilesOf(replays []replayed) []tile {
	var tiles []tile
	for _, f := range sim.Figures() {
		if !slices.Contains(tileFigures, f.Name) || f.Name == "worst_over_median_user" && replays[0].Users < 2 {
			continue
		}
		t := tile{Title: f.Title, Better: "less is better"}
		if slices.Contains(moreIsBetter, f.Name) {
			t.Better = "more is better"
		}
		values, best := valuesOf(&f, replays)
		most := slices.Max(values)
		if f.Unit == sim.Percent {
			most = 1
		}
		for i, v := range values {
			t.Bars = append(t.Bars, tileBar{
				Name: replays[i].Policy, Text: figureText(f.Unit, v), Colour: i % policyColours,
				Percent: math.Round(1000*v/max(most, 1e-12)) / 10, Best: v == best,
			})
		}
		tiles = append(tiles, t)
	}
	return tiles
}

// valuesOf are a figure's values and the best of them: not a number where it
// is nobody's merit, or everybody's.
func valuesOf(f *sim.Figure, replays []replayed) (values []float64, best float64) {
	for i := range replays {
		values = append(values, *f.Of(&replays[i].Metrics))
	}
	switch {
	case slices.Min(values) == slices.Max(values):
	case slices.Contains(lessIsBetter, f.Name):
		return values, slices.Min(values)
	case slices.Contains(moreIsBetter, f.Name):
		return values, slices.Max(values)
	}
	return values, math.NaN()
}

func pageRows(replays []replayed) []pageRow {
	var rows []pageRow
	for _, f := range shownFigures(replays) {
		row := pageRow{Title: f.Title}
		values, best := valuesOf(&f, replays)
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
