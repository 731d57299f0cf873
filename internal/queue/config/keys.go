package config

import (
	"math"
	"reflect"
	"slices"
	"time"

	"berth/internal/machine/site"
	"berth/internal/queue"
	"berth/internal/queue/send"
	"berth/internal/sched"
)

// knownKey is one key of a config file.
type knownKey struct {
	section string
	key     string
	restart bool // a change needs a restart
	set     func(c *Config, value any) error
	same    func(a, b *Config) bool
}

// keyFor connects a key ("scheduling.policy") to a field of Config and the
// function that reads its value.
func keyFor[T any](name string, part func(*Config) *T, read func(any) (T, error)) knownKey {
	section, key, found := cutLast(name, ".")
	if !found {
		section, key = "", name // above the first section
	}
	return knownKey{
		section: section,
		key:     key,
		set: func(c *Config, value any) error {
			v, err := read(value)
			if err == nil {
				*part(c) = v
			}
			return err
		},
		same: func(a, b *Config) bool { return reflect.DeepEqual(*part(a), *part(b)) },
	}
}

func (k knownKey) name() string { return dotted(k.section, k.key) }

// dotted is the full name of a key. Those above the first section have none.
func dotted(section, key string) string {
	if section == "" {
		return key
	}
	return section + "." + key
}

func (k knownKey) afterRestart() knownKey {
	k.restart = true
	return k
}

// knownKeys lists every key except those of single users.
var knownKeys = slices.Concat(schedulingKeys, limitKeys, idleKeys, overuseKeys, jobKeys, slurmKeys, retentionKeys, accessKeys, notifyKeys, serviceKeys)

var schedulingKeys = []knownKey{
	keyFor("scheduling.gpus", func(c *Config) *[]int { return &c.GPUs }, readIDs).afterRestart(),
	keyFor("scheduling.poll", func(c *Config) *time.Duration { return &c.Poll }, readDuration(shortestPoll, "")).afterRestart(),
	keyFor("scheduling.policy", func(c *Config) *sched.Policy { return &c.Rules.Policy }, readWord(append(sched.Policies(), PolicyFair)...)),
	keyFor("scheduling.max_bypass", func(c *Config) *time.Duration { return &c.Rules.MaxBypass }, readBypass),
	keyFor("scheduling.preempt", func(c *Config) *string { return &c.Preempt }, readWord(queue.Preempts()...)),
	keyFor("scheduling.parking", func(c *Config) *string { return &c.Parking }, readWord(queue.Parkings()...)),
	keyFor("scheduling.park_memory", func(c *Config) *Portion { return &c.ParkMemory }, readPortion(readMiB)),
	keyFor("scheduling.park_timeout", func(c *Config) *time.Duration { return &c.ParkTimeout }, readDuration(time.Second, "")),
	keyFor("scheduling.min_run", func(c *Config) *time.Duration { return &c.Rules.MinRun }, readDuration(shortestRun, "")),
	keyFor("scheduling.slice", func(c *Config) *bool { return &c.Rules.Slice }, readFlag),
	keyFor("scheduling.placement", func(c *Config) *sched.Placement { return &c.Rules.Placement }, readWord(sched.Pack, sched.Spread)),
	keyFor("scheduling.fair_share", func(c *Config) *bool { return &c.Rules.Fair }, readFlag),
	keyFor("scheduling.half_life", func(c *Config) *time.Duration { return &c.HalfLife }, readDuration(time.Minute, "usage never decays")).afterRestart(),
	keyFor("scheduling.margin", func(c *Config) *int64 { return &c.Rules.MarginMiB }, readSize),
	keyFor("scheduling.idle_threshold", func(c *Config) *int64 { return &c.Rules.IdleThresholdMiB }, readSize),
	keyFor("scheduling.spike_buffer", func(c *Config) *float64 { return &c.Rules.SpikeBuffer }, readNumber(0, 10)),
	keyFor("scheduling.tolerance", func(c *Config) *float64 { return &c.Tolerance }, readNumber(0, 10)).afterRestart(),
	keyFor("scheduling.exclusive", func(c *Config) *bool { return &c.Rules.Exclusive }, readFlag),
	keyFor("scheduling.jobs_per_gpu", func(c *Config) *int { return &c.Rules.JobsPerGPU }, readCount(0, 1000)),
	keyFor("scheduling.mem_threshold", func(c *Config) *float64 { return &c.Rules.MemThreshold }, readNumber(0, 1)),
	keyFor("scheduling.load_threshold", func(c *Config) *float64 { return &c.Rules.LoadThreshold }, readNumber(0, 1)),
	keyFor("scheduling.load_always", func(c *Config) *bool { return &c.Rules.LoadAlways }, readFlag),
}

