//go:build cgo

package main

import (
	"encoding/json"
	"fmt"
	"io"
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"berth/internal/machine/gpu"
)

// oncePatience is how long `berth-gpu once` waits for a driver that may hang.
const oncePatience = 10 * time.Second

// onceLook is what once prints.
type onceLook struct {
	Protocol int         `json:"protocol"`
	Facts    gpu.Facts   `json:"facts"`
	Sample   *gpu.Sample `json:"sample"`
}

// once prints one sample.
func once(library nvml.Interface, out, errs io.Writer, only int, patience time.Duration) int {
	seen := onceLook{Protocol: gpu.HelperProtocol}
	err := patiently(library, only, patience, func(d *driver, _ func()) (err error) {
		if seen.Facts, err = d.facts(nil); err == nil {
			seen.Sample, err = d.sample(nil)
		}
		return err
	})
	if err != nil {
		fmt.Fprintf(errs, "berth-gpu: %v\n", err)
		return exitFailed
	}
	text, err := json.MarshalIndent(seen, "", "  ")
	if err != nil {
		fmt.Fprintf(errs, "berth-gpu: write a sample: %v\n", err)
		return exitFailed
	}
	fmt.Fprintf(out, "%s\n", text)
	return 0
}

// patiently works with a driver that may hang, and abandons it then. Each step
// that work reports restarts the wait.
func patiently(library nvml.Interface, only int, patience time.Duration, work func(d *driver, step func()) error) error {
	page := page{word: new(uint32)}
	done, steps := make(chan error, 1), make(chan struct{}, 1)
	step := func() {
		select {
		case steps <- struct{}{}:
		default: // one unread step is enough
		}
	}
	go func() {
		d := newDriver(library, page, only)
		err := d.start()
		if err == nil {
			if err = d.hasChosen(); err == nil {
				err = work(d, step)
			}
			d.stop()
		}
		done <- err
	}()
	timer := time.NewTimer(patience)
	defer timer.Stop()
	for {
		select {
		case err := <-done:
			return err
		case <-steps:
			timer.Reset(patience)
		case <-timer.C:
			return fmt.Errorf("the driver does not answer%s", about(page.now()))
		}
	}
}

// hasChosen checks that the requested card exists.
func (d *driver) hasChosen() error {
	if d.only == allCards {
		return nil
	}
	count, err := d.count()
	if err == nil && d.only >= count {
		err = fmt.Errorf("no GPU %d: the driver has %d, numbered from 0", d.only, count)
	}
	return err
}

func about(word uint32) string {
	if word == pageIdle || word == pageSystem {
		return ""
	}
	return fmt.Sprintf(" about GPU %d", word-1)
}
