package cli_test

func init() { promises = append(promises, tgpuPromises...) }

// tgpuPromises is the part of the index that is about tgpu, one of the names
// that berth answers to.
var tgpuPromises = []promise{
	{"tgpu: submit, list and cancel as its page types them, through a link; a spec file is a job", `
		tgpu-its-commands-work-as-they-were-typed
		tgpu-a-job-spec-is-a-file
		tgpu-a-first-submit-needs-nothing-to-be-started
		tgpu-a-list-before-any-job-is-empty
		tgpu-mistakes-are-told-with-a-hint`},
	{"tgpu: priority, then submission; what cannot run yet is passed by what can; one job at a time where each takes all", `
		tgpu-the-highest-priority-that-can-run-goes-first
		tgpu-one-job-at-a-time-where-each-takes-the-whole-machine`},
	{"tgpu: N cards of its own, CPUs and memory accounted for; preemption where it was offered", `
		tgpu-a-jobs-cards-are-its-own
		tgpu-cpus-and-memory-are-accounted-for
		tgpu-a-preemptible-job-makes-room`},
	{"tgpu: states, exit statuses, logs and metrics, over a crash too", `
		tgpu-every-state-and-exit-status-is-listed
		tgpu-metrics-and-logs
		tgpu-nothing-is-lost-when-the-scheduler-is-killed`},
	{"tgpu: its examples run on simulated cards", "tgpu-its-examples-run-on-simulated-cards"},
}
