// Command berth is a GPU job scheduler for one machine.
package main

import (
	"os"

	"berth/internal/cli"
	"berth/internal/keep"
)

func main() {
	// Where the small supervisor binary is missing (as under `go run`), berth
	// stands in for it by executing itself again.
	if len(os.Args) > 1 && os.Args[1] == "__keep" {
		os.Exit(keep.Main(os.Args[2:]))
	}
	os.Exit(cli.Main(os.Args[1:], os.Stdout, os.Stderr))
}
