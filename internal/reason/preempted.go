package reason

// Preempted is what became of a job that made room for another: it "was set
// aside for job 7", or "is being".
func Preempted(other string) string {
	if other == "" {
		return "set aside"
	}
	return "set aside for job " + other
}

// AfterPreemption is why a job waits, and before that the job it was set aside for,
// if it was.
func AfterPreemption(other, why string) string {
	if other == "" || why == "" {
		return why
	}
	return Preempted(other) + "; " + why
}
