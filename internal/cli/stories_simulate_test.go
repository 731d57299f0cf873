package cli_test

// simulatePromises is the part of the index that is about replays.
var simulatePromises = []promise{
	{"simulate replays a trace under several policies, with what can never run counted and said; --json, --csv, --html, --seeds", `
		simulate-a-trace-is-replayed-under-several-policies`},
	{"a bad trace is refused with file and line", "simulate-a-bad-trace-or-flag-is-refused-with-its-place"},
	{"every policy replays; --park-cost sets jobs aside where a policy does so; --estimates, --max-bypass, --half-life, --placement; nonsense is refused", `
		simulate-every-policy-replays-with-and-without-preemption`},
	{"debug snapshot writes what the daemon decides on, and simulate goes on from it", "simulate-a-snapshot-of-the-daemon-is-replayed"},
	{"simulate --history replays what this daemon ran", "simulate-the-daemons-history-is-replayed"},
	{"berth estimate sizes a local model from its headers, and --vram estimate:PATH declares it, in jobs files too", `
		estimate-a-model-is-sized-from-its-files
		estimate-a-job-declares-what-its-model-needs`},
	{"Ctrl-C ends a replay", "simulate-an-interrupt-ends-a-replay"},
}
