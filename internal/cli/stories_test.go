package cli_test

import (
	"bytes"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"berth/internal/cli"
	"berth/internal/job/jobfile"
)

// promise is a sentence of the contract, and the stories that prove it.
type promise struct {
	sentence string
	stories  string // one per line
}

// promises is the index of the stories: what users and their scripts rely on,
// and which stories prove it. To find the proof of a sentence, look it up
// here; to see why a story is there, look for its name.
var promises = append([]promise{
	// How it is called.
	{"--allocations runs a jobs file inside allocations of Slurm, and refuses what makes no sense there", "run-in-allocations-of-slurm-checks-its-flags"},
	{"-j says at the start if something else bounds the jobs at a time", "run-says-what-bounds-jobs-at-a-time"},
	{"list, show, logs, why, wait, history and cancel know the jobs of a berth run, and never mistake them for a daemon's", `
		run-other-commands-see-its-jobs
		run-why-explains-jobs-of-a-run
		run-goes-to-the-queue-of-the-daemon
		run-is-found-from-everywhere
		run-beside-a-daemon-nothing-is-mistaken`},
	{"help ends with an example and the exit statuses", "cli-help-ends-with-an-example-and-the-exit-statuses"},
	{"Tab completes verbs, flags, their values, and jobs", "cli-completion-offers-jobs-and-values"},
	{"help shows the pages of the documentation", "cli-help-shows-pages-of-the-documentation"},
	{"flags have the defaults they are said to have", "cli-defaults-are-as-documented"},
	{"errors go to stderr as a problem and a next step; 2 is bad usage or unreadable input", `
		cli-an-unknown-flag-or-command-gets-a-suggestion
		cli-bad-flag-values-are-bad-usage
		cli-an-unreadable-jobs-file-exits-2
		cli-no-jobs-is-said-and-not-called-success
		cli-a-gpu-that-does-not-exist-is-refused`},
	{"1 is failed or refused", `
		cli-a-log-directory-that-cannot-be-made-is-an-error-with-a-hint
		cli-a-store-of-a-newer-berth-is-refused-and-left-alone`},
	{"no usable GPU source is an error, not success", `
		cli-no-gpu-source-is-an-error-with-a-hint
		cli-an-nvidia-smi-that-fails-is-an-error-with-its-words`},
	{"a machine without a GPU runs the jobs that need none, and refuses the others with a choice", `
		place-a-machine-without-a-gpu-runs-lines-without-one
		daemon-a-machine-without-a-gpu-runs-jobs-without-one`},
	{"two runs on one log directory: the second refuses", "cli-a-second-run-on-one-log-directory-joins-the-first"},
	{"berth is one binary: without its small supervisor it re-executes itself", "cli-berth-keep-is-not-needed-beside-berth"},
	{"the examples do what they say", `
		examples-jobs-runs-well-and-is-short
		examples-trouble-ends-as-its-comments-say`},

	// The jobs file.
	{"a CSV jobs file is chosen by its name or --format csv, and one that could be either is refused", `
		file-csv-is-chosen-by-name-or-flag-and-never-guessed
		file-csv-runs-python-scripts-the-lowest-number-first
		file-csv-gives-a-model-as-much-as-its-table-says
		file-csv-may-be-edited-while-it-runs`},
	{"one shell command per line; blank lines and # lines skipped", `
		file-blank-and-comment-lines-are-skipped
		file-a-line-runs-in-the-shell-as-it-stands
		file-windows-line-ends-are-tolerated
		file-may-be-a-pipe
		life-a-command-of-any-bytes-runs-as-it-stands
		file-a-command-too-long-for-the-system-is-refused`},
	{"a leading block: keys in any case, the last of a repeated key counts, values may be quoted", `
		file-block-keys-in-any-case-the-last-counts-values-quoted`},
	{"a line starting \"[ \" or \"[[\" is a shell test", "file-a-line-that-starts-as-a-shell-test-is-no-block"},
	{"errors name the file and line, list the known keys, and exit 2", `
		file-errors-name-file-and-line-and-list-the-known-keys
		file-every-key-is-understood
		file-every-key-refuses-nonsense
		file-keys-that-contradict-are-refused`},
	{"vram in MiB or with a unit, decimals, any case; a fraction of GPUs above 1 is rounded up", `
		file-vram-takes-units-in-any-case-and-decimals
		file-a-fraction-above-1-is-rounded-up`},
	{"in a jobs file a name that is unknown, not unique, or makes a circle is an error", `
		file-after-unknown-ambiguous-or-circular-is-an-error`},
	{"the file belongs to the user: never written", "file-is-never-written"},
	{"a file that is no jobs file, or no script, is taken for what it is, or refused with the command that was meant", `
		file-what-is-no-jobs-file-is-refused-with-what-was-meant
		daemon-submit-takes-a-file-for-what-it-is
		daemon-the-lines-of-a-jobs-file-are-one-row
		daemon-submit-a-jobs-file`},
	{"directories, virtual environments and outputs that cannot work are refused before anything runs, all together", `
		env-places-that-cannot-work-are-refused-together`},
	{"a line's identity is its command text and its occurrence number", `
		file-equal-lines-are-separate-jobs-with-logs-of-their-own
		live-of-equal-lines-the-last-is-the-one-that-goes`},

	// The live queue.
	{"append: runs", `
		live-an-appended-line-runs
		live-an-append-is-seen-within-the-default-poll`},
	{"a last line without its newline counts once it stayed so for a poll", `
		live-a-last-line-without-its-newline-counts-once-it-stayed-so-for-a-poll
		live-a-first-read-takes-a-last-line-without-its-newline`},
	{"delete a pending line: dequeued", `
		live-an-emptied-file-withdraws-what-waits
		live-a-deleted-pending-line-is-dequeued
		live-a-line-deleted-while-it-runs-is-not-tried-again`},
	{"reorder: the queue is reordered", "live-a-reorder-reorders-the-queue"},
	{"edit a pending line: replaced", "live-an-edited-pending-line-is-replaced"},
	{"attributes are not identity: changing them on a pending line applies", "live-changed-attributes-apply-to-a-pending-line"},
	{"edits to running or finished lines do nothing", `
		live-edits-to-running-or-finished-lines-do-nothing
		live-a-changed-command-is-a-new-job-and-leaves-the-running-one-alone`},
	{"except that adding cancel to a running line cancels it", `
		live-cancel-on-a-running-line-cancels-it
		live-cancel-on-a-pending-line-never-starts-it`},
	{"a malformed save is warned about once and the last good queue kept", `
		live-a-malformed-save-is-warned-about-once-and-the-last-good-queue-kept
		live-a-jobs-file-that-vanishes-is-said-once-and-its-queue-kept`},
	{"--watch stays after the queue drains", `
		live-watch-stays-after-the-queue-drains
		live-watch-may-begin-with-no-jobs-at-all`},

	// Again.
	{"re-running the same command resumes: finished work is skipped, and said", `
		resume-finished-work-is-skipped-and-said
		resume-a-line-is-known-by-what-it-executes
		resume-a-deleted-line-does-not-run-next-time
		resume-after-may-name-what-finished-before`},
	{"old failures are named, counted in the exit status, and re-run with --retry-failed", `
		resume-old-failures-are-named-and-counted-in-the-exit-status
		resume-retry-failed-runs-old-failures-again
		resume-retry-failed-takes-the-attributes-as-they-are-now`},
	{"--fresh starts over", `
		resume-fresh-starts-over-and-sets-old-logs-aside
		resume-a-killed-run-that-is-started-fresh-leaves-nothing-behind`},
	{"a changed line is a new job", "resume-a-changed-line-is-a-new-job"},
	{"Ctrl-C or SIGTERM stops the jobs and exits 130; they run again next time", `
		resume-an-interrupt-stops-the-jobs-and-they-run-again-next-time
		resume-a-supervisor-that-does-not-answer-does-not-hold-berth
		resume-a-second-interrupt-does-not-wait
		resume-a-signal-is-obeyed-before-anything-runs
		life-a-job-gets-term-then-ten-seconds-then-kill`},
	{"a terminal or pipe that goes away or stalls stops nothing", `
		resume-a-hang-up-stops-nothing
		out-a-closed-pipe-does-not-stop-the-jobs
		out-a-stalled-reader-does-not-stop-the-jobs`},
	{"if berth is killed with -9 its jobs go on; the next run adopts them, exit statuses and all, and starts none twice", `
		resume-jobs-go-on-when-berth-is-killed-and-are-adopted`},

	// Flags.
	{"--gpus: card ids; all, or those in an inherited CUDA_VISIBLE_DEVICES", `
		flags-gpus-uses-only-these-cards
		flags-an-inherited-cuda-visible-devices-limits-the-cards`},
	{"--margin, --exclusive, --jobs-per-gpu", `
		flags-margin-is-kept-free-beside-a-declaration
		flags-exclusive-is-one-berth-job-per-gpu
		flags-jobs-per-gpu-gives-undeclared-jobs-an-equal-share
		flags-jobs-per-gpu-waits-where-less-than-the-share-is-free`},
	{"--log-free: a log that grows is cut while its disk is nearly full", "flags-log-free-cuts-a-growing-log-on-a-full-disk"},
	{"--mem-threshold, --load-threshold (only while no berth job is on that card)", `
		flags-mem-threshold-keeps-jobs-off-a-full-card
		flags-load-threshold-keeps-jobs-off-a-card-that-others-load
		flags-load-threshold-is-looked-at-only-without-a-berth-job`},
	{"--placement pack or spread, --policy", `
		flags-placement-pack-fills-and-spread-empties
		flags-policy-decides-whether-a-blocked-job-may-be-passed`},
	{"--max-bypass: nobody is passed for longer; --preempt, --min-run: who gives way, and when", `
		flags-max-bypass-bounds-how-long-a-job-is-passed
		flags-preempt-never-leaves-every-job-where-it-is
		life-a-preemptible-line-makes-room-for-a-higher-priority`},
	{"--sim N, BERTH_SIM, --sim-vram; simjob stands in for a GPU program, or is foreign with --gpu", `
		flags-sim-cards-have-24576-mib-unless-told
		sim-simjob-stands-in-for-a-gpu-program
		sim-a-process-started-by-hand-is-foreign`},

	{"d, or a terminal that closes, detaches a run: the queue goes on in the background, and the same command comes back", `
		run-detaches-and-comes-back
		run-detaches-from-a-pipe-that-has-ended`},
	{"Ctrl-C on a terminal asks before it stops jobs that have run for long", "run-ctrl-c-asks-before-long-work-is-lost"},
	{"--dry-run says what each line would do, and starts and writes nothing", "run-dry-run-starts-and-writes-nothing"},
	{"-j bounds the jobs that run at a time", "run-at-most-n-jobs-at-a-time"},

	// What is said.
	{"a start line and a finish line per job, with the time, streamed as they happen", "out-lines-are-streamed-with-the-time"},
	{"declared-against-actual verdict; under-declaration warns at once, over-declaration is reported at the end", `
		out-a-declaration-is-held-against-what-was-used
		out-tolerance-decides-what-is-off`},
	{"-v shows use as it grows", "out-verbose-shows-use-as-it-grows"},
	{"-q tells only of failed jobs; a failed job shows what it said last", "run-quiet-tells-of-failures-only"},
	{"--to says where the jobs of a file run; the config and the line too", "run-to-says-where-jobs-run"},
	{"a live progress display on a terminal", `
		out-a-terminal-gets-a-live-view
		out-colour-and-redrawing-only-on-a-terminal`},
	{"status.txt is a board: ▶ · ↻ ✓ ✗", `
		out-the-board-marks-how-each-job-stands
		out-the-board-follows-within-a-poll`},
	{"journal.jsonl is an append-only event log", `
		out-the-journal-is-appended-to-and-has-everything
		out-a-torn-journal-line-is-mended`},
	{"--json: one event per line, a job as documented, absent values null", "out-json-is-one-event-per-line-with-the-job-as-documented"},
	{"--log-dir; berth.log is the scheduler's own log", `
		out-berths-own-log-is-in-the-log-directory
		life-a-deep-log-directory-works`},
	{"no name or command can drive the terminal", "out-control-bytes-never-reach-the-output-raw"},
	{"exit status: 0 if every job finished well, else the largest failing exit code; signals count 1", `
		life-an-exit-status-is-kept-as-it-was
		life-signals-count-one-in-the-exit-status
		life-a-failing-job-does-not-stop-the-others`},

	// Placement.
	{"each foreign process is held at its observed peak × (1 + spike-buffer) until it exits", `
		place-a-foreign-process-is-held-at-its-buffered-peak-until-it-exits
		place-spike-buffer-sets-how-much-above-the-peak-is-held`},
	{"in all never less than device-used minus what berth's own jobs use", "real-memory-that-no-process-explains-is-foreign"},
	{"where pids can't be matched: what was used before berth's first job, plus whatever exceeds the budgets", `
		place-where-processes-are-hidden-use-is-told-by-what-was-there-before`},
	{"each job is budgeted at its declaration from the moment it is placed; past it, at peak × (1 + spike-buffer)", `
		place-a-job-is-budgeted-at-its-declaration-from-the-start
		place-a-job-over-its-declaration-is-budgeted-at-its-buffered-peak`},
	{"a share: the shares on a card sum to ≤ 1, budgeted at 95 % of the card; with VRAM both rules", `
		place-shares-of-a-card-sum-to-one
		place-a-share-is-budgeted-at-its-part-of-95-percent
		place-a-share-with-vram-keeps-both-rules`},
	{"neither: an idle card, a desktop not counted, and nothing joins", `
		place-an-undeclared-job-wants-an-idle-card
		place-a-desktop-does-not-make-a-card-busy
		place-nothing-joins-an-undeclared-job`},
	{"if GPUs cannot be read, nothing starts; what runs goes on", `
		place-nothing-starts-while-the-gpus-cannot-be-read
		place-nothing-starts-on-a-card-that-fell-off-the-bus
		real-an-nvidia-smi-that-stops-answering-starts-nothing`},
	{"ids exactly and in order, allow, type, exclusive", `
		place-exact-ids-in-their-order
		place-allow-and-type-limit-the-choice
		place-exclusive-shares-with-no-berth-job-but-with-others`},
	{"several GPUs: distinct, best connected, all or nothing", `
		place-several-gpus-are-the-best-connected-that-fit
		place-several-gpus-all-or-nothing`},
	{"what could not fit on the empty machine ends infeasible at once and the rest goes on", `
		place-what-cannot-fit-the-empty-machine-is-infeasible-at-once
		place-infeasible-is-measured-against-totals-not-what-is-free`},
	{"cpus and mem are accounted", `
		place-cpus-are-accounted-for
		place-host-memory-is-accounted-for`},
	{"priority first, then the order of the file; after :ok, :any, :fail", `
		place-priority-first-then-the-order-of-the-file
		place-after-ok-any-and-fail`},
	{"cap=soft sets what frameworks honour", "place-cap-soft-tells-frameworks-their-part"},
	{"cap=mps holds a job to its memory, or is refused", `
		place-cap-mps-is-a-server-of-the-jobs-own
		place-cap-mps-is-refused-where-it-holds-nothing`},
	{"per-job, per-GPU peaks, attributed by session and ancestry; vram=auto takes them", `
		place-use-is-measured-per-job-also-in-other-sessions
		place-vram-auto-takes-what-the-same-command-used-before
		daemon-estimates-say-whose-runs-they-come-from
		real-nvidia-smi-is-read-through-its-own-words`},
	{"several berths on one machine see each other's reservations", `
		place-two-berths-on-one-machine-see-each-others-reservations
		place-a-berth-inside-a-job-uses-what-that-job-holds`},

	// A job's life.
	{"a flag of the command is told the granted cards, by their numbers or from 0, where it is asked for", `
		env-inject-gpus-tells-the-command-its-cards
		env-inject-gpus-in-a-jobs-file-is-each-lines-own`},
	{"CUDA_VISIBLE_DEVICES and its kin always match the grant and cannot be overridden", `
		env-a-job-sees-the-cards-it-was-granted
		env-a-jobs-own-environment-cannot-change-its-cards
		env-a-cpu-job-sees-an-empty-list`},
	{"dir, env.K, berth's own directory in PATH, nothing else of berth's", `
		env-dir-is-the-working-directory
		env-a-job-inherits-the-callers-and-adds-its-own
		env-berths-own-directory-is-appended-to-path
		life-a-job-begins-with-a-clean-slate`},
	{"venv, conda, setup: activated before the command; a failing set-up fails the job and says so", `
		env-setup-runs-before-the-command-in-its-shell
		env-venv-is-activated-before-the-command
		env-conda-is-activated-before-the-command
		env-a-failing-setup-fails-the-job-and-says-so`},
	{"output patterns", `
		env-output-goes-where-the-pattern-says
		env-a-name-cannot-lead-output-to-another-directory`},
	{"own session; ending a job ends every descendant, also those that changed session", `
		life-a-job-has-a-session-of-its-own
		life-the-end-of-a-job-ends-every-descendant
		life-a-cancelled-job-takes-its-descendants-along`},
	{"TERM, 10 s or grace, KILL", "life-grace-is-the-time-between-term-and-kill"},
	{"stdout and stderr to its log, complete to the last byte, readable live", "life-output-is-complete-to-the-last-byte-and-readable-live"},
	{"OOM retry with ceil(1.25 × max(peak, declared)), never above the largest allowed card, recorded", `
		life-oom-retry-declares-a-quarter-more-than-peak-or-declaration
		life-oom-retry-never-declares-more-than-the-largest-allowed-card-holds
		life-a-raised-declaration-survives-a-restart
		life-oom-without-retries-left-ends-oom`},
	{"other failures use no OOM retry; a line's retries override the flag, 0 too; retry_on=fail backs off", `
		life-other-failures-use-no-oom-retry
		life-retries-on-a-line-override-the-flag-0-too
		life-retry-on-fail-counts-every-failure-and-backs-off`},
	{"a job that handles TERM and exits 0 at its limit is still timeout; no hang heuristics", `
		life-a-time-limit-ends-the-job-however-it-exits
		life-nothing-is-taken-for-a-hang`},
	{"signal before the limit; on_timeout=requeue to the end of the queue, at most so often", `
		life-a-warning-signal-comes-before-the-limit
		life-on-timeout-requeue-goes-to-the-end-of-the-queue-a-bounded-number-of-times`},
	{"lost is never guessed to be success", "life-a-killed-supervisor-is-lost-and-never-success"},
}, slices.Concat(daemonPromises, simulatePromises, gpuschedPromises)...)

