package slurm

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"berth/internal/tests/testkit"
)

// recorded reads the output of a program in the forms of several releases. The
// files show the separator as a visible sign.
func recorded(t *testing.T, program string, read func(out string) (any, error)) {
	t.Helper()
	defer func(zone *time.Location) { time.Local = zone }(time.Local)
	time.Local = time.UTC
	files, err := filepath.Glob("testdata/" + program + "-*.txt")
	if err != nil || len(files) < 4 {
		t.Fatalf("%v: %v", files, err)
	}
	for _, file := range files {
		raw, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		values, err := read(strings.ReplaceAll(string(raw), "␟", separator))
		if err != nil {
			t.Errorf("%s: %v", file, err)
			continue
		}
		got, err := json.MarshalIndent(values, "", "\t")
		if err != nil {
			t.Fatal(err)
		}
		testkit.Golden(t, strings.TrimSuffix(file, ".txt")+".json", append(got, '\n'))
	}
}

func TestQueueOfOtherReleases(t *testing.T) {
	recorded(t, "squeue", func(out string) (any, error) {
		entries, err := Queue(out)
		type told struct {
			Entry
			Why string
		}
		all := make([]told, len(entries))
		for i, e := range entries {
			all[i] = told{e, Why(e)}
		}
		return all, err
	})
}

func TestAccountsOfOtherReleases(t *testing.T) {
	recorded(t, "sacct", func(out string) (any, error) {
		accounts, err := Accounts(out)
		type judged struct {
			Account
			Outcome string
		}
		all := make([]judged, len(accounts))
		for i, a := range accounts {
			outcome, detail := a.Outcome()
			all[i] = judged{a, fmt.Sprintf("%s: %s", outcome, detail)}
		}
		return all, err
	})
}

func TestNodesOfOtherReleases(t *testing.T) {
	recorded(t, "sinfo", func(out string) (any, error) { return Nodes(out) })
}

func TestOutputOfAnotherForm(t *testing.T) {
	read := map[string]func(string) error{
		"squeue": func(out string) error { _, err := Queue(out); return err },
		"sacct":  func(out string) error { _, err := Accounts(out); return err },
		"sinfo":  func(out string) error { _, err := Nodes(out); return err },
	}
	for program, read := range read {
		if err := read("\n"); err != nil {
			t.Errorf("%s: nothing printed: %v", program, err)
		}
		if err := read("Usage: something else\n"); err == nil || !strings.Contains(err.Error(), program+": expected a table, found") {
			t.Errorf("%s: %v", program, err)
		}
	}
}

func TestSpan(t *testing.T) {
	for cell, want := range map[string]time.Duration{
		"UNLIMITED": 0, "INVALID": 0, "": 0, "0": 0, "30": 30 * time.Minute, "1:30": 90 * time.Second, "2:00:00": 2 * time.Hour,
		"1-02:03:04": 26*time.Hour + 3*time.Minute + 4*time.Second, "1-x": 0, "1:2:3:4": 0,
	} {
		if got := span(cell); got != want {
			t.Errorf("%q: %v, want %v", cell, got, want)
		}
	}
}

func TestWhy(t *testing.T) {
	for reason, want := range map[string]string{
		"":                              "",
		"Priority":                      "other jobs have a higher priority (Priority)",
		"Resources":                     "waits for free resources: GPUs, CPUs or memory (Resources)",
		"QOSMaxGRESPerUser":             "the limit of its QOS on GPUs per user is reached (QOSMaxGRESPerUser)",
		"QOSMaxGRESPerJob":              "it asks for more GPUs than its QOS allows per job (QOSMaxGRESPerJob)",
		"AssocGrpGRES":                  "the limit of its account on GPUs is reached (AssocGrpGRES)",
		"AssocGrpGRESRunMinutes":        "the limit of its account on the total time of GPUs is reached (AssocGrpGRESRunMinutes)",
		"AssocGrpCPUMinutesLimit":       "the limit of its account on the total time of CPUs is reached (AssocGrpCPUMinutesLimit)",
		"AssocMaxJobsLimit":             "the limit of its account on running jobs is reached (AssocMaxJobsLimit)",
		"QOSMaxCpuPerUserLimit":         "the limit of its QOS on CPUs per user is reached (QOSMaxCpuPerUserLimit)",
		"QOSMaxWallDurationPerJobLimit": "it asks for more time than its QOS allows per job (QOSMaxWallDurationPerJobLimit)",
		"QOSMinGRES":                    "it asks for fewer GPUs than its QOS requires (QOSMinGRES)",
		"MaxGRESPerAccount":             "the limit of Slurm on GPUs per account is reached (MaxGRESPerAccount)",
		"PartitionTimeLimit":            "its time limit exceeds that of its partition (PartitionTimeLimit)",
		"ReqNodeNotAvail, UnavailableNodes:n[1-2]": "a node that it requires is down, drained or reserved (ReqNodeNotAvail, UnavailableNodes:n[1-2])",
		"launch failed requeued held":              "Slurm could not start it on a node and holds it; release it with: scontrol release (launch failed requeued held)",
		"launch_failed_requeued_held":              "Slurm could not start it on a node and holds it; release it with: scontrol release (launch failed requeued held)",
		"Nodes required for job are DOWN, DRAINED or reserved for jobs in higher priority partitions": "its nodes are down, drained or reserved for partitions with a higher priority (Resources)",
		"BrandNewReason": "BrandNewReason",
		"QOSMaxFoo":      "QOSMaxFoo",
		"QOSMaxJobsOdd":  "QOSMaxJobsOdd",
	} {
		if got := Why(Entry{Reason: reason}); got != want {
			t.Errorf("%s:\n got %s\nwant %s", reason, got, want)
		}
	}
}

