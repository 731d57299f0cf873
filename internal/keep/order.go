package keep

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

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
	return token + ":" + job + ":" + strconv.Itoa(attempt)
}

// maxJobID keeps a job's id whole in a record and in a directory's name.
const maxJobID = 100

// Check refuses an order that no supervisor could carry out or tell of.
func (o Order) Check() error {
	switch {
	case len(o.Argv) == 0:
		return fmt.Errorf("order for job %s has no command", o.Job)
	case o.Job == "" || len(o.Job) > maxJobID || strings.IndexFunc(o.Job, notInID) >= 0:
		return fmt.Errorf("order for job %q: not an id", o.Job)
	case o.WarnSignal < 0 || o.WarnSignal > lastSignal:
		return fmt.Errorf("order for job %s: no signal %d", o.Job, o.WarnSignal)
	}
	return nil
}

func notInID(r rune) bool {
	return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && r != '_' && r != '-' && r != '.'
}

// Frame renders the order as its "go".
func (o Order) Frame() Frame {
	f := Frame{Kind: FrameGo}
	add := func(key, value string) { f.Fields = append(f.Fields, Field{key, value}) }
	add("job", o.Job)
	add("attempt", strconv.Itoa(o.Attempt))
	for _, word := range o.Argv {
		add("arg", word)
	}
	for _, entry := range o.Env {
		add("env", entry)
	}
	add("dir", o.Dir)
	add("log", o.Log)
	add("setup", strconv.FormatBool(o.Setup))
	add("cgroup_parent", o.CgroupParent)
	add("limit_ns", strconv.FormatInt(int64(o.Limit), 10))
	add("grace_ns", strconv.FormatInt(int64(o.Grace), 10))
	add("warn_before_ns", strconv.FormatInt(int64(o.WarnBefore), 10))
	add("warn_signal", strconv.Itoa(o.WarnSignal))
	return f
}

// orderOf reads the order back.
func orderOf(f Frame) (Order, error) {
	// What outlasts the start is copied, so that the rest can be forgotten.
	own := func(key string) string { return strings.Clone(f.Get(key)) }
	o := Order{
		Job: own("job"), Argv: f.All("arg"), Env: f.All("env"), Dir: own("dir"), Log: own("log"),
		Setup: f.Get("setup") == "true", CgroupParent: own("cgroup_parent"),
	}
	var err error
	number := func(key string) int64 {
		text := f.Get(key)
		if text == "" {
			return 0
		}
		n, parseErr := strconv.ParseInt(text, 10, 64)
		if parseErr != nil {
			err = fmt.Errorf("%w: %s: %w", ErrFrame, key, parseErr)
		}
		return n
	}
	o.Attempt = int(number("attempt"))
	o.Limit = time.Duration(number("limit_ns"))
	o.Grace = max(0, time.Duration(number("grace_ns")))
	o.WarnBefore = time.Duration(number("warn_before_ns"))
	o.WarnSignal = int(number("warn_signal"))
	if err != nil {
		return Order{}, err
	}
	return o, o.Check()
}
