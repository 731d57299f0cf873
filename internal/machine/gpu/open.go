package gpu

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"time"
)

// OpenOptions say how to find the cards.
type OpenOptions struct {
	Log    *slog.Logger        // nil: no log
	Env    func(string) string // nil: os.Getenv
	Helper string              // path of berth-gpu; "": BERTH_GPU_HELPER, or beside berth
	Known  []Device            // as numbered since the machine was booted
	// Wait makes Open succeed even if no card can be read yet: the source tries
	// again at every sample.
	Wait bool

	root string // of the file system; "": /
}

// HelperVariable holds the path of the helper, or "none" to do without it.
const HelperVariable = "BERTH_GPU_HELPER"

const (
	helperName = "berth-gpu"
	// openPatience is how long opening waits for a helper's hello. A slower
	// one hangs in the driver, and may recover.
	openPatience = 2 * time.Second
	systemRoot   = "/"
	notWanted    = HelperVariable + "=none"
)

// Open finds a way to read the cards: the helper berth-gpu if it works,
// otherwise nvidia-smi. A helper that hangs is kept: nvidia-smi would hang
// too. A machine without any trace of a driver has no cards, which is an answer
// and not an error; a driver that fails is an error.
func Open(o OpenOptions) (Source, error) {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Env == nil {
		o.Env = os.Getenv
	}
	o.root = cmp.Or(o.root, systemRoot)
	c := newCards(o.Known, newSysfs(o.root))
	c.open = func() (Source, []string, error) { return openSource(o, patientHelper) }
	_, why := findHelper(o)
	c.noHelper = why == notWanted
	switch err := c.reopen(); {
	case err == nil:
	case o.Wait:
		o.Log.Error("cannot read the GPUs yet", "err", err)
	case !driverMissing(o.root, err):
		return nil, err
	default:
		o.Log.Info("this machine has no GPU", "why", err)
		if err := c.install(noCards{}, nil); err != nil {
			return nil, err
		}
	}
	kernel, err := openKernelLog(kernelLogPath)
	if err != nil {
		c.notes = append(c.notes, err.Error()+": GPU errors (Xid) may be missed; root can read it")
	} else {
		c.kernel = kernel
	}
	return c, nil
}

// openSource is the way to the driver, and notes about it.
func openSource(o OpenOptions, timing helperTiming) (Source, []string, error) {
	path, why := findHelper(o)
	var helperErr error
	if path != "" {
		h := newHelper(path, o.Log, timing)
		helperErr = openPatiently(h)
		if helperErr == nil {
			return h, nil, nil
		}
		why = fmt.Sprintf("%s: %v", path, helperErr)
		_ = h.Close() // it does not work
	}
	o.Log.Info("not reading the GPUs through NVML", "why", why)
	smi, err := findSMI()
	switch {
	case err == nil:
		return smi, []string{why + ": GPUs are read through nvidia-smi, which is slower and shows less"}, nil
	case helperErr != nil:
		return nil, nil, fmt.Errorf("%w; %s: %w", err, helperName, helperErr)
	}
	return nil, nil, err
}

// findHelper is the helper's path, or why there is none.
func findHelper(o OpenOptions) (path, why string) {
	path = o.Helper
	path = cmp.Or(path, o.Env(HelperVariable))
	switch path {
	case "none":
		return "", notWanted
	case "":
		self, err := os.Executable()
		if err != nil {
			return "", "cannot find berth's own program: " + err.Error()
		}
		path = filepath.Join(filepath.Dir(self), helperName)
		if _, err := os.Stat(path); err != nil {
			return "", fmt.Sprintf("%s is not installed beside berth", helperName)
		}
	}
	return path, ""
}

// openPatiently starts the helper, even if a card crashes it: that card is
// skipped after a few tries, and nvidia-smi would show less of the others.
func openPatiently(h *helperSource) error {
	err := openHelper(h)
	for range deathsOnCard {
		if !errors.Is(err, errHelperDied) {
			break
		}
		h.mu.Lock()
		wait := time.NewTimer(time.Until(h.retry.at))
		h.mu.Unlock()
		<-wait.C
		err = openHelper(h)
	}
	return err
}

// openHelper starts the helper. A helper that hangs is not an error.
func openHelper(h *helperSource) error {
	done := make(chan error, 1)
	go func() {
		h.turn <- struct{}{}
		defer func() { <-h.turn }()
		_, err := h.ready()
		h.mu.Lock()
		defer h.mu.Unlock()
		h.rest()
		done <- err
	}()
	ctx, cancel := context.WithTimeout(context.Background(), openPatience)
	defer cancel()
	select {
	case err := <-done:
		if errors.Is(err, errHelperHangs) {
			return nil
		}
		return err
	case <-ctx.Done():
		return nil
	}
}
