package cli_test

// gpuschedPromises are those of berth in gpusched's place.
var gpuschedPromises = []promise{
	{"through a link or a copy of that name berth is gpusched, with its flags, defaults, files and words", `
		gpusched-its-own-tour-runs-under-its-name
		gpusched-its-words-board-and-logs-are-its-own
		gpusched-a-time-limit-is-told-of-with-its-signals
		gpusched-lines-may-be-broken-and-put-back
		gpusched-a-copy-works-without-anything-beside-it`},
	{"what gpusched did by its own journal is an earlier run, and the journal is kept", `
		gpusched-work-that-it-finished-is-not-run-again
		gpusched-kill-9-while-it-takes-over-loses-nothing
		gpusched-a-job-it-left-running-is-waited-for-and-runs-again`},
	{"as gpusched it passes a blocked job, keeps its own jobs apart where asked, and leaves no job behind or runs it twice", `
		gpusched-a-blocked-job-is-passed-by-all-that-fit
		gpusched-exclusive-keeps-its-own-jobs-apart-and-lets-strangers-be
		gpusched-told-to-end-it-leaves-no-job-and-killed-it-leaves-none-twice`},
	{"as gpusched, what a job leaves in the background goes on", "gpusched-a-background-process-neither-delays-the-end-nor-is-ended"},
}
