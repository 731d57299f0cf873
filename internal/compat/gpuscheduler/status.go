package gpuscheduler

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"berth/internal/api"
	"berth/internal/compat/frontend"
	"berth/internal/job"
	"berth/internal/machine/gpu"
	"berth/internal/queue/daemon"
	"berth/internal/text"
	"berth/internal/text/problem"
)

// report is the output of status.
type report struct {
	Running bool        `json:"scheduler_running"`
	GPUs    []shownCard `json:"gpus"`
	Jobs    []shownJob  `json:"jobs"`

	SavedAt *time.Time `json:"saved_at"` // null: the scheduler is running
}

// lookTime bounds reading the GPUs.
const lookTime = 20 * time.Second

func runStatus(c call, stateFile string, args []string) int {
	flags := newFlags(&stateFile)
	asJSON := flags.Bool("json", false, "")
	if err := parse(flags, "status", args, 0); err != nil {
		return c.Misuse(err.Error(), frontend.BadUsage)
	}
	found, err := ask(stateFile)
	if err != nil {
		return c.fail(err)
	}
	if *asJSON {
		encoder := json.NewEncoder(c.Out)
		encoder.SetIndent("", "  ")
		if err := encoder.Encode(found); err != nil {
			return c.fail(err)
		}
		return 0
	}
	found.print(c.Out, stateFile)
	return 0
}

// ask gets the report from the running scheduler, or else from its state file and
// the GPUs themselves.
func ask(stateFile string) (report, error) {
	ctx, cancel := context.WithTimeout(context.Background(), lookTime)
	defer cancel()
	doc, _, err := readDoc(stateFile)
	if errors.Is(err, os.ErrNotExist) {
		doc, err = document{}, nil
	}
	client, dialErr := dial(stateFile)
	if dialErr != nil {
		return report{}, dialErr
	}
	defer client.Close()
	found, live := askLive(ctx, client, doc)
	if live {
		return found, nil
	}
	if err != nil {
		return report{}, problem.Newf(problem.Refused, "repair it, or delete it to start over", "%v", err)
	}
	found.Jobs = []shownJob{}
	doc.get(keyJobs, &found.Jobs)
	if err := markEnded(stateFile, found.Jobs); err != nil {
		return found, err
	}
	found.GPUs, err = lookAtCards(ctx, stateFile, doc)
	if err != nil {
		return found, err
	}
	addJobs(found.GPUs, found.Jobs)
	found.SavedAt = new(time.Time)
	if doc.get(keyUpdated, found.SavedAt); found.SavedAt.IsZero() {
		found.SavedAt = nil
	}
	return found, nil
}

func askLive(ctx context.Context, client *api.Client, doc document) (report, bool) {
	limits := noThresholds
	var since time.Time
	doc.get(keyLimits, &limits)
	doc.get(keySince, &since)
	cards, err := api.Call(ctx, client, api.ListGPUs, api.None{})
	if err != nil {
		return report{}, false
	}
	var views []job.View
	_, err = client.JobsAll(ctx, api.Query{Select: api.Select{All: true}, Over: true, Reasons: true}, func(v job.View) error {
		views = append(views, v)
		return nil
	})
	return report{Running: true, GPUs: showCards(cards, limits), Jobs: showJobs(views, since)}, err == nil
}

// knownCards are the GPUs of the running scheduler, or else of this machine.
func knownCards(ctx context.Context, client *api.Client, stateFile string, doc document) (cards []shownCard, live bool, err error) {
	found, err := api.Call(ctx, client, api.ListGPUs, api.None{})
	var missing *api.Unreachable
	switch {
	case err == nil:
		return showCards(found, noThresholds), true, nil
	case !errors.As(err, &missing):
		return nil, false, err
	}
	if doc.get(keyCards, &cards); len(cards) > 0 {
		return cards, false, nil
	}
	cards, err = lookAtCards(ctx, stateFile, doc)
	return cards, false, err
}

// lookAtCards reads the GPUs without a scheduler.
func lookAtCards(ctx context.Context, stateFile string, doc document) ([]shownCard, error) {
	sample, err := sampleCards(ctx, stateFile)
	if err != nil {
		return nil, problem.Newf(problem.Unable, "without a GPU, BERTH_SIM=2 simulates two; berth doctor says what is missing", "%v", err)
	}
	paused, _ := doc.paused() // readDoc has checked it
	limits := noThresholds
	doc.get(keyLimits, &limits)
	cards := make([]shownCard, 0, len(sample.Devices))
	for _, dev := range sample.Devices {
		card := shownCard{GPU: dev.Index, Memory: percent(float64(dev.UsedMiB), float64(dev.TotalMiB)), Jobs: []string{}}
		if dev.UtilPct >= 0 {
			card.Load = &dev.UtilPct
		}
		card.Status = cardState(card, slices.Contains(paused, dev.Index), limits)
		cards = append(cards, card)
	}
	return cards, nil
}