var limitKeys = []knownKey{
	keyFor("limits.running_jobs", func(c *Config) *int { return &c.Limits.Default.Jobs }, readCount(0, million)),
	keyFor("limits.gpus", func(c *Config) *Portion { return &c.Limits.Default.GPUs }, readPortion(readNumber(0, 1024))),
	keyFor("limits.gpus_max", func(c *Config) *Portion { return &c.Limits.Default.MostGPU }, readPortion(readNumber(0, 1024))),
	keyFor("limits.borrow_time", func(c *Config) *time.Duration { return &c.Rules.BorrowTime }, readDuration(time.Second, "only jobs that can give way")),
	keyFor("limits.cpus", func(c *Config) *Portion { return &c.Limits.Default.CPUs }, readPortion(readCPUs)),
	keyFor("limits.memory_total", func(c *Config) *Portion { return &c.Limits.Default.Memory }, readPortion(readMiB)),
	keyFor("limits.queued_jobs", func(c *Config) *int { return &c.QueuedJobs }, readCount(0, million)),
	keyFor("limits.max_priority", func(c *Config) *int { return &c.MaxPriority }, readCount(math.MinInt32, math.MaxInt32)),
	keyFor("limits.job_time", func(c *Config) *time.Duration { return &c.JobTime }, readDuration(time.Second, "no limit")),
	keyFor("limits.interactive_time", func(c *Config) *time.Duration { return &c.InteractiveTime }, readDuration(time.Second, "no limit")),
	keyFor("limits.grace", func(c *Config) *time.Duration { return &c.Grace }, readDuration(time.Second, "no limit")),
	keyFor("limits.queue", func(c *Config) *int { return &c.MaxQueue }, readCount(1, million)),
	keyFor("limits.array", func(c *Config) *int { return &c.MaxArray }, readCount(1, million)),
	keyFor("limits.jobs_per_request", func(c *Config) *int { return &c.MaxSpecs }, readCount(1, million)),
	keyFor("limits.environment", func(c *Config) *int { return &c.MaxEnviron }, func(value any) (int, error) {
		bytes, err := readBytes(1, maxEnvironMiB, false)(value)
		return int(bytes), err
	}),
	keyFor("limits.text", func(c *Config) *int64 { return &c.MaxText }, readBytes(1, maxTextMiB, true)),
	keyFor("limits.memory", func(c *Config) *Portion { return &c.Memory }, readPortion(readMiB)),
	keyFor("limits.parked_memory", func(c *Config) *Portion { return &c.ParkedMemory }, readPortion(readMiB)),
	keyFor("limits.parked_time", func(c *Config) *time.Duration { return &c.ParkedTime }, readDuration(time.Second, "no limit")),
	keyFor("limits.log_free", func(c *Config) *int64 { return &c.LogFree }, readBytes(1, maxLogMiB, true)),
	keyFor("limits.log_size", func(c *Config) *int64 { return &c.MaxLog }, readBytes(1, maxLogMiB, true)),
}

var idleKeys = []knownKey{
	keyFor("idle.report_after", func(c *Config) *time.Duration { return &c.IdleReport }, readDuration(shortestIdle, "never")),
	keyFor("idle.park_after", func(c *Config) *time.Duration { return &c.IdlePark }, readDuration(shortestIdle, "never")),
	keyFor("idle.cancel_after", func(c *Config) *time.Duration { return &c.IdleCancel }, readDuration(shortestIdle, "never")),
}

var overuseKeys = []knownKey{
	keyFor("overuse.cancel_after", func(c *Config) *time.Duration { return &c.OveruseCancel }, readDuration(shortestIdle, "never")),
	keyFor("overuse.cancel_above", func(c *Config) *float64 { return &c.OveruseAbove }, readNumber(0, 1000)),
}

var jobKeys = []knownKey{
	keyFor("jobs.snapshot", func(c *Config) *bool { return &c.Snapshot }, readFlag),
}

var retentionKeys = []knownKey{
	keyFor("retention.history", func(c *Config) *time.Duration { return &c.History }, readDuration(shortestHistory, "only history_jobs counts")),
	keyFor("retention.history_jobs", func(c *Config) *int { return &c.HistoryJobs }, readCount(1, million)),
	keyFor("retention.history_text", func(c *Config) *int64 { return &c.HistoryText }, readBytes(1, maxTextMiB, false)),
	keyFor("retention.logs", func(c *Config) *time.Duration { return &c.Logs }, readDuration(shortestHistory, "as long as the job is remembered")),
	keyFor("retention.samples", func(c *Config) *time.Duration { return &c.Samples }, readDuration(shortestHistory, "none are kept")),
	keyFor("retention.events", func(c *Config) *int { return &c.Events }, readCount(1, million)),
}

