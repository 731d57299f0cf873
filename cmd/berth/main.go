// Command berth is a GPU job scheduler for one machine.
package main

import (
	"os"

	"berth/internal/cli"
	"berth/internal/compat/gpuscheduler"
	"berth/internal/machine/gpu"
	"berth/internal/machine/keep"
	"berth/internal/machine/run"
	"berth/internal/machine/site"
	"berth/internal/queue/send"
	"berth/internal/slurm/cluster"
	"berth/internal/slurm/node"
)

func main() {
	os.Exit(route(os.Args[1:]))
}

// route runs the command line, or one of berth's helper processes: berth executes
// itself for these, since no other program is sure to be installed.
func route(args []string) int {
	if len(args) > 0 {
		switch args[0] {
		case "__keep": // a supervisor, if berth-keep is not installed
			return keep.Main(args[1:])
		case site.HoldWord: // keeps a systemd scope alive, or a port
			return site.Hold(args[1:])
		case send.Word: // delivers a message as the current user
			return send.Main(args[1:], os.Stdin, os.Stdout)
		case cluster.Word: // speaks to Slurm as the current user
			return cluster.Main(args[1:])
		case gpu.DriverWord: // parks jobs on simulated GPUs
			return gpu.DriverMain(args[1:], os.Stdin, os.Stdout, os.Stderr)
		case run.WatchWord: // watches an adopted process
			return run.WatchMain(args[1:], os.Stdout, os.Stderr)
		case node.Word: // runs a job on the node of a cluster
			return node.Main(args[1:], os.Stdin, os.Stdout, os.Stderr)
		case cli.HostWord: // has the own queue of a berth run
			return cli.HostMain()
		case gpuscheduler.ScreenWord: // holds the screen session of a job
			return gpuscheduler.ScreenMain(args[1:], os.Stdout, os.Stderr)
		}
	}
	return cli.MainAs(os.Args[0], args, os.Stdout, os.Stderr)
}
