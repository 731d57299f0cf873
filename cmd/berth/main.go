// Command berth is a GPU job scheduler for one machine.
package main

import (
	"os"

	"berth/internal/cli"
	"berth/internal/compat/gpuscheduler"
	"berth/internal/keep"
	"berth/internal/run"
	"berth/internal/site"
)

func main() {
	os.Exit(route(os.Args[1:]))
}

// route is where berth becomes something else than its command line: it
// executes itself where a process of its own is needed and no other program
// is sure to be there.
func route(args []string) int {
	if len(args) > 0 {
		switch args[0] {
		case "__keep": // a supervisor, as under `go run`, where berth-keep is missing
			return keep.Main(args[1:])
		case site.OpenWord: // opens a file as the user it already is
			return site.OpenMain(args[1:])
		case site.HoldWord: // keeps a scope of systemd's alive
			return site.Hold()
		case run.WatchWord: // represents an external process
			return run.WatchMain(args[1:], os.Stdout, os.Stderr)
		case gpuscheduler.ScreenWord: // holds the screen session of a job
			return gpuscheduler.ScreenMain(args[1:], os.Stdout, os.Stderr)
		}
	}
	return cli.MainAs(os.Args[0], args, os.Stdout, os.Stderr)
}