func TestEveryStoryProvesASentence(t *testing.T) {
	listed := map[string]bool{}
	for _, promise := range promises {
		names := strings.Fields(promise.stories)
		if len(names) == 0 {
			t.Errorf("no story proves that %s", promise.sentence)
		}
		for _, name := range names {
			listed[name] = true
			if _, err := os.Stat(filepath.Join(stories, name+".txtar")); err != nil {
				t.Errorf("the story %s is not told: %v", name, err)
			}
		}
	}
	for name := range told(t) {
		if !listed[name] {
			t.Errorf("the story %s proves no sentence", name)
		}
	}
}

// told is the text of every story, by name.
func told(t *testing.T) map[string]string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(stories, "*.txtar"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no stories in %s (%v)", stories, err)
	}
	texts := map[string]string{}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		texts[strings.TrimSuffix(filepath.Base(file), ".txtar")] = string(text)
	}
	return texts
}

func TestEveryKeyAndFlagIsInAStory(t *testing.T) {
	all := strings.Join(slices.Collect(maps.Values(told(t))), "")
	headers := linesWith(all, "[")
	keys := []string{"env."}
	for _, f := range jobfile.Fields() {
		if f.Where != jobfile.SubmitOnly {
			keys = append(keys, f.Key)
		}
	}
	for _, key := range keys {
		if !regexp.MustCompile(`(?m)^\[([^\]]* )?` + regexp.QuoteMeta(key) + `([^\]]*)\]`).MatchString(headers) {
			t.Errorf("no story uses the key %s", key)
		}
	}
	flags, submits := 0, helpOf(t, "submit")
	for _, verb := range verbs(t) {
		calls := linesWith(all, usedAs(verb)...)
		for _, flag := range flagForm.FindAllStringSubmatch(helpOf(t, verb), -1) {
			short, long := flag[1], flag[2]
			if flags++; long == "help" || long == "host" || long == "socket" && verb != "serve" { // these are the same for all
				continue
			}
			// A sweep registers the flags of submit with the same functions.
			if verb == "sweep" && strings.Contains(submits, " --"+long+" ") {
				continue
			}
			forms := "--" + long + `\b`
			if short != "" {
				forms += "|-[a-z]*" + short + `\b`
			}
			if !regexp.MustCompile(`(?m)\b(` + strings.Join(usedAs(verb), "|") + `)( .*)? (` + forms + ")").MatchString(calls) {
				t.Errorf("no story uses %s --%s", verb, long)
			}
		}
	}
	if flags < 100 {
		t.Fatalf("help shows %d flags in all", flags)
	}
}