// markEnded marks saved jobs that ended after the scheduler did.
func markEnded(stateFile string, jobs []shownJob) error {
	places, err := placesOf(stateFile)
	if err != nil {
		return err
	}
	living, err := daemon.Living(places)
	if err != nil {
		return err
	}
	for i := range jobs {
		if j := &jobs[i]; j.State == string(job.Running) && !living[j.Number] {
			j.EndedSince = true
		}
	}
	return nil
}

// addJobs adds running jobs to their GPUs.
func addJobs(cards []shownCard, jobs []shownJob) {
	for i := range cards {
		card := &cards[i]
		for _, j := range jobs {
			if !j.runs() || !slices.Contains(j.GPUs, card.GPU) {
				continue
			}
			part := 1.0
			if j.Share != nil && *j.Share > 0 {
				part = *j.Share
			}
			card.Allocation = addPart(card.Allocation, part)
			card.Jobs = append(card.Jobs, j.ID)
		}
		if card.Allocation > 0 && card.Status != cardPaused {
			card.Status = busy(100 * card.Allocation)
		}
	}
}

func sampleCards(ctx context.Context, stateFile string) (gpu.Sample, error) {
	source, err := openCards(stateFile)
	if err != nil {
		return gpu.Sample{}, err
	}
	defer func() { _ = source.Close() }() // it was only read
	return gpu.FirstLook(ctx, source)
}

func openCards(stateFile string) (gpu.Source, error) {
	n, err := frontend.Sim()
	if err != nil || n == 0 {
		if err == nil {
			return gpu.Open(gpu.OpenOptions{Env: os.Getenv})
		}
		return nil, err
	}
	places, err := placesOf(stateFile)
	if err != nil {
		return nil, err
	}
	_, dir := gpu.SimFromEnv(os.Getenv)
	dir = cmp.Or(dir, filepath.Join(places.StateDir, "sim"))
	return gpu.OpenSim(dir, n, frontend.SimVRAMMiB)
}

// shownEnded and shownWaiting bound the ended and queued jobs in status. --json
// lists all of them.
const (
	shownEnded   = 10
	shownWaiting = 50
)

func (r report) print(out io.Writer, stateFile string) {
	if !r.Running {
		fmt.Fprintf(out, "no scheduler is running with %s", stateFile)
		if r.SavedAt != nil {
			fmt.Fprintf(out, "; jobs as of %s", r.SavedAt.Local().Format(time.DateTime))
		}
		fmt.Fprintln(out)
	}
	table := text.Titled("GPU", "STATE", "ALLOCATION", "MEMORY", "LOAD", "JOBS")
	for _, card := range r.GPUs {
		load, jobs := "-", "-"
		if len(card.Jobs) > 0 {
			jobs = strings.Join(card.Jobs, " ")
		}
		if card.Load != nil {
			load = fmt.Sprintf("%.0f%%", *card.Load)
		}
		table.Row(strconv.Itoa(card.GPU), card.Status, fmt.Sprintf("%.2f", card.Allocation), fmt.Sprintf("%.1f%%", card.Memory), load, jobs)
	}
	fmt.Fprint(out, table)
	for _, card := range r.GPUs {
		if card.Note != "" {
			fmt.Fprintf(out, "gpu %d: %s\n", card.GPU, card.Note)
		}
	}
	r.printJobs(out)
}

func (r report) printJobs(out io.Writer) {
	of := func(is func(shownJob) bool) (list []shownJob) {
		for _, j := range r.Jobs {
			if is(j) {
				list = append(list, j)
			}
		}
		return list
	}
	running := of(shownJob.runs)
	waiting := of(func(j shownJob) bool { return j.State == string(job.Queued) })
	ended := of(func(j shownJob) bool { return job.State(j.State).Terminal() })
	ok := len(of(func(j shownJob) bool { return j.State == string(job.Finished) }))
	since := of(func(j shownJob) bool { return j.EndedSince })
	fmt.Fprintf(out, "\n%d running, %d queued, %d succeeded, %d failed", len(running), len(waiting), ok, len(ended)-ok)
	if len(since) > 0 {
		fmt.Fprintf(out, ", %d ended since", len(since))
	}
	fmt.Fprintln(out)
	for _, j := range running {
		fmt.Fprintf(out, "  %s  running on gpu %s  priority %d  %s\n", j.ID, text.Numbers(j.GPUs), j.Priority, j.Name)
	}
	for _, j := range since {
		fmt.Fprintf(out, "  %s  ended on gpu %s; the next start reports how  %s\n", j.ID, text.Numbers(j.GPUs), j.Name)
	}
	for i, j := range waiting {
		if i == shownWaiting {
			fmt.Fprintf(out, "  and %d more; --json lists all\n", len(waiting)-i)
			break
		}
		fmt.Fprintf(out, "  %s  queued, place %d  priority %d  %s", j.ID, i+1, j.Priority, j.Name)
		if j.Reason != nil {
			fmt.Fprintf(out, "  (%s)", *j.Reason)
		}
		fmt.Fprintln(out)
	}
	for _, j := range ended[max(0, len(ended)-shownEnded):] {
		end := j.State
		if j.Outcome != nil {
			end = *j.Outcome
		}
		fmt.Fprintf(out, "  %s  %s  %s\n", j.ID, end, j.Name)
	}
}
