// Command berth-keep holds one job at a time for berth and outlives it.
// It is started by berth, not by hand.
package main

import (
	"os"

	"berth/internal/machine/keep"
)

func main() { os.Exit(keep.Main(os.Args[1:])) }
