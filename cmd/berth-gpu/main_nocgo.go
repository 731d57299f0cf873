//go:build !cgo

// Command berth-gpu reads the cards through NVML for berth. This build cannot:
// NVML needs cgo.
package main

import (
	"fmt"
	"os"
)

func main() {
	fmt.Fprintln(os.Stderr, "berth-gpu: built without NVML; build it with a C compiler and CGO_ENABLED=1")
	os.Exit(2)
}
