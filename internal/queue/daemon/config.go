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

	"berth/internal/job"
	"berth/internal/machine/site"
	"berth/internal/queue"
	"berth/internal/queue/engine/launch"
	"berth/internal/queue/engine/settings"
	"berth/internal/queue/send"
	"berth/internal/queue/series"
	"berth/internal/sched"
	"berth/internal/slurm/cluster"
)

// Config is the daemon's configuration beyond its flags.
// docs/reference/config.md documents it; configkeys.go maps it to the keys of
// the file.
type Config struct {
	Rules     sched.Rules
	GPUs      []int // only these; nil: all
	Poll      time.Duration
	Tolerance float64
	HalfLife  time.Duration // of users' usage, for fair share
	Preempt   string        // how preemptible jobs are preempted: one of queue.Preempts

	Parking     string  // which jobs are parked for others: one of queue.Parkings
	ParkMemory  Portion // host memory for parked jobs in all, in MiB
	ParkTimeout time.Duration

	Limits          Limits
	QueuedJobs      int            // unfinished jobs (queued and running) per user; 0: no limit
	QueuedJobsOf    map[string]int // users with a limit of their own
	MaxPriority     int            // the highest priority a non-administrator may request
	JobTime         time.Duration  // the longest time limit of any job; 0: no limit
	InteractiveTime time.Duration  // the longest time limit of an interactive job; 0: no limit
	Grace           time.Duration  // the longest grace period of any job; 0: no limit
	MaxQueue        int            // unfinished jobs in all
	MaxArray        int            // tasks of one array
	MaxSpecs        int            // jobs of one request
	MaxEnviron      int            // bytes of one captured environment
	MaxText         int64          // bytes of text in one user's unfinished jobs; 0: no limit
	MaxLog          int64          // bytes of one log; 0: no limit
	LogFree         int64          // bytes that growing logs leave free on their disk; 0: none
	Memory          Portion        // the most host memory of one job, in MiB; none: no limit
	ParkedMemory    Portion        // the most host memory of one user's parked jobs, in MiB; none: no limit
	ParkedTime      time.Duration  // how long a person may have a job parked; 0: no limit

	IdleReport time.Duration // report a job whose GPUs, or CPUs, are idle for this long; 0: never
	IdlePark   time.Duration // park it after this long; 0: never
	IdleCancel time.Duration // cancel it after this long; 0: never

	OveruseCancel time.Duration // end a job that uses far more memory than it declared for this long; 0: never
	OveruseAbove  float64       // how much more, as a fraction of the declaration

	History     time.Duration // how long finished jobs are remembered; 0: only HistoryJobs counts
	HistoryJobs int           // the most finished jobs remembered, of one user and of all (store.Keep)
	HistoryText int64         // the most bytes of text in one user's finished jobs
	Logs        time.Duration // how long logs of finished jobs are kept; 0: as long as the job is remembered
	Events      int           // the most events kept, of all users
	Samples     time.Duration // how long samples of jobs and GPUs are kept; 0: none are

	Snapshot bool // jobs run a snapshot of their code unless they ask for none

	AdminGroup   string // its members are administrators; empty: only root is
	ShowCommands string // showOwnCommands or showAllCommands

	Listen          string // HTTP on TCP; empty: off
	TLSCert, TLSKey string
	Hosts           []string // host names that callers may use, besides its address

	MetricsListen string // an address for metrics without a token; empty: none
	MetricsUsers  int    // how many users have metrics of their own

	NotifyAdmin []string  // targets that are told what concerns the machine
	Mail        send.Mail // how mail leaves the machine
	// MailPassword is the file with the password for the mail server.
	MailPassword string

	Engine job.Place      // where jobs run that do not say so
	Slurm  cluster.Config // how jobs are handed over

	LogLevel string
	IdleExit time.Duration // exit after this long without a job or a caller; 0: never
}

// Whose commands users may see.
const (
	showOwnCommands = "own"
	showAllCommands = "all"
)

// PolicyFair is a name for sched.Backfill with fair share.
const PolicyFair sched.Policy = "fair"

