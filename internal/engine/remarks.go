package engine

import (
	"strings"

	"berth/internal/job"
)

// remarked tells, once each, of what a job has to do without, as its supervisor
// notes it: a limit that could not be set, an MPS server that ended.
func (t *Turn) remarked(a *attempt, notes string) {
	if rest, known := strings.CutPrefix(notes, a.remarks); known && rest != "" {
		a.remarks = notes
		t.tell(job.EventWarning, a.job, strings.TrimPrefix(rest, "; "))
	}
}
