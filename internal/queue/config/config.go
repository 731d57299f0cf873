package config

import (
	"math"
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
// docs/reference/config.md documents it; keys.go maps it to the keys of
// the file.
type Config struct {
	Rules     sched.Rules // RulesWith says how long what cannot give way is borrowed
	GPUs      []int       // only these; nil: all
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
	ShowCommands string // ShowOwnCommands or ShowAllCommands

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
	ShowOwnCommands = "own"
	ShowAllCommands = "all"
)

// PolicyFair is a name for sched.Backfill with fair share.
const PolicyFair sched.Policy = "fair"

// ParkingOn is how jobs are parked under this configuration, on this machine.
func (c *Config) ParkingOn(m *queue.Queue) settings.Parking {
	p := queue.ParkingFor(c.Preempt, c.Parking)
	host := float64(m.ParkHostMiB())
	p.MemoryMiB, p.UserMiB = int64(c.ParkMemory.Of(host)), int64(c.ParkedMemory.Of(host))
	if c.ParkMemory == (Portion{}) {
		p.MemoryMiB = -1 // none, and not the default
	}
	p.Patience, p.Idle, p.Longest = c.ParkTimeout, c.IdlePark, c.ParkedTime
	p.Strict = c.JobTime > 0 || c.InteractiveTime > 0
	return p
}

// Default is the configuration without a file. A shared daemon uses fair
// share, and bounds what one user or one job can take from the others.
func Default(shared bool) Config {
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
		ShowCommands: ShowOwnCommands,
		MetricsUsers: 50,
		Slurm:        cluster.Config{Directory: cluster.DefaultDirectory, Patience: cluster.DefaultPatience},
		LogLevel:     "info",
		MaxPriority:  math.MaxInt32,
	}
	c.Rules.MinRun, c.Rules.BorrowTime = time.Minute, sched.DefaultBorrowTime
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

// Overuse is when jobs are ended for it. A private daemon has nobody else to suffer.
func (c *Config) Overuse(shared bool) settings.Overuse {
	return settings.Overuse{Above: c.OveruseAbove, After: c.OveruseCancel, Harmful: shared}
}

// QueuedJobsFor is how many unfinished jobs the user may have; 0: no limit.
func (c *Config) QueuedJobsFor(user string) int {
	if own, ok := c.QueuedJobsOf[user]; ok {
		return own
	}
	return c.QueuedJobs
}
