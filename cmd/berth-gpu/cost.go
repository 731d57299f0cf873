//go:build cgo

package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"text/tabwriter"
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
)

const (
	costCalls    = 200
	maxCostCalls = 10000
	// One minute of samples at the pace used for a starting job, so that values
	// read once a minute are included.
	costSamples = 600
	costPace    = 100 * time.Millisecond
)

type costOptions struct {
	only, calls int
	json        bool
}

// costs are the average costs of reading the cards.
type costs struct {
	Cards  int        `json:"cards"`
	Calls  []callCost `json:"calls"`
	Sample sampleCost `json:"sample"`
}

// callCost is the cost of one call about one card.
type callCost struct {
	What    string        `json:"what"`
	Call    string        `json:"call"`
	Every   time.Duration `json:"every_ns"` // the shortest time between two calls; 0: in each sample
	Wall    time.Duration `json:"wall_ns"`
	CPU     time.Duration `json:"cpu_ns"`
	Refused string        `json:"refused,omitempty"` // NVML's answer if the call failed
}

// sampleCost is the cost of a sample of all cards, with request and reply.
type sampleCost struct {
	Samples int           `json:"samples"`
	Every   time.Duration `json:"every_ns"`
	Wall    time.Duration `json:"wall_ns"`
	CPU     time.Duration `json:"cpu_ns"`
	CardCPU time.Duration `json:"card_cpu_ns"`
	// AllCPU is for a sample that reads everything, such as the first.
	AllCPU time.Duration `json:"all_cpu_ns"`
}

// cost measures and prints the costs.
func cost(library nvml.Interface, out, errs io.Writer, options costOptions, patience time.Duration) int {
	var found costs
	err := patiently(library, options.only, patience, func(d *driver, step func()) (err error) {
		found, err = measure(d, options.calls, step)
		return err
	})
	if err != nil {
		fmt.Fprintf(errs, "berth-gpu: %v\n", err)
		return exitFailed
	}
	if options.json {
		err = json.NewEncoder(out).Encode(found)
	} else {
		err = found.print(out)
	}
	if err != nil {
		fmt.Fprintf(errs, "berth-gpu: write the costs: %v\n", err)
		return exitFailed
	}
	return 0
}

func measure(d *driver, calls int, step func()) (costs, error) {
	if _, err := d.sample(nil); err != nil {
		return costs{}, err
	}
	found := costs{Cards: len(d.lastReads)}
	if found.Cards == 0 {
		return found, errors.New("no readable GPU")
	}
	var err error
	if found.Sample, err = measureSamples(d, calls, step); err != nil {
		return found, err
	}
	found.Sample.CardCPU = found.Sample.CPU / time.Duration(found.Cards)
	found.Calls = measureCalls(d, calls, step)
	return found, nil
}

// measureSamples takes samples as berth requests them. In real time that would
// take a minute for the same result, so the tiers see a faster clock; it ends
// at the present, because NVML knows no utilisation after that.
func measureSamples(d *driver, calls int, step func()) (sampleCost, error) {
	s := &server{driver: d, out: io.Discard, started: true, ticker: time.NewTicker(time.Hour)}
	defer s.ticker.Stop()
	defer func() { d.clock = time.Now }()
	var failed error
	take := func() {
		reply, _ := s.answer(request{text: []byte(`{"id":1,"do":"sample"}`)})
		if reply.Error != "" {
			failed = errors.New(reply.Error)
		}
		s.write(reply)
		step()
	}
	_, all := repeat(calls, func() {
		clear(d.lastReads) // everything is read again
		take()
	})
	at := time.Now().Add(-(costSamples + 1) * costPace)
	d.clock = func() time.Time { return at }
	clear(d.lastReads)
	take()
	wall, cpu := repeat(costSamples, func() {
		at = at.Add(costPace)
		take()
	})
	return sampleCost{Samples: costSamples, Every: costPace, Wall: wall, CPU: cpu, AllCPU: all}, failed
}

// measureCalls makes each call by itself, for one card after the other.
// Partitioned cards are skipped: their calls are the same, for each part.
func measureCalls(d *driver, calls int, step func()) []callCost {
	var found []callCost
	cards := wholeCards(d)
	defer d.page.idle()
	for _, q := range questions {
		if name := q.name(d); name != "" && len(cards) > 0 {
			cost := callCost{What: q.what, Call: name, Every: q.every}
			turn := 0
			cost.Wall, cost.CPU = repeat(calls, func() {
				at := cards[turn%len(cards)]
				turn++
				d.page.about(at.card)
				if err := failed(q.ask(d, at.card, at.handle)); err != nil {
					cost.Refused = err.Error()
				}
				step()
			})
			found = append(found, cost)
		}
	}
	return found
}

// wholeCards are the cards that were read and are not partitioned.
func wholeCards(d *driver) []*look {
	var cards []*look
	for uuid, l := range d.watch.looks {
		if d.byCard[l.card] == uuid {
			cards = append(cards, l)
		}
	}
	return cards
}

// repeat does something that many times and returns the averages.
func repeat(times int, do func()) (wall, cpu time.Duration) {
	began, used := time.Now(), cpuTime()
	for range times {
		do()
	}
	return time.Since(began) / time.Duration(times), (cpuTime() - used) / time.Duration(times)
}

func (c costs) print(out io.Writer) error {
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "WHAT\tCALL\tREAD EVERY\tWALL\tCPU\t")
	for _, call := range c.Calls {
		every := "sample"
		if call.Every > 0 {
			every = fmt.Sprintf("%g s", call.Every.Seconds())
		}
		fmt.Fprintf(table, "%s\t%s\t%s\t%s\t%s\t%s\n", call.What, call.Call, every, microseconds(call.Wall), microseconds(call.CPU), call.Refused)
	}
	if err := table.Flush(); err != nil {
		return err
	}
	s := c.Sample
	_, err := fmt.Fprintf(out, "sample: %.3f ms of CPU per GPU, %.3f ms for all %d, ten times a second; %.3f ms if everything is read\n",
		milliseconds(s.CardCPU), milliseconds(s.CPU), c.Cards, milliseconds(s.AllCPU))
	return err
}

func microseconds(d time.Duration) string {
	return fmt.Sprintf("%.1f µs", float64(d)/float64(time.Microsecond))
}
func milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
