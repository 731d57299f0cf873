// Command berth-keep holds one job at a time for berth and outlives it.
// berth starts it; it is of no use by hand.
package main

import (
	"os"

	"berth/internal/keep"
)

func main() { os.Exit(keep.Main(os.Args[1:])) }
