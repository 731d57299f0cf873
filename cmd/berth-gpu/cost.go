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
	// The samples are those of a minute, so that what is read once a minute is
	// in them, at the pace at which a job that starts is looked at.
	costSamples = 600
	costPace    = 100 * time.Millisecond
)

type costOptions struct {
	only, calls int
	json        bool
}

// costs are what looking at the cards takes, each an average.
type costs struct {
	Cards  int        `json:"cards"`
	Calls  []callCost `json:"calls"`
	Sample sampleCost `json:"sample"`
}

// callCost is that of one call about one card.
type callCost struct {
	What    string        `json:"what"`
	Call    string        `json:"call"`
	Every   time.Duration `json:"every_ns"` // how often it is made at most; 0: in each sample
	Wall    time.Duration `json:"wall_ns"`
	CPU     time.Duration `json:"cpu_ns"`
	Refused string        `json:"refused,omitempty"` // what NVML said instead of answering
}

// sampleCost is that of a sample of all cards, request and reply included.
type sampleCost struct {
	Samples int           `json:"samples"`
	Every   time.Duration `json:"every_ns"`
	Wall    time.Duration `json:"wall_ns"`
	CPU     time.Duration `json:"cpu_ns"`
	CardCPU time.Duration `json:"card_cpu_ns"`
	// AllCPU is of a sample that reads everything, such as the first.
	AllCPU time.Duration `json:"all_cpu_ns"`
}

// cost measures what looking at the cards takes, and prints it.
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
		return found, errors.New("there is no card that can be read")
	}
	var err error
	if found.Sample, err = measureSamples(d, calls, step); err != nil {
		return found, err
	}
	found.Sample.CardCPU = found.Sample.CPU / time.Duration(found.Cards)
	found.Calls = measureCalls(d, calls, step)
	return found, nil
}

// measureSamples takes samples as berth asks for them. Waiting for each would
// take a minute and tell the same, so the time that the tiers see runs faster;
// it ends at the present, because NVML knows of no utilisation later than that.
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
		clear(d.lastReads) // everything is read anew
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

// measureCalls makes each call by itself, about one card after the other. Cards
// in parts are left out: their calls are those of whole ones, about each part.
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

// wholeCards are those that were read and are not in parts.
func wholeCards(d *driver) []*look {
	var cards []*look
	for uuid, l := range d.watch.looks {
		if d.byCard[l.card] == uuid {
			cards = append(cards, l)
		}
	}
	return cards
}

// repeat does something so many times, and gives the average of one.
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
	_, err := fmt.Fprintf(out, "sample: %.3f ms of CPU a card, %.3f ms for all %d, ten times a second; %.3f ms where everything is read\n",
		milliseconds(s.CardCPU), milliseconds(s.CPU), c.Cards, milliseconds(s.AllCPU))
	return err
}

func microseconds(d time.Duration) string {
	return fmt.Sprintf("%.1f µs", float64(d)/float64(time.Microsecond))
}
func milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
