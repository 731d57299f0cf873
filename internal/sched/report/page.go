package report

import (
	"bytes"
	"cmp"
	_ "embed"
	"fmt"
	"html/template"
	"maps"
	"math"
	"slices"
	"strings"

	"berth/internal/sched/sim"
	"berth/internal/text"
)

//go:embed page.html
var pageHTML string

// pageData is what the page shows. The charts are HTML made of numbers and
// escaped text only.
type pageData struct {
	Source, Title, About, Hint string
	Colours, WaitColours       []int
	Policies                   []pagePolicy
	Tiles                      []tile
	Rows                       []Row
	Bands, Waits, Users        template.HTML
	UsersLeft                  string
	BandKey, Key               []keyEntry
	Preempts                   bool
	Closer                     bool   // there are closer views
	Begins                     string // what happens at 0 on the axes
}

type pagePolicy struct {
	Name, About string
	Colour      int
	Use         template.HTML
	Gantt       gantt
}

// tile shows one figure of all policies as bars.
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

type keyEntry struct {
	Name   string
	Colour int
}

// The last colour is for everything else; no policy has it.
const (
	colours       = 9
	policyColours = colours - 1
)

// Page shows the replays as one page of HTML.
func (r *Report) Page() ([]byte, error) {
	shape, err := template.New("page").Parse(pageHTML)
	if err != nil {
		panic("bug: " + err.Error())
	}
	w, replays := r.Work, r.Replays
	a := timeAxis(w, replays)
	paint := newPalette(w)
	data := pageData{
		Source: text.Line(w.Source), Title: text.Line(r.title()), About: r.about(),
		Tiles: tilesOf(replays), Rows: rowsOf(replays), Bands: bandChart(w, replays), Waits: waitChart(w, replays), BandKey: bandKey(),
		Key: paint.key, Hint: paint.hint, Begins: "the first submission",
	}
	if w.Begin > 0 {
		data.Begins = "the snapshot"
	}
	var left int
	if data.Users, left = userChart(w, replays); left > 0 {
		data.UsersLeft = fmt.Sprintf("Only the %d users with the most GPU time are shown, %s are not.", maxDots, text.CountGrouped(left, "other"))
	}
	for c := range colours {
		data.Colours = append(data.Colours, c)
	}
	for c := range waitBands {
		data.WaitColours = append(data.WaitColours, c)
	}
	mostWait := 1.0
	for i := range replays {
		mostWait = max(mostWait, slices.Max(queueOver(w, &replays[i].Result, a)))
		data.Preempts = data.Preempts || replays[i].Result.Preemptions > 0
	}
	for i := range replays {
		data.Policies = append(data.Policies, policyCharts(w, replays, i, a, mostWait, paint))
		data.Closer = data.Closer || data.Policies[i].Gantt.Closer != ""
	}
	var page bytes.Buffer
	if err := shape.Execute(&page, data); err != nil {
		return nil, fmt.Errorf("write the page: %w", err)
	}
	return page.Bytes(), nil
}

func policyCharts(w *sim.Workload, replays []sim.Replayed, i int, a axis, mostWait float64, paint palette) pagePolicy {
	r := &replays[i]
	p := pagePolicy{Name: r.Policy, Colour: i % policyColours}
	if known, err := sim.ParsePolicy(r.Policy); err == nil {
		p.About = known.About
	}
	p.Use = useChart(w, &r.Result, a, mostWait, p.Colour)
	p.Gantt = ganttChart(w, &r.Result, a, busiestStretch(replays, a), paint, min(maxBlocks, maxPageBlocks/len(replays)))
	return p
}

func (r *Report) about() string {
	about := "Replayed in virtual time with berth's own decisions; no job was run."
	if r.Asked != "" {
		about += " Flags: " + text.Line(r.Asked) + "."
	}
	about += assumedText(r.Work)
	if parked := r.parkText(); parked != "" {
		about += " " + parked
	}
	for _, bound := range r.Bounds() {
		about += " " + bound + "."
	}
	if seeds := r.Replays[0].Seeds; seeds > 0 {
		about += " The figures are " + seedsText(seeds) + "; the charts show the original trace."
	}
	return about
}

// tileFigures are the most important figures.
var tileFigures = []string{"wait_mean_s", "wait_max_s", "bounded_slowdown_mean", "makespan_s", "gpu_useful", "worst_over_median_user"}

func tilesOf(replays []sim.Replayed) []tile {
	var tiles []tile
	for _, f := range sim.Figures() {
		if !slices.Contains(tileFigures, f.Name) || f.Name == "worst_over_median_user" && replays[0].Users < 2 {
			continue
		}
		t := tile{Title: f.Title, Better: "lower is better"}
		if slices.Contains(moreIsBetter, f.Name) {
			t.Better = "higher is better"
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

// palette gives the jobs their colours: by user or, if there is only one, by
// number of GPUs.
type palette struct {
	byUser map[string]int // nil: by number of GPUs
	key    []keyEntry
	hint   string
}

func newPalette(w *sim.Workload) palette {
	area := map[string]float64{}
	sizes := map[int]bool{}
	for i := range w.Jobs {
		j := &w.Jobs[i]
		area[j.User] += float64(j.GPUs) * w.Machine.Part(j) * j.Duration.Seconds()
		sizes[min(j.GPUs, colours)] = true
	}
	if len(area) < 2 {
		p := palette{hint: "Colours show the number of GPUs of a job."}
		for gpus := 1; gpus <= colours; gpus++ {
			if !sizes[gpus] {
				continue
			}
			name := text.CountGrouped(gpus, "GPU")
			if gpus == colours {
				name += " or more"
			}
			p.key = append(p.key, keyEntry{name, gpus - 1})
		}
		return p
	}
	p := palette{byUser: map[string]int{}, hint: "Colours show users, those with the most GPU time first."}
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
	users := slices.Collect(maps.Keys(area))
	slices.SortFunc(users, func(a, b string) int {
		return cmp.Or(cmp.Compare(area[b], area[a]), strings.Compare(a, b))
	})
	return users
}

// maxWord is how many columns of a name are shown.
const maxWord = 41

func userText(user string) string {
	if user == "" {
		return "(no user)"
	}
	return text.Cut(text.Line(user), maxWord)
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