var accessKeys = []knownKey{
	keyFor("access.admin_group", func(c *Config) *string { return &c.AdminGroup }, readText("a group name, or \"\" for root alone", isName)),
	keyFor("access.show_commands", func(c *Config) *string { return &c.ShowCommands }, readWord(ShowOwnCommands, ShowAllCommands)),
}

var notifyKeys = []knownKey{
	keyFor("notify.admin", func(c *Config) *[]string { return &c.NotifyAdmin }, readTargets),
	keyFor("notify.smtp", func(c *Config) *string { return &c.Mail.Server }, readText("HOST:PORT, or \"\" to use sendmail", isServer)),
	keyFor("notify.smtp_tls", func(c *Config) *string { return &c.Mail.TLS }, readWord(send.StartTLS, send.FullTLS, send.NoTLS)),
	keyFor("notify.smtp_user", func(c *Config) *string { return &c.Mail.User }, readText("a user name, or \"\" for no login", isLogin)),
	keyFor("notify.smtp_password_file", func(c *Config) *string { return &c.MailPassword }, readText("an absolute path", absolute)),
	keyFor("notify.mail_from", func(c *Config) *string { return &c.Mail.From }, readText("an address such as \"berth@example.org\"", isAddress)),
	keyFor("notify.sendmail", func(c *Config) *string { return &c.Mail.Sendmail }, readText("an absolute path", absolute)),
}

var serviceKeys = []knownKey{
	keyFor("http.listen", func(c *Config) *string { return &c.Listen }, readText(allowedListen+", or \"\" for none", func(string) bool { return true })).afterRestart(),
	keyFor("http.tls_cert", func(c *Config) *string { return &c.TLSCert }, readText("an absolute path", absolute)).afterRestart(),
	keyFor("http.tls_key", func(c *Config) *string { return &c.TLSKey }, readText("an absolute path", absolute)).afterRestart(),
	keyFor("http.hosts", func(c *Config) *[]string { return &c.Hosts }, readNames).afterRestart(),
	keyFor("metrics.listen", func(c *Config) *string { return &c.MetricsListen }, readText(allowedMetrics+", or \"\" for none", func(string) bool { return true })).afterRestart(),
	keyFor("metrics.users", func(c *Config) *int { return &c.MetricsUsers }, readCount(0, maxMetricsUsers)),
	keyFor("service.log_level", func(c *Config) *string { return &c.LogLevel }, readWord(site.Levels...)).afterRestart(),
	keyFor("service.idle_exit", func(c *Config) *time.Duration { return &c.IdleExit }, readDuration(time.Second, "never")),
}

// usersTable holds a table for each user with limits of their own.
const usersTable = "limits.users"

// userKeys lists the keys of such a table. It is read into a copy of the config,
// so that a missing key keeps the general value.
var userKeys = []knownKey{
	keyFor("limits.users.running_jobs", func(c *Config) *int { return &c.Limits.Default.Jobs }, readCount(0, million)),
	keyFor("limits.users.gpus", func(c *Config) *Portion { return &c.Limits.Default.GPUs }, readPortion(readNumber(0, 1024))),
	keyFor("limits.users.gpus_max", func(c *Config) *Portion { return &c.Limits.Default.MostGPU }, readPortion(readNumber(0, 1024))),
	keyFor("limits.users.cpus", func(c *Config) *Portion { return &c.Limits.Default.CPUs }, readPortion(readCPUs)),
	keyFor("limits.users.memory_total", func(c *Config) *Portion { return &c.Limits.Default.Memory }, readPortion(readMiB)),
	keyFor("limits.users.queued_jobs", func(c *Config) *int { return &c.QueuedJobs }, readCount(0, million)),
}

// sections lists the sections of a file.
func sections() []string {
	var found []string
	for _, k := range knownKeys {
		if k.section != "" && !slices.Contains(found, k.section) {
			found = append(found, k.section)
		}
	}
	return found
}

// keysOf lists the keys of one section.
func keysOf(section string) []knownKey {
	return slices.DeleteFunc(slices.Clone(knownKeys), func(k knownKey) bool { return k.section != section })
}

// wordsOf lists keys as they are written.
func wordsOf(keys []knownKey) []string {
	words := make([]string, len(keys))
	for i, k := range keys {
		words[i] = k.key
	}
	return words
}

// sectionsWith lists the sections that have the key.
func sectionsWith(key string) []string {
	var found []string
	for _, k := range knownKeys {
		if k.key == key {
			found = append(found, k.section)
		}
	}
	return found
}
