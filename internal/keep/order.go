package keep

import "time"

// Order is all a supervisor has to know to run a job. It arrives in one frame,
// and receiving it whole is the "go": half an order runs nothing.
type Order struct {
	Job     string
	Attempt int

	Argv []string // Argv[0] is looked up in the PATH of Env when it has no slash
	Env  []string // the whole environment, but for BERTH_TOKEN, which the supervisor adds
	Dir  string
	Log  string // appended to; its directories are made

	// Setup says that the command is a wrapper which writes "ok" to
	// descriptor 3 once its set-up has succeeded.
	Setup bool

	// CgroupParent is the directory to make the job's cgroup in; empty for none.
	CgroupParent string

	Limit      time.Duration // 0: none
	Grace      time.Duration // between TERM and KILL, and for what outlives the main process
	WarnBefore time.Duration
	WarnSignal int // sent WarnBefore ahead of the limit; 0: none
}

// TokenVariable is in the environment of every process of a job, so that they
// can be found again when the supervisor died. Its value is TokenValue's.
const TokenVariable = "BERTH_TOKEN"

// TokenValue names one attempt of one job under one supervisor.
func TokenValue(token, job string, attempt int) string {
	return token + ":" + job + ":" + itoa(attempt)
}
