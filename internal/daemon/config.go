package daemon

import (
	"errors"
	"fmt"
	"math"
	"net/netip"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"berth/internal/engine"
	"berth/internal/sched"
)

// Config is what a daemon can be told beyond its flags. docs/reference/config.md is the
// same for people; configkeys.go says how each part is called in a file.
type Config struct {
	Rules     sched.Rules
	GPUs      []int // only these; nil: all
	Poll      time.Duration
	Tolerance float64
	HalfLife  time.Duration // of what users had, for their fair share
	Preempt   string        // what becomes of running jobs that may be set aside: one of Preempts

	Limits          engine.Limits
	QueuedJobs      int            // live jobs (queued and running) of a user; 0: no limit
	QueuedJobsOf    map[string]int // users that have their own
	MaxPriority     int            // the highest that who is no administrator may ask for
	JobTime         time.Duration  // of any job, its own limit or none; 0: no limit
	InteractiveTime time.Duration  // of a job someone sits and waits at; 0: no limit
	MaxQueue        int            // live jobs in all
	MaxArray        int            // tasks of one array
	MaxSpecs        int            // jobs of one request
	MaxEnviron      int            // bytes of one captured environment
	MaxLog          int64          // bytes of one log; 0: no limit

	IdleReport time.Duration // holding memory and not using it for so long, a job is told of; 0: never
	IdleCancel time.Duration // and for so long, cancelled; 0: never

	History     time.Duration // how long jobs that are over are remembered; 0: while HistoryJobs has room
	HistoryJobs int           // and at most so many of them
	Logs        time.Duration // how long logs of jobs that are over stay; 0: as long as the job is remembered

	AdminGroup   string // its members administer; empty: root alone
	ShowCommands string // showOwnCommands or showAllCommands

	Listen          string // HTTP on TCP; empty: off
	TLSCert, TLSKey string
	Hosts           []string // names by which callers may reach it, beside its address

	LogLevel string
	IdleExit time.Duration // without a job or a caller for so long, exit; 0: never
}

// What users see of one another's commands.
const (
	showOwnCommands = "own"
	showAllCommands = "all"
)

// PolicyFair is a name for sched.Backfill with fair share.
const PolicyFair sched.Policy = "fair"

// How running jobs that allow it are set aside for others.
const (
	PreemptNever   = "never"
	PreemptRequeue = "requeue" // ended, and queued again
	PreemptPark    = "park"    // suspended where the machine can do that; none can yet
)

// Preempts are all of them.
func Preempts() []string { return []string{PreemptRequeue, PreemptPark, PreemptNever} }

// DefaultConfig is the config before anyone said anything. A daemon that many
// users share takes turns between them and bounds what one of them can queue.
func DefaultConfig(shared bool) Config {
	c := Config{
		Rules:        sched.DefaultRules(),
		Poll:         time.Second,
		Tolerance:    0.10,
		HalfLife:     7 * day,
		Preempt:      PreemptRequeue,
		MaxQueue:     200_000,
		MaxArray:     10_000,
		MaxSpecs:     100_000,
		MaxEnviron:   1 << 20,
		IdleReport:   engine.DefaultIdleAfter,
		History:      90 * day,
		HistoryJobs:  100_000,
		Logs:         30 * day,
		AdminGroup:   "berth-admin",
		ShowCommands: showOwnCommands,
		LogLevel:     "info",
		MaxPriority:  math.MaxInt32,
	}
	c.Rules.MinRun = time.Minute
	if shared {
		c.Rules.Fair = true
		c.QueuedJobs, c.MaxPriority = 10_000, 100
	}
	return c
}

const day = 24 * time.Hour

// QueuedJobsFor is how many live jobs the user may have; 0: no limit.
func (c *Config) QueuedJobsFor(user string) int {
	if own, ok := c.QueuedJobsOf[user]; ok {
		return own
	}
	return c.QueuedJobs
}

// Check looks at what each part alone cannot tell: whether they go together.
// It is asked again after flags were put above a file.
func (c *Config) Check() error {
	if key, err := c.conflict(); err != nil {
		return fmt.Errorf("%s: %w", key, err)
	}
	return nil
}

// conflict names the key that does not go with the others.
func (c *Config) conflict() (key string, err error) {
	switch {
	case c.TLSCert != "" && c.TLSKey == "":
		return "http.tls_cert", errors.New("needs http.tls_key beside it")
	case c.TLSKey != "" && c.TLSCert == "":
		return "http.tls_key", errors.New("needs http.tls_cert beside it")
	case c.Listen != "":
		return "http.listen", checkListen(c.Listen, c.TLSCert != "")
	}
	return "", nil
}

const allowedListen = "an address and a port: 127.0.0.1:7878, [::1]:7878, or with TLS any other"

// checkListen keeps tokens and logs off the network where nothing encrypts
// them.
func checkListen(listen string, encrypted bool) error {
	host, port, found := cutLast(listen, ":")
	if _, err := strconv.ParseUint(port, 10, 16); !found || err != nil {
		return mismatch(listen, allowedListen)
	}
	bare := strings.TrimSuffix(strings.TrimPrefix(host, "["), "]")
	address, err := netip.ParseAddr(bare)
	if err == nil && address.Is6() != (bare != host) {
		return mismatch(listen, allowedListen)
	}
	switch {
	case host == "localhost", err == nil && address.Unmap().IsLoopback():
		return nil
	case err != nil && host != "":
		return mismatch(listen, allowedListen)
	case !encrypted:
		return fmt.Errorf("found %q, allowed a loopback address such as 127.0.0.1:%s: any other needs http.tls_cert and http.tls_key", listen, port)
	}
	return nil
}

func cutLast(s, separator string) (before, after string, found bool) {
	if i := strings.LastIndex(s, separator); i >= 0 {
		return s[:i], s[i+len(separator):], true
	}
	return s, "", false
}

// Changed names the settings that differ from an older config: those that
// apply at once, and those that only a restart brings into force.
func (c Config) Changed(old Config) (live, needsRestart []string) {
	for _, k := range configKeys {
		switch {
		case k.same(&c, &old):
		case k.restart:
			needsRestart = append(needsRestart, k.name())
		default:
			live = append(live, k.name())
		}
	}
	if !sameUsers(&c, &old) {
		live = append(live, usersTable)
	}
	return live, needsRestart
}

// absolute says whether a path means the same wherever the daemon was started.
func absolute(path string) bool { return filepath.IsAbs(path) && filepath.Clean(path) == path }