func TestTemporary(t *testing.T) {
	for stderr, want := range map[string]bool{
		"sbatch: error: Batch job submission failed: Unable to contact slurm controller (connect failure)":                                                                                         true,
		"slurm_load_jobs error: Unable to contact slurm controller (connect failure)":                                                                                                              true,
		"sbatch: error: Batch job submission failed: Socket timed out on send/recv operation":                                                                                                      true,
		"sbatch: error: Slurm temporarily unable to accept job, sleeping and retrying":                                                                                                             true,
		"sbatch: error: Batch job submission failed: Resource temporarily unavailable":                                                                                                             true,
		"sbatch: error: Munge encode failed: Failed to access \"/run/munge/munge.socket.2\": No such file or directory":                                                                            true,
		"sbatch: error: Batch job submission failed: Protocol authentication error":                                                                                                                true,
		"scancel: error: Kill job error on job id 7: Zero Bytes were transmitted or received":                                                                                                      true,
		"sacct: error: slurm_persist_conn_open_without_init: failed to open persistent connection to host:d:6819: Connection refused":                                                              true,
		"sbatch: error: slurm_msg_sendto: address:port=127.0.0.1:6817 msg_type=4003: Unexpected missing socket error\nsbatch: error: Batch job submission failed: Unexpected missing socket error": true,
		"sbatch: error: Batch job submission failed: System submissions disabled":                                                                                                                  true,
		"sbatch: error: Batch job submission failed: Unable to create job record, try again":                                                                                                       true,
		"sbatch: error: QOSMaxSubmitJobPerUserLimit\nsbatch: error: Batch job submission failed: Job violates accounting/QOS policy (job submit limit, user's size and/or time limits)":            true,
		"sbatch: error: AssocMaxSubmitJobLimit\n":                                                                                                                                                  true,
		"sbatch: error: Batch job submission failed: Requested node configuration is not available":                                                                                                false,
		"sbatch: error: Batch job submission failed: Invalid account or account/partition combination specified":                                                                                   false,
		"sbatch: error: QOSMaxWallDurationPerJobLimit\nsbatch: error: Batch job submission failed: Job violates accounting/QOS policy (job submit limit, user's size and/or time limits)":          false,
		"sbatch: error: invalid partition specified: nosuch":                                                                                                                                       false,
		"sbatch: error: Invalid --constraint specification":                                                                                                                                        false,
		"scancel: error: Kill job error on job id 7: Invalid job id specified":                                                                                                                     false,
		"Slurm accounting storage is disabled":                                                                                                                                                     false,
		"":                                                                                                                                                                                         false,
	} {
		if got := Temporary(stderr); got != want {
			t.Errorf("%s: %v", stderr, got)
		}
	}
}

func TestRemembered(t *testing.T) {
	out := `JobId=12 ArrayJobId=10 ArrayTaskId=3 JobName=two words UserId=ann(1000) JobState=FAILED Reason=NonZeroExitCode Dependency=(null) ExitCode=3:0 StartTime=2026-03-01T10:00:00 EndTime=2026-03-01T10:05:00 NodeList=n1 Comment=berth:b1 Command=/x JobState=COMPLETED
JobId=10 ArrayJobId=10 ArrayTaskId=4294967294 JobName=x JobState=CANCELLED StartTime=2026-03-01T10:00:00 EndTime=2026-03-01T10:00:00 NodeList=(null) ExitCode=0:0
JobId=13 ArrayJobId=10 ArrayTaskId=4-9%2 JobName=x JobState=PENDING StartTime=Unknown EndTime=Unknown NodeList=(null) ExitCode=0:0
slurm_load_jobs error: Invalid job id specified
`
	got := Remembered(out)
	if len(got) != 3 || got[0].ID != "10_3" || got[0].State != "FAILED" || got[0].ExitCode != 3 || got[0].Node != "n1" || got[0].Comment != "berth:b1" || got[0].End.IsZero() {
		t.Errorf("%+v", got)
	}
	if len(got) == 3 && (got[1].ID != "10" || got[2].ID != "13" || !got[2].Start.IsZero() || got[2].Node != "") {
		t.Errorf("%+v", got[1:])
	}
}