// parking is how jobs are parked under this configuration, on this machine.
func (c *Config) parking(m *queue.Queue) settings.Parking {
	p := queue.ParkingFor(c.Preempt, c.Parking)
	host := float64(m.ParkHostMiB())
	p.MemoryMiB, p.UserMiB = int64(c.ParkMemory.of(host)), int64(c.ParkedMemory.of(host))
	if c.ParkMemory == (Portion{}) {
		p.MemoryMiB = -1 // none, and not the default
	}
	p.Patience, p.Idle, p.Longest = c.ParkTimeout, c.IdlePark, c.ParkedTime
	p.Strict = c.JobTime > 0 || c.InteractiveTime > 0
	return p
}

// DefaultConfig is the configuration without a file. A shared daemon uses fair
// share, and bounds what one user or one job can take from the others.
func DefaultConfig(shared bool) Config {
	c := Config{
		Rules:        sched.DefaultRules(),
		Poll:         time.Second,
		Tolerance:    0.10,
		HalfLife:     7 * day,
		Preempt:      queue.PreemptRequeue,
		Parking:      queue.ParkPreemptible,
		ParkMemory:   Portion{Percent: 100 * queue.ParkPart},
		ParkTimeout:  settings.DefaultParking.Patience,
		MaxQueue:     200_000,
		MaxArray:     10_000,
		MaxSpecs:     100_000,
		MaxEnviron:   1 << 20,
		MaxText:      32 << 20,
		LogFree:      launch.DefaultLogFree,
		IdleReport:   settings.DefaultIdleAfter,
		OveruseAbove: 0.5,
		History:      90 * day,
		HistoryJobs:  100_000,
		HistoryText:  64 << 20,
		Logs:         30 * day,
		Events:       100_000,
		Samples:      series.Keep,
		AdminGroup:   site.AdminGroup,
		Mail:         send.Mail{TLS: send.StartTLS, Sendmail: "/usr/sbin/sendmail"},
		ShowCommands: showOwnCommands,
		MetricsUsers: 50,
		Slurm:        cluster.Config{Directory: cluster.DefaultDirectory, Patience: cluster.DefaultPatience},
		LogLevel:     "info",
		MaxPriority:  math.MaxInt32,
	}
	c.Rules.MinRun = time.Minute
	if shared {
		c.Rules.Fair = true
		c.QueuedJobs, c.MaxPriority = 10_000, 0
		c.Limits.Default = UserLimit{Jobs: 64, GPUs: Portion{Percent: 50}, CPUs: Portion{Percent: 50}, Memory: Portion{Percent: 50}}
		c.Grace, c.MaxLog, c.Memory = 5*time.Minute, 1<<30, Portion{Percent: 50}
		c.ParkedMemory, c.ParkedTime = Portion{Percent: 100 * queue.ParkPart / 2}, day
		c.OveruseCancel = 10 * time.Minute
	}
	return c
}

const day = 24 * time.Hour

// overuse is when jobs are ended for it. A private daemon has nobody else to suffer.
func (c *Config) overuse(shared bool) settings.Overuse {
	return settings.Overuse{Above: c.OveruseAbove, After: c.OveruseCancel, Harmful: shared}
}

// queuedJobsFor is how many unfinished jobs the user may have; 0: no limit.
func (c *Config) queuedJobsFor(user string) int {
	if own, ok := c.QueuedJobsOf[user]; ok {
		return own
	}
	return c.QueuedJobs
}

// Check finds settings that contradict each other. It is called again after
// flags override the file.
func (c *Config) Check() error {
	if key, err := c.conflict(); err != nil {
		return fmt.Errorf("%s: %w", key, err)
	}
	return nil
}