var (
	flagForm = regexp.MustCompile(`(?m)^ +(?:-(\w), )?--([a-z-]+)`)
	verbForm = regexp.MustCompile(`(?m)^  ([a-z]+) {2,}[A-Z]`)
)

// linesWith are the lines that have one of the words: a search for words takes much
// less time than a regular expression.
func linesWith(text string, words ...string) string {
	var found strings.Builder
	for line := range strings.Lines(text) {
		if slices.ContainsFunc(words, func(word string) bool { return strings.Contains(line, word) }) {
			found.WriteString(line)
		}
	}
	return found.String()
}

// usedAs is how a story calls a verb: the helper for daemons is serve.
func usedAs(verb string) []string {
	if verb == "serve" {
		return []string{"berth serve", "daemon"}
	}
	return []string{"berth " + verb}
}

// verbs are all commands, those of commands as two words.
func verbs(t *testing.T) []string {
	t.Helper()
	var list []string
	for _, found := range verbForm.FindAllStringSubmatch(helpOf(t, ""), -1) {
		verb := found[1]
		if verb == "help" || verb == "completion" {
			continue
		}
		list = append(list, verb)
		for _, below := range verbForm.FindAllStringSubmatch(helpOf(t, verb), -1) {
			list = append(list, verb+" "+below[1])
		}
	}
	if len(list) < 25 {
		t.Fatalf("only %d verbs: %v", len(list), list)
	}
	return list
}

