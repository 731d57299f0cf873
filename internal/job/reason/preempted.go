package reason

// Preempted completes "the job was …" and "the job is being …".
func Preempted(other string) string {
	if other == "" {
		return "preempted"
	}
	return "preempted for job " + other
}

// AfterPreemption is why a job waits, preceded by the job it was preempted for,
// if any.
func AfterPreemption(other, why string) string {
	if other == "" || why == "" {
		return why
	}
	return Preempted(other) + "; " + why
}
