package gpu

import (
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
	Log    *slog.Logger        // nil: nobody wants to know
	Env    func(string) string // nil: os.Getenv
	Helper string              // path of berth-gpu; empty: BERTH_GPU_HELPER, or beside berth
	Known  []Device            // cards as they were numbered since the machine was started
	// Wait has a source come back also where no card can be read yet: it tries
	// again when it is asked for samples, which fail until then.
	Wait bool
}

// HelperVariable names the helper's path, or is "none" for none.
const HelperVariable = "BERTH_GPU_HELPER"

const (
	helperName = "berth-gpu"
	// openPatience is what opening waits for a helper's hello. One that takes
	// longer hangs in the driver, and may come to.
	openPatience = 2 * time.Second
	reopenEvery  = 10 * time.Second
	systemRoot   = "/"
	notWanted    = HelperVariable + " is none"
)

// Open finds the way to the cards: the helper berth-gpu where it is there and
// the driver's library can be used, or else nvidia-smi. A helper that hangs is
// still the way: nvidia-smi would hang too.
func Open(o OpenOptions) (Source, error) {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Env == nil {
		o.Env = os.Getenv
	}
	c := newCards(o.Known, newSysfs(systemRoot))
	c.open = func() (Source, []string, error) { return openSource(o, patientHelper) }
	_, why := findHelper(o)
	c.noHelper = why == notWanted
	if err := c.reopen(); err != nil {
		if !o.Wait {
			return nil, err
		}
		o.Log.Error("the GPUs cannot be read yet", "err", err)
	}
	kernel, err := openKernelLog(kernelLogPath)
	if err != nil {
		c.notes = append(c.notes, err.Error()+": messages of the driver about broken cards may be missed; root can read it")
	} else {
		c.kernel = kernel
	}
	return c, nil
}

// openSource is the way to the driver, and what should be said about it.
func openSource(o OpenOptions, timing helperTiming) (Source, []string, error) {
	path, why := findHelper(o)
	var helperErr error
	if path != "" {
		h := newHelper(path, o.Log, timing)
		helperErr = h.openPatiently()
		if helperErr == nil {
			return h, nil, nil
		}
		why = fmt.Sprintf("%s: %v", path, helperErr)
		_ = h.Close() // it was of no use
	}
	o.Log.Info("the GPUs are not read through NVML", "why", why)
	smi, err := findSMI()
	switch {
	case err == nil:
		return smi, []string{why + ": the GPUs are read through nvidia-smi, which is slower and tells less"}, nil
	case helperErr != nil:
		return nil, nil, fmt.Errorf("%w; %s: %w", err, helperName, helperErr)
	}
	return nil, nil, err
}

// findHelper is the helper's path, or why there is none.
func findHelper(o OpenOptions) (path, why string) {
	path = o.Helper
	if path == "" {
		path = o.Env(HelperVariable)
	}
	switch path {
	case "none":
		return "", notWanted
	case "":
		self, err := os.Executable()
		if err != nil {
			return "", "berth cannot find its own program: " + err.Error()
		}
		path = filepath.Join(filepath.Dir(self), helperName)
		if _, err := os.Stat(path); err != nil {
			return "", fmt.Sprintf("there is no %s beside berth", helperName)
		}
	}
	return path, ""
}

// openPatiently starts the helper, also where a card takes it down: that one is
// left out in the end, and nvidia-smi would tell less of all the others.
func (h *helperSource) openPatiently() error {
	err := h.open()
	for range deathsOnCard {
		if !errors.Is(err, errHelperDied) {
			break
		}
		h.mu.Lock()
		wait := time.NewTimer(time.Until(h.retryAt))
		h.mu.Unlock()
		<-wait.C
		err = h.open()
	}
	return err
}

// open starts the helper. That it hangs is no error.
func (h *helperSource) open() error {
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
