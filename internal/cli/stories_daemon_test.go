package cli_test

// daemonPromises is the part of the index that is about the daemon and the
// verbs that talk to it.
var daemonPromises = []promise{
	// The daemon: how it is reached.
	{"a first submit starts a private daemon and says so in one line; BERTH_NO_AUTOSTART=1 or --no-autostart: an error with a hint", `
		daemon-a-first-submit-starts-a-private-daemon-and-says-so
		daemon-autostart-can-be-switched-off
		daemon-two-first-submits-at-once-start-one-daemon
		daemon-a-daemon-that-cannot-start-is-told-of-with-its-last-words`},
	{"which daemon: --socket, else BERTH_SOCKET; serve takes --state-dir, --socket and --config", `
		daemon-socket-and-state-flags-choose-the-daemon`},
	{"--host or BERTH_HOST: a daemon on another machine, by its address or a name, with a token", `
		daemon-host-reaches-a-daemon-by-its-address-and-a-token
		daemon-host-trusts-only-a-certificate-that-someone-vouches-for`},
	{"any verb starts the private daemon where there is state to read, and goes on with the queue", `
		daemon-every-verb-starts-the-daemon-where-there-are-jobs
		daemon-after-a-crash-any-verb-goes-on-with-the-queue`},
	{"a removed state directory leaves no daemon that starts jobs beside the new one", `
		daemon-a-removed-state-directory-leaves-no-ghost
		daemon-a-removed-state-directory-is-said-to-clients
		resume-a-removed-log-directory-ends-the-run-after-its-jobs`},
	{"with nothing to read: an empty answer, not an error", "daemon-with-nothing-to-read-the-answer-is-empty"},
	{"start, stop, restart and status manage it; stop leaves jobs running and says so", "daemon-start-stop-restart-and-status"},
	{"a client and a daemon of different versions say so and work", "daemon-of-another-version-works-and-is-mentioned"},
	{"one daemon to a state directory and a socket; --idle-exit ends it", `
		daemon-a-second-daemon-refuses
		daemon-an-idle-daemon-ends-when-told-to-and-not-before`},
	{"serve takes the placement flags, and refuses what makes no sense with every mistake at once", `
		daemon-serve-takes-the-placement-flags
		daemon-serve-refuses-bad-flags-and-bad-config`},
	{"SIGHUP reads the config again; a file with mistakes changes nothing", "daemon-sighup-reads-the-config-again"},
	{"limits of users and of the queue", "daemon-gpus-beyond-the-share-are-borrowed daemon-limits-make-jobs-wait-or-refuse-them"},
	{"everything that prints a table takes --json, a documented, stable contract", "daemon-json-is-as-documented"},

	// A job of the daemon.
	{"several words: executed as they are, quoting kept; one word: a shell line", "daemon-a-command-keeps-its-quoting-and-one-word-is-a-shell-line"},
	{"2 is bad usage: each flag says what was found and what is allowed", "daemon-a-flag-that-makes-no-sense-is-bad-usage-and-submits-nothing"},
	{"what could not fit on the empty machine: submit refuses it", "daemon-what-can-never-run-is-refused-with-the-numbers"},
	{"gpus, kind, vram, ids, allowed, exclusive, cpus, mem, cap", `
		daemon-flags-choose-cards-and-the-job-sees-what-it-was-given
		daemon-exclusive-cpus-and-mem-are-kept-to`},
	{"priority: higher first; equal: by submission", "daemon-priority-first-then-submission"},
	{"time, signal, on-timeout, max-requeues, grace", "daemon-limits-in-time-warn-and-end-or-requeue-a-job"},
	{"retries, retry-on", "daemon-retries-are-bounded-and-for-what-was-said"},
	{"after: :ok, :any, :fail, each for its own id; @ and @~1; a condition that can't hold cancels", "daemon-after-waits-for-the-end-of-others"},
	{"requeue changes a job that has ended; edit and --unset change one that waits", "daemon-a-job-is-changed-and-run-again"},
	{"names and patterns select jobs wherever ids do", "daemon-names-select-jobs"},
	{"array: one spec, many tasks, so many at a time; one row, one log, one sum", `
		daemon-an-array-is-many-tasks-some-at-a-time
		daemon-an-array-is-one-row-and-one-log
		daemon-an-array-can-be-changed-while-it-waits`},
	{"sweep: a command for every combination of parameters, and their results in a table", `
		daemon-a-sweep-runs-every-combination-and-compares-the-results`},
	{"begin, hold: not before; not until release", "daemon-begin-and-hold-keep-a-job-back"},
	{"park, unpark: off its GPUs without losing work, and back; the outcome is waited for, and said to those who look on", `
		daemon-park-frees-the-gpus-and-unpark-goes-on
		daemon-parking-says-what-became-of-it
		daemon-whoever-looks-on-is-told-of-parking
		real-a-driver-that-cannot-park-says-so-at-once`},
	{"show --plot, --csv: what a job used over time is kept, also through a restart", "daemon-memory-over-time-is-kept-and-plotted"},
	{"which jobs are parked for others, at their time limit, or idle: what they and the config say", "daemon-which-jobs-are-parked-is-up-to-them-and-the-config"},
	{"gpu drain --park: a GPU is emptied without losing work", "daemon-gpu-drain-parks-what-runs-there"},
	{"top: GPUs, queue, story, live log, keys to act; --once", "daemon-top-shows-the-machine-and-acts"},
	{"directory, env, export", "daemon-environment-is-the-callers-or-what-was-named"},
	{"venv, conda, setup", "daemon-venv-conda-and-setup-come-first-and-may-fail-the-job"},
	{"output: %j %n %a", "daemon-output-goes-where-the-pattern-says"},
	{"terminal: the job gets one, and attach goes there; ctrl-\\ leaves it running", "daemon-attach-goes-to-the-terminal-of-a-job"},
	{"dedup: refuse if the same is queued, running or finished well", "daemon-dedup-refuses-what-is-there-already"},
	{"snapshot: run the code that was submitted, stored once per content, read-only", `
		daemon-a-snapshot-runs-the-code-that-was-submitted
		daemon-a-snapshot-that-cannot-be-made-submits-nothing
		daemon-snapshots-can-be-the-default
		live-a-snapshot-is-the-code-of-the-start`},
	{"requeue, preemptible", `
		daemon-a-reboot-flag-and-preemption-are-kept-with-the-job
		daemon-a-preemptible-job-makes-room-and-runs-again
		daemon-a-job-that-saves-its-work-makes-room-after-its-interval
		daemon-a-checkpoint-file-reports-a-save
		daemon-why-says-what-making-room-would-gain
		daemon-a-job-that-makes-room-is-warned-and-its-exit-code-is-not-its-end
		daemon-sighup-changes-who-gives-way
		daemon-kill-9-while-a-job-makes-room-loses-nothing`},
	{"submit script.sh reads leading #BERTH lines, and #SBATCH lines in Slurm's units; others are listed", `
		daemon-a-script-brings-its-own-flags
		daemon-sbatch-lines-mean-the-same-or-are-listed`},
	{"srun outside a job passes standard input on to its command", "daemon-srun-passes-standard-input-on"},
	{"--to says where a job runs, and --slurm passes options to sbatch; what Slurm cannot do is refused", "daemon-to-says-where-a-job-runs"},
	{"submit -f jobs.yaml takes one spec or a list", `
		daemon-a-spec-file-is-one-job-or-many
		daemon-mistakes-in-a-spec-file-have-their-lines-and-submit-nothing`},
	{"berth web logs a browser in", "daemon-web-logs-a-browser-in-once"},
	{"a group limits and pauses its jobs", `
		daemon-groups-limit-and-pause-their-jobs
		live-a-group-of-lines-has-a-limit`},
	{"a user is told about jobs, by the jobs' rules or the user's own", `
		daemon-a-user-is-told-about-jobs
		run-a-line-says-who-is-told`},
	{"--dry-run says what would happen and why, without submitting", "daemon-dry-run-says-what-would-happen-and-submits-nothing"},
	{"requeue takes another command, and submit --like copies a job", "daemon-a-job-is-run-again-with-another-command"},
	{"a queued job has a reason with numbers", `
		daemon-reasons-have-numbers
		daemon-why-says-when-a-job-is-expected-to-start
		daemon-a-foreign-process-keeps-an-undeclared-job-waiting`},

	// What is done with jobs.
	{"wait and submit --wait/-i return the job's own status; of several the largest", `
		daemon-wait-returns-the-jobs-own-status
		daemon-submit-i-streams-and-returns-the-jobs-status`},
	{"logs [-f]: complete to the last byte, readable live; a line where a part was dropped", `
		daemon-logs-show-what-a-job-printed
		daemon-a-log-beyond-its-limit-says-what-is-missing`},
	{"cancel: ends every descendant; TERM, grace, KILL", "daemon-cancel-ends-jobs-and-all-their-processes"},
	{"requeue, edit", `
		daemon-requeue-runs-a-job-again-with-its-own-id
		daemon-edit-opens-an-editor-on-a-terminal
		daemon-edit-changes-a-job-that-has-not-started
		daemon-edit-takes-every-flag-of-submit`},
	{"adopt: a process started by hand is accounted for, and not owned", `
		daemon-adopt-accounts-for-a-process-and-leaves-it-alone
		daemon-adopt-refuses-what-is-not-to-be-adopted`},
	{"jobs that hold memory and do not use it for long are shown, and never ended unless the config says so", `
		daemon-idle-jobs-are-shown-and-ended-only-by-policy`},
	{"history, stats", "daemon-history-and-stats-sum-up"},
	{"mcp: an agent acts with its user's rights, and changes something only with --write", `
		daemon-mcp-serves-an-agent-with-its-users-rights`},
	{"gpus; gpu pause and resume: running jobs untouched", `
		daemon-gpus-show-cards-and-who-is-on-them
		daemon-gpus-v-lists-the-processes-on-each-card
		daemon-gpu-pause-keeps-jobs-off-and-resume-lets-them-on`},
	{"an admin's word on a card's health, what happened to cards, letting go of the driver", `
		daemon-gpu-quarantine-takes-a-card-out-and-clear-brings-it-back
		daemon-gpu-release-lets-go-of-a-driver-that-is-held`},
	{"health: a bad card takes no job, with the reason and since when, and is well again by itself; applications condemn none", `
		health-a-lost-card-is-quarantined-and-recovers-by-itself
		health-a-card-that-hangs-is-suspect-then-quarantined
		health-an-application-xid-does-not-condemn-a-card-and-a-hard-one-does`},
	{"the memory of a job that ended is gone before its card is given out again; vanished pids", `
		health-memory-that-a-job-leaves-behind-closes-its-card
		health-a-dead-process-that-is-still-listed-is-nobodys`},
	{"list: a table people can read", `
		daemon-the-list-is-a-table-that-fits
		daemon-the-list-is-in-the-order-of-the-queue
		daemon-a-terminal-gets-colours-and-a-cut-table
		daemon-control-bytes-never-reach-a-terminal
		daemon-five-hundred-jobs-are-listed-at-once`},
	{"kill -9 of the daemon loses no acknowledged job, runs none twice, and loses no exit status", `
		daemon-kill-9-of-the-daemon-loses-no-job-and-no-status
		daemon-a-stopped-daemon-leaves-its-jobs-running`},
	{"backup, restore, doctor", `
		daemon-backup-and-restore-bring-the-state-back
		daemon-strays-are-left-alone-and-taken-back
		life-an-emptied-store-runs-no-line-twice
		daemon-doctor-looks-at-the-machine
		cli-doctor-slurm-looks-at-the-cluster
		daemon-config-is-checked-and-reloaded-with-an-answer`},
	{"remote access needs a token; cross-site requests are refused", "daemon-tokens-open-the-http-door"},
}
