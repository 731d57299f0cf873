//go:build cgo

package main

import (
	"encoding/json"
	"fmt"
	"io"
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"berth/internal/gpu"
)

// oncePatience is how long a person waits for a driver that may hang.
const oncePatience = 10 * time.Second

// onceLook is what once prints.
type onceLook struct {
	Facts  gpu.Facts   `json:"facts"`
	Sample *gpu.Sample `json:"sample"`
}

// once prints one sample.
func once(library nvml.Interface, out, errs io.Writer, only int, patience time.Duration) int {
	page := page{word: new(uint32)}
	done := make(chan error, 1)
	var seen onceLook
	go func() {
		d := newDriver(library, page, only)
		if err := d.start(); err != nil {
			done <- err
			return
		}
		var err error
		if seen.Facts, err = d.facts(nil); err == nil {
			seen.Sample, err = d.sample(nil)
		}
		d.stop()
		done <- err
	}()
	var err error
	select {
	case err = <-done:
	case <-time.After(patience):
		err = fmt.Errorf("the driver does not answer%s", about(page.now()))
	}
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

func about(word uint32) string {
	if word == pageIdle || word == pageSystem {
		return ""
	}
	return fmt.Sprintf(" about card %d", word-1)
}
