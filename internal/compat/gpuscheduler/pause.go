package gpuscheduler

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"time"

	"berth/internal/api"
	"berth/internal/compat/frontend"
	"berth/internal/text/problem"
)

// askTime bounds how long a command waits for the running scheduler.
const askTime = 10 * time.Second

// runPause records the pause in the state file, for the running scheduler or the
// next one, and also tells a running one directly.
func runPause(c call, pause bool, stateFile string, args []string) int {
	verb := "resume"
	if pause {
		verb = "pause"
	}
	if i := slices.IndexFunc(args, func(word string) bool { _, err := strconv.Atoi(word); return err == nil && word[0] == '-' }); i >= 0 {
		args = slices.Insert(slices.Clone(args), i, "--") // a negative number, not a flag
	}
	flags := newFlags(&stateFile)
	if err := parse(flags, verb, args, 1); err != nil {
		return c.Misuse(err.Error(), frontend.BadUsage)
	}
	index, err := strconv.Atoi(flags.Arg(0))
	if err != nil || index < 0 {
		c.Complain(fmt.Sprintf("expected a GPU id, found %q", flags.Arg(0)), "gpu-scheduler status lists them")
		return frontend.BadUsage
	}
	live, err := setPaused(stateFile, index, pause)
	if err != nil {
		return c.fail(err)
	}
	fmt.Fprintf(c.Out, "gpu %d is %sd", index, verb)
	if !live {
		fmt.Fprintf(c.Out, "; no scheduler is running with %s, so it takes effect at the next start", stateFile)
	}
	fmt.Fprintln(c.Out)
	return 0
}

func setPaused(stateFile string, index int, pause bool) (live bool, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), askTime)
	defer cancel()
	unlock, err := lockState(stateFile)
	if err != nil {
		return false, fmt.Errorf("state file %s: %w", stateFile, err)
	}
	defer unlock()
	for range editTries {
		if live, err = notePaused(ctx, stateFile, index, pause); !errors.Is(err, errEdited) {
			return live, err
		}
	}
	return live, fmt.Errorf("state file %s: %w", stateFile, err)
}

// notePaused tells the running scheduler and records the pause. The caller holds
// the lock.
func notePaused(ctx context.Context, stateFile string, index int, pause bool) (live bool, err error) {
	doc, stamp, err := readDoc(stateFile)
	if errors.Is(err, os.ErrNotExist) {
		doc, err = document{}, nil
		doc.set(keySince, time.Now()) // as at a start without a file: earlier jobs are forgotten
	}
	if err != nil {
		return false, problem.Newf(problem.Refused, "repair it, or delete it to start over", "%v", err)
	}
	client, err := dial(stateFile)
	if err != nil {
		return false, err
	}
	defer client.Close()
	cards, live, err := knownCards(ctx, client, stateFile, doc)
	if err != nil {
		return live, err
	}
	if !slices.ContainsFunc(cards, func(card shownCard) bool { return card.GPU == index }) {
		return live, problem.Newf(problem.Refused, "gpu-scheduler status lists them", "there is no GPU %d", index)
	}
	if live {
		if _, err := api.Call(ctx, client, api.Pausing(pause), api.GPUIndex{Index: index}); err != nil {
			return live, err
		}
	}
	paused, _ := doc.paused() // readDoc has checked it
	paused = slices.DeleteFunc(paused, func(n int) bool { return n == index })
	if pause {
		paused = append(paused, index)
		slices.Sort(paused)
	}
	doc.set(keyPaused, append([]int{}, paused...))
	_, err = doc.write(stateFile, stamp)
	return live, err
}

// dial is a client for the scheduler of a state file.
func dial(stateFile string) (*api.Client, error) {
	places, err := placesOf(stateFile)
	if err != nil {
		return nil, err
	}
	return api.Dial(places.Socket), nil
}
