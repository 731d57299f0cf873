package client

import (
	"errors"
	"path/filepath"
	"slices"
	"testing"

	"berth/internal/tests/testkit"
)

// programs is a Slurm whose programs are these scripts.
func programs(t *testing.T, scripts map[string]string) Client {
	t.Helper()
	dir := t.TempDir()
	for name, script := range scripts {
		testkit.Write(t, filepath.Join(dir, name), "#!/bin/sh\n"+script+"\n", 0o755)
	}
	return Client{Environ: []string{"A=b", "PATH=relative:" + dir + ":/bin:/usr/bin"}, Dir: dir}
}

// TestWhatAFailureMeans: asking again helps unless Slurm itself refused.
func TestWhatAFailureMeans(t *testing.T) {
	for script, want := range map[string]Kind{
		"echo 'sbatch: error: Batch job submission failed: Invalid partition name specified' >&2; exit 1":                         Refused,
		"echo 'sbatch: error: Batch job submission failed: Unable to contact slurm controller (connect failure)' >&2; exit 1":     Away,
		"echo 'sbatch: error: QOSMaxSubmitJobPerUserLimit' >&2; echo 'sbatch: error: Batch job submission failed: x' >&2; exit 1": Full,
		"kill -9 $$":         Away, // it may have been heard
		"echo no id; exit 0": Away,
	} {
		id, err := programs(t, map[string]string{"sbatch": script}).Submit(t.Context(), []string{"script"})
		if e, ok := errors.AsType[*Error](err); !ok || e.Kind != want || id != "" {
			t.Errorf("%s: %q, %v", script, id, err)
		}
	}
	if _, err := (Client{Environ: []string{"PATH=" + t.TempDir()}}).Queue(t.Context()); !Is(err, Missing) {
		t.Errorf("without Slurm: %v", err)
	}
}

// TestAnErrorIsOneLine: each thing once, without the prefixes of the programs.
func TestAnErrorIsOneLine(t *testing.T) {
	_, err := programs(t, map[string]string{"sbatch": "printf 'sbatch: error: Memory specification can not be satisfied\nsbatch: error: Batch job submission failed: Requested node configuration is not available\n\nsbatch: error: Memory specification can not be satisfied\n' >&2; exit 1"}).Submit(t.Context(), nil)
	if want := "Memory specification can not be satisfied; Requested node configuration is not available"; err == nil || err.Error() != want {
		t.Errorf("%v, want %s", err, want)
	}
}

// TestWhereAProgramRuns: with the caller's environment, in its directory.
func TestWhereAProgramRuns(t *testing.T) {
	c := programs(t, map[string]string{"sbatch": `pwd >"$1"; echo "$A" >>"$1"; echo '7;cluster'`})
	id, err := c.Submit(t.Context(), []string{"seen"})
	if got := testkit.Read(t, filepath.Join(c.Dir, "seen")); err != nil || id != "7" || got != c.Dir+"\nb\n" {
		t.Errorf("%q, %v, %q", id, err, got)
	}
}

// TestAccountsWithoutAccounting: what slurmctld does not remember is missing, and one
// that cannot be asked is an error.
func TestAccountsWithoutAccounting(t *testing.T) {
	c := programs(t, map[string]string{
		"sacct":    "echo 'accounting storage is disabled' >&2; exit 1",
		"scontrol": `case "$*" in *7) echo 'JobId=7 JobName=a JobState=COMPLETED ExitCode=0:0';; *8) echo 'slurm_load_jobs error: Invalid job id specified' >&2; exit 1;; *) echo 'Socket timed out on send/recv operation' >&2; exit 1; esac`,
	})
	accounts, err := c.Accounts(t.Context(), []string{"7", "8"})
	if err != nil || len(accounts) != 1 || accounts[0].ID != "7" {
		t.Errorf("%+v, %v", accounts, err)
	}
	if _, err := c.Accounts(t.Context(), []string{"7", "9"}); !Is(err, Away) {
		t.Errorf("an outage: %v", err)
	}
}

// TestManyIDs are cancelled in several calls, and one that fails hides no other.
func TestManyIDs(t *testing.T) {
	c := programs(t, map[string]string{"scancel": `echo $# >>calls; case "$2" in 1) echo 'Socket timed out' >&2; exit 1; esac`})
	err := c.Cancel(t.Context(), slices.Repeat([]string{"1"}, maxIDs+1), "--quiet")
	if got := testkit.Read(t, filepath.Join(c.Dir, "calls")); !Is(err, Away) || got != "501\n2\n" {
		t.Errorf("%v, %q", err, got)
	}
}
