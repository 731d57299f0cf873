package render

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"berth/internal/api"
	"berth/internal/text"
)

func GPUTable(gpus []api.GPU, now time.Time) *text.Table {
	t := &text.Table{
		Columns: []text.Column{
			{Title: "GPU", Right: true}, {Title: "NAME"}, {Title: "MEMORY", Right: true}, {Title: "EXTERNAL", Right: true},
			{Title: "ALLOCATED", Right: true}, {Title: "UTIL", Right: true}, {Title: "TEMP", Right: true, Shy: true},
			{Title: "POWER", Right: true, Shy: true}, {Title: "HEALTH"}, {Title: "JOBS"},
		},
		Concessions: []text.Concession{
			{Title: "HEALTH", To: 40}, {Title: "JOBS", To: 24}, {Title: "TEMP", To: 0}, {Title: "POWER", To: 0}, {Title: "NAME", To: 16}, {Title: "ALLOCATED", To: 0}, {Title: "HEALTH", To: 32}, {Title: "JOBS", To: 20}, {Title: "EXTERNAL", To: 0}, {Title: "NAME", To: 10}, {Title: "HEALTH", To: 12}, {Title: "JOBS", To: 12}, {Title: "NAME", To: 0},
		},
	}
	whole := -1
	for _, g := range sortedByParent(gpus) {
		if g.Parent == nil {
			whole = g.Index
		} else if *g.Parent != whole {
			whole = *g.Parent
			t.Add(text.Cell{Text: strconv.Itoa(whole)}, text.Cell{Text: cardName(g)}, text.Cell{}, text.Cell{}, text.Cell{}, text.Cell{}, text.Cell{}, text.Cell{}, text.Cell{Text: "split by MIG"}, text.Cell{})
		}
		t.Add(text.Cell{Text: strconv.Itoa(g.Index)}, text.Cell{Text: gpuName(g)}, text.Cell{Text: text.GiB(g.UsedMiB) + "/" + text.GiB(g.TotalMiB) + "G"},
			text.Cell{Text: text.GiB(g.ForeignMiB) + "G"}, text.Cell{Text: text.GiB(g.BudgetMiB) + "G"}, text.Cell{Text: Measured(g.Util, "%", "-")},
			text.Cell{Text: Measured(g.TemperatureC, "C", "")}, text.Cell{Text: powerText(g)}, healthCell(g, now), text.Cell{Text: gpuJob(g, 0, now)})
		for i := 1; i < len(g.Jobs)+len(g.Parked); i++ { // a row each, so that none is cut off
			row := make([]text.Cell, len(t.Columns))
			row[len(row)-1].Text = gpuJob(g, i, now)
			t.Add(row...)
		}
	}
	return t
}

// sortedByParent puts MIG parts where their GPU would be.
func sortedByParent(gpus []api.GPU) []api.GPU {
	place := func(g api.GPU) int {
		if g.Parent != nil {
			return *g.Parent
		}
		return g.Index
	}
	sorted := slices.Clone(gpus)
	slices.SortStableFunc(sorted, func(a, b api.GPU) int { return place(a) - place(b) })
	return sorted
}

// cardName is the name of a GPU, or of the GPU that a MIG part belongs to.
func cardName(g api.GPU) string {
	name, _, _ := strings.Cut(strings.TrimPrefix(g.Name, "NVIDIA "), " MIG ")
	return name
}

// gpuName is the name in a row. MIG parts are indented below their GPU.
func gpuName(g api.GPU) string {
	switch {
	case g.Parent != nil && g.Profile != "":
		return "  MIG " + g.Profile
	case g.Parent != nil:
		return "  " + strings.TrimPrefix(g.Name, "NVIDIA ")
	}
	return strings.TrimPrefix(g.Name, "NVIDIA ")
}

func OrDash(text string) string {
	return cmp.Or(text, "-")
}

// Measured writes a reading of the driver, or none if there is no reading.
func Measured(value *float64, unit, none string) string {
	if value == nil {
		return none
	}
	return fmt.Sprintf("%.0f%s", *value, unit)
}

func powerText(g api.GPU) string {
	if g.PowerW == nil || g.PowerLimitW == nil {
		return Measured(g.PowerW, "W", "")
	}
	return fmt.Sprintf("%.0f/%.0fW", *g.PowerW, *g.PowerLimitW)
}

// healthCell says whether jobs may start on a GPU, and if not, why and since
// when: "quarantined 3m12s: Xid 79 (the card has fallen off the bus)".
func healthCell(g api.GPU, now time.Time) text.Cell {
	written, colour := g.Health, text.Green
	switch {
	case g.Health == "quarantined":
		colour = text.Red
	case g.Health != "ok" || g.Paused || g.Stale:
		colour = text.Yellow
	}
	if g.Health != "ok" && !g.HealthSince.IsZero() {
		written += " " + text.Span(now.Sub(g.HealthSince))
	}
	if g.HealthReason != "" && (g.Health != "ok" || g.HealthReason != g.StaleReason) {
		written += ": " + g.HealthReason
	}
	var more []string
	if g.Paused {
		more = append(more, "paused")
	}
	switch {
	case g.LetGoUntil != nil:
		more = append(more, "driver released until "+g.LetGoUntil.Local().Format("15:04"))
	case g.Health != "ok": // that says enough
	case g.Stale && g.StaleReason != "":
		more = append(more, "no recent reading: "+g.StaleReason)
	case g.Stale:
		more = append(more, "no recent reading")
	}
	return text.Cell{Text: strings.Join(append([]string{written}, more...), ", "), Paint: colour}
}

// gpuJob is one of the jobs on a GPU, or of the parked ones that belong to it;
// empty if there are not so many.
func gpuJob(g api.GPU, i int, now time.Time) string {
	parked := i - len(g.Jobs)
	if parked >= len(g.Parked) {
		return ""
	}
	var j api.GPUJob
	if parked >= 0 {
		j = g.Parked[parked]
	} else {
		j = g.Jobs[i]
	}
	words := j.ID
	if j.Name != "" && j.Name != "job"+j.ID {
		words += " " + j.Name
	}
	if j.User != "" {
		words += " (" + j.User + ")"
	}
	if j.UsedMiB != nil {
		words += " " + text.GiB(*j.UsedMiB) + "G"
	}
	if parked >= 0 {
		words += " parked"
	}
	if j.IdleSince != nil {
		words += " idle " + idleSpan(now.Sub(*j.IdleSince))
	}
	if j.Other {
		words += " of another berth"
	}
	return words
}

// idleSpan is a span without seconds: 42m, 3h05m.
func idleSpan(d time.Duration) string {
	if d >= time.Minute && d < time.Hour {
		return fmt.Sprintf("%dm", d/time.Minute)
	}
	return text.Span(d)
}
