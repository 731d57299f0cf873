// Package cli is the command line: one file per verb, flags into options,
// outcomes into exit statuses. It schedules nothing and touches no store.
//
// A verb begins with session.Verb, which finds the queue that is meant, and ends
// with text from render. Start with hold, release and cancel in act.go.
//
// The files are in groups, and each uses only those above it:
//
//	words and flags: ids when jsonout selectors suggest values jobflags rules completion
//	change jobs: wait park act group adopt
//	see jobs: list listqueues listrows listformat strays parked attachterminal attach
//	  logs logsarray history showsamples show whystory why stats
//	the daemon: status stop sim start restart serve restore
//	queue jobs: estimate snapshot follow filekind trials submit submitforms submitlines submitreply
//	  edit editor mcp sweeptable sweep
//	the machine: version doctor doctorslurm config gpus gpu gpudrain gpuhistory gpurelease
//	  backup debug token notify web
//	replay a queue: simulate simulateflags simulatehistory simulateopen simulatereplay
//	berth run: keys runalloc runhost runopen runslurm run
//	the rest: top help man simjob compat root
package cli