// conflict names the key that contradicts the others.
func (c *Config) conflict() (key string, err error) {
	switch {
	case c.Mail.User != "" && c.Mail.Server == "":
		return "notify.smtp_user", errors.New("notify.smtp is missing")
	case c.Mail.User != "" && c.MailPassword == "":
		return "notify.smtp_user", errors.New("notify.smtp_password_file is missing")
	case c.MailPassword != "" && c.Mail.User == "":
		return "notify.smtp_password_file", errors.New("notify.smtp_user is missing")
	case c.Mail.User != "" && c.Mail.TLS == send.NoTLS:
		return "notify.smtp_tls", errors.New("expected starttls or tls with notify.smtp_user: a password is sent only over TLS")
	case c.TLSCert != "" && c.TLSKey == "":
		return "http.tls_cert", errors.New("http.tls_key is missing")
	case c.TLSKey != "" && c.TLSCert == "":
		return "http.tls_key", errors.New("http.tls_cert is missing")
	case c.MetricsListen != "" && c.MetricsListen == c.Listen && !strings.HasSuffix(c.Listen, ":0"):
		return "metrics.listen", errors.New("http.listen has this address already")
	}
	if err := checkListen(c.MetricsListen, allowedMetrics, false, "at any other address http.listen serves metrics, with a token"); c.MetricsListen != "" && err != nil {
		return "metrics.listen", err
	}
	if socket, isSocket := strings.CutPrefix(c.Listen, unixListen); isSocket {
		return c.proxyConflict(socket)
	}
	if c.Listen != "" {
		return "http.listen", checkListen(c.Listen, allowedListen, c.TLSCert != "", "any other address needs http.tls_cert and http.tls_key")
	}
	return "", nil
}

// Warnings are settings that work and are unsafe.
func (c *Config) Warnings(shared bool) []string {
	if !shared || c.Listen == "" || c.TLSCert != "" || strings.HasPrefix(c.Listen, unixListen) {
		return nil
	}
	return []string{fmt.Sprintf("http.listen is %s, without TLS: any user of this machine could listen there before the daemon does and pose as it; use tls_cert and tls_key, or unix:/run/berth/http.sock behind a proxy with TLS", c.Listen)}
}

// proxyConflict checks a Unix socket, behind a proxy with TLS.
func (c *Config) proxyConflict(socket string) (key string, err error) {
	switch {
	case !absolute(socket):
		return "http.listen", mismatch(c.Listen, allowedListen)
	case c.TLSCert != "":
		return "http.tls_cert", errors.New("the proxy before a Unix socket encrypts; leave it out")
	case len(c.Hosts) == 0:
		return "http.hosts", errors.New("expected the name that the proxy answers to, found none")
	}
	return "", nil
}

// unixListen begins the path of a Unix socket in http.listen.
const unixListen = "unix:"

const allowedListen = "an address and a port: 127.0.0.1:7878, [::1]:7878, or with TLS any other; or unix:/path for a proxy"

const allowedMetrics = "a loopback address and a port: 127.0.0.1:9778, [::1]:9778"

// checkListen keeps what is served off the network unless TLS encrypts it.
func checkListen(listen, allowed string, encrypted bool, otherwise string) error {
	host, port, found := cutLast(listen, ":")
	if _, err := strconv.ParseUint(port, 10, 16); !found || err != nil {
		return mismatch(listen, allowed)
	}
	bare := strings.TrimSuffix(strings.TrimPrefix(host, "["), "]")
	address, err := netip.ParseAddr(bare)
	if err == nil && address.Is6() != (bare != host) {
		return mismatch(listen, allowed)
	}
	switch {
	case host == "localhost", err == nil && address.Unmap().IsLoopback():
		return nil
	case err != nil && host != "":
		return mismatch(listen, allowed)
	case !encrypted:
		return fmt.Errorf("expected a loopback address such as 127.0.0.1:%s, found %q; %s", port, listen, otherwise)
	}
	return nil
}

func cutLast(s, separator string) (before, after string, found bool) {
	if i := strings.LastIndex(s, separator); i >= 0 {
		return s[:i], s[i+len(separator):], true
	}
	return s, "", false
}

// Changed names the settings that differ from an older configuration: those that
// apply at once, and those that need a restart.
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

// absolute reports whether a path does not depend on where the daemon was
// started.
func absolute(path string) bool { return filepath.IsAbs(path) && filepath.Clean(path) == path }
