package job

import "testing"

// TestIDsInSlurmsVariables: they are numbers, never ids of Slurm where there is one,
// and come back as berth's.
func TestIDsInSlurmsVariables(t *testing.T) {
	const largest = 67_043_328 // of Slurm's ids
	if slurmJobs <= largest || slurmTasks <= slurmJobs {
		t.Errorf("%d and %d", slurmJobs, slurmTasks)
	}
	for _, row := range []struct {
		job       Job
		apart     bool
		id, array string
	}{
		{Job{ID: "17", Seq: 17}, false, "17", ""},
		{Job{ID: "17", Seq: 17}, true, "2000000017", ""},
		{Job{ID: "17_3", Seq: 20}, false, "2100000020", "17"},
		{Job{ID: "17_3", Seq: 20}, true, "2100000020", "2000000017"},
	} {
		if id, array := row.job.SlurmIDs(row.apart); id != row.id || array != row.array {
			t.Errorf("%s: %s of %s", row.job.ID, id, array)
		}
	}
	for word, want := range map[string]string{
		"2000000017": "17", "2000000017_3": "17_3", "JobId=2000000017": "JobId=17", "-j2000000017,18": "-j17,18", "2000000017_[1-3]": "17_[1-3]",
		"2100000020": "2100000020", "17": "17", "12000000017": "12000000017",
	} {
		if got := FromSlurm(word); got != want {
			t.Errorf("%s is %s, want %s", word, got, want)
		}
	}
}
