package gpuscheduler

import (
	"fmt"
	"math"
	"time"

	"berth/internal/api"
	"berth/internal/compat/frontend"
	"berth/internal/queue/config"
	"berth/internal/sched"
)

// options are the flags of start, checked.
type options struct {
	stateFile, jobsFile, llmConfig string

	gpus                     int // 0: all
	screen                   bool
	memThreshold, loadLimit  float64
	monitorEvery, stateEvery time.Duration
	maxAttempts              int
	retryWait                time.Duration
	sim                      int
}

// shared is what all parts of the scheduler use.
type shared struct {
	opt    options
	log    *logger
	client *api.Client
	index  *index
}

func parseStart(stateFile string, args []string) (options, error) {
	o := options{stateFile: stateFile}
	flags := newFlags(&o.stateFile)
	flags.IntVar(&o.gpus, "gpus", 0, "")
	flags.StringVar(&o.jobsFile, "jobs-file", "jobs.txt", "")
	flags.StringVar(&o.llmConfig, "llm-config", "llm_config.json", "")
	flags.BoolVar(&o.screen, "screen", false, "")
	flags.Float64Var(&o.memThreshold, "mem-threshold", 0.8, "")
	flags.Float64Var(&o.loadLimit, "load-threshold", 0.8, "")
	monitor := flags.Float64("monitor-interval", 30, "")
	state := flags.Float64("state-interval", 20, "")
	flags.IntVar(&o.maxAttempts, "max-assign-attempts", 5, "")
	wait := flags.Float64("assign-retry-wait", 5, "")
	flags.IntVar(&o.sim, "sim", 0, "")
	if err := parse(flags, "start", args, 0); err != nil {
		return o, err
	}
	for _, n := range []struct {
		flag      string
		value     float64
		low, most float64
		expected  string
	}{
		{"mem-threshold", o.memThreshold, 0, 1, "a number from 0 to 1"},
		{"load-threshold", o.loadLimit, 0, 1, "a number from 0 to 1"},
		{"monitor-interval", *monitor, 0.01, 86400, "seconds from 0.01 to 86400"},
		{"state-interval", *state, 0.01, 86400, "seconds from 0.01 to 86400"},
		{"max-assign-attempts", float64(o.maxAttempts), 1, 1000, "a number from 1 to 1000"},
		{"assign-retry-wait", *wait, 0, 86400, "seconds from 0 to 86400"},
		{"gpus", float64(o.gpus), 1, 1024, "a number from 1 to 1024"},
		{"sim", float64(o.sim), 1, frontend.MaxSim, "a number from 1 to 1024"},
	} {
		if flags.Changed(n.flag) && !(n.value >= n.low && n.value <= n.most) { // NaN fails both
			return o, fmt.Errorf("--%s: expected %s, found %v", n.flag, n.expected, n.value)
		}
	}
	o.monitorEvery, o.stateEvery, o.retryWait = seconds(*monitor), seconds(*state), seconds(*wait)
	if !flags.Changed("sim") {
		var err error
		o.sim, err = frontend.Sim()
		return o, err
	}
	return o, nil
}

func seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }

// noIdleRule leaves it to the memory threshold whether a GPU with external
// processes may be used.
const noIdleRule = math.MaxInt64 / 4

// A fraction of a GPU says nothing about memory: a job starts while less than the
// threshold is in use. It declares the least there is, and nothing is said about
// using more.
const (
	fractionMiB = 1
	noTolerance = math.MaxInt32
)

// below is the largest number below a threshold: a GPU is usable while its use is
// less than the threshold, and under berth's rules while it is not above it. Below
// 0 no GPU is usable.
func below(threshold float64) float64 { return math.Nextafter(threshold, -1) }

// rules sets berth's rules to this program's.
func (o options) rules(c *config.Config) {
	c.Rules.Policy, c.Rules.Fair = sched.Backfill, false
	c.Rules.Placement = sched.Spread
	c.Rules.MemThreshold, c.Rules.LoadThreshold = below(o.memThreshold), below(o.loadLimit)
	c.Rules.LoadAlways = true
	c.Rules.IdleThresholdMiB = noIdleRule
	// Where the memory threshold lets a job start, no other sum keeps it away.
	c.Rules.SpikeBuffer, c.Tolerance = 0, noTolerance
	// A job that succeeded is never queued again, so its record must not expire.
	c.History, c.HistoryJobs, c.Logs = 0, 1_000_000, 0
	for index := range o.gpus {
		c.GPUs = append(c.GPUs, index)
	}
}
