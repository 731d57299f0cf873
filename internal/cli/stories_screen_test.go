package cli_test

func init() {
	promises = append(promises, []promise{
		{"gpu-scheduler start --screen runs jobs in sessions that one can list and sit down at", `
			screen-a-job-runs-in-a-session-that-one-can-sit-down-at
			screen-conda-environments-are-activated-and-a-bad-one-fails-the-job
			screen-without-gnu-screen-it-says-what-to-install`},
		{"a session outlives the scheduler, and its end is seen", `
			screen-kill-9-of-the-scheduler-leaves-its-sessions-and-their-status
			screen-a-session-that-is-ended-from-outside-has-failed
			screen-a-job-that-is-ended-has-its-grace`},
		{"gpu-scheduler add writes what gpu-scheduler start reads", "add-a-line-is-appended-as-the-scheduler-reads-it"},
	}...)
}