func helpOf(t *testing.T, verb string) string {
	t.Helper()
	var help bytes.Buffer
	if code := cli.Main(append(strings.Fields(verb), "--help"), &help, &help); code != 0 {
		t.Fatalf("help of %q exits with %d", verb, code)
	}
	return help.String()
}

func TestHelpOfEveryVerbEndsWithAnExampleAndTheExitStatuses(t *testing.T) {
	for _, verb := range verbs(t) {
		help := helpOf(t, verb)
		example := regexp.MustCompile(`(?s)\nExamples:\n.*berth ` + verb + `.*\nExit status: .*[;.]`)
		if !example.MatchString(help) {
			t.Errorf("the help of %s has no example or no exit statuses:\n%s", verb, help)
		}
		for line := range strings.Lines(help) {
			if strings.HasPrefix(line, "  ") {
				continue // flags and examples are as long as they must be
			}
			if n := len([]rune(strings.TrimSuffix(line, "\n"))); n > 80 {
				t.Errorf("the help of %s has a line of %d columns: %s", verb, n, line)
			}
		}
	}
}

func TestEveryVerbRefusesAnUnknownFlagWithTheWayToItsHelp(t *testing.T) {
	for _, verb := range verbs(t) {
		var out, errOut bytes.Buffer
		code := cli.Main(append(strings.Fields(verb), "--no-such-thing-at-all"), &out, &errOut)
		if code != 2 || out.Len() > 0 {
			t.Errorf("%s: exit status %d, want 2; stdout %q", verb, code, out.String())
		}
		want := regexp.MustCompile(`^berth: unknown flag: --no-such-thing-at-all\nhint: .*berth ` + verb + ` --help\n$`)
		if !want.MatchString(errOut.String()) {
			t.Errorf("%s says %q", verb, errOut.String())
		}
	}
}
