package metrics

import (
	"strconv"
	"time"
)

// State is what a scrape reads of the daemon.
type State struct {
	Queued, Running, Parked int

	// What queued and parked jobs wait for.
	Room, Held, Later, Dependent int
	OldestWait                   time.Duration // of the jobs that wait for room

	IdleJobs   int   // running jobs that have not used their cards for long
	ParkedMiB  int64 // of the host's memory, for parked jobs
	Blocked    bool  // nothing can start
	Strays     int   // supervisors that the store does not know
	Requests   int   // that wait for the engine's loop
	InFlight   int   // that the API is answering
	StoreBytes int64
	Users      map[string]User
	Cards      []Card
	Unreadable bool // the last reading of the cards failed
	ReadAt     time.Time
}

// User is what a user has.
type User struct {
	Jobs    int // unfinished
	Running int
	GPUs    float64
}

// Card is a card as last read. A negative number is not known.
type Card struct {
	Index                                      int
	UUID, Name                                 string
	TotalMiB, UsedMiB, ExternalMiB, BookedMiB  int64
	UtilPct, PowerW, PowerLimitW, TemperatureC float64
	Health                                     string
	Paused, Stale                              bool
	Jobs                                       int
}

const mib = 1 << 20

// healths are the values of the label health, as users see them.
var healths = []string{"ok", "suspect", "quarantined"}

// state adds what the daemon has, with its users under the names that are shown.
func (p *page) state(s State, users map[string]User) {
	jobs := p.add("gauge", "berth_jobs", "Unfinished jobs by state.", "state")
	jobs.set(float64(s.Queued), "queued")
	jobs.set(float64(s.Running), "running")
	jobs.set(float64(s.Parked), "parked")
	waiting := p.add("gauge", "berth_waiting_jobs", "Queued and parked jobs by what they wait for.", "reason")
	waiting.set(float64(s.Room), "room")
	waiting.set(float64(s.Held), "release")
	waiting.set(float64(s.Later), "time")
	waiting.set(float64(s.Dependent), "jobs")
	p.gauge("berth_queue_oldest_wait_seconds", "How long the oldest job that waits for room has waited; 0 if none waits.", max(0, s.OldestWait.Seconds()))
	p.gauge("berth_idle_jobs", "Running jobs that have not used their GPUs or CPUs for idle.report_after.", float64(s.IdleJobs))
	p.gauge("berth_starts_blocked", "1 if no job can start at all, otherwise 0.", flag(s.Blocked))
	p.gauge("berth_unknown_supervisors", "Supervisors that the store does not know.", float64(s.Strays))
	p.gauge("berth_loop_waiting_requests", "Requests that wait for their turn in the scheduling loop.", float64(s.Requests))
	p.gauge("berth_api_in_flight_requests", "Requests and streams that are being served.", float64(s.InFlight))
	p.gauge("berth_store_size_bytes", "Size of the database, with what is not merged into it yet.", float64(s.StoreBytes))
	p.gauge("berth_parked_host_bytes", "Host memory that holds the GPU memory of parked jobs.", float64(s.ParkedMiB*mib))

	userJobs := p.add("gauge", "berth_user_jobs", "Unfinished jobs of a user.", "user")
	userRunning := p.add("gauge", "berth_user_running_jobs", "Running jobs of a user.", "user")
	userGPUs := p.add("gauge", "berth_user_gpus", "GPUs that a user's running jobs count as, against limits and in fair share.", "user")
	for name, u := range users {
		userJobs.set(float64(u.Jobs), name)
		userRunning.set(float64(u.Running), name)
		userGPUs.set(u.GPUs, name)
	}
	p.gauge("berth_gpus_unreadable", "1 if the last reading of the GPUs failed, otherwise 0.", flag(s.Unreadable))
	if !s.ReadAt.IsZero() {
		p.gauge("berth_gpus_read_timestamp_seconds", "When the GPUs were last read, in seconds since 1970.", float64(s.ReadAt.UnixMilli())/1000)
	}
	p.cards(s.Cards)
}

// cards adds the GPUs, without what is not known of one.
func (p *page) cards(cards []Card) {
	info := p.add("gauge", "berth_gpu_info", "Always 1; the labels describe the GPU.", "gpu", "name", "uuid")
	health := p.add("gauge", "berth_gpu_health", "1 for the health that the GPU has, 0 for the others.", "gpu", "health")
	for _, c := range cards {
		index := strconv.Itoa(c.Index)
		info.set(1, index, valid(c.Name), valid(c.UUID))
		for _, h := range healths {
			health.set(flag(c.Health == h), index, h)
		}
	}
	for _, g := range []struct {
		name, help string
		of         func(Card) float64
	}{
		{"memory_total_bytes", "Memory of the GPU.", func(c Card) float64 { return float64(c.TotalMiB * mib) }},
		{"memory_used_bytes", "GPU memory in use, by anyone.", func(c Card) float64 { return float64(c.UsedMiB * mib) }},
		{"memory_external_bytes", "GPU memory set aside for processes that berth did not start, spike buffer included.", func(c Card) float64 { return float64(c.ExternalMiB * mib) }},
		{"memory_allocated_bytes", "GPU memory allocated to running jobs.", func(c Card) float64 { return float64(c.BookedMiB * mib) }},
		{"utilization_ratio", "Utilisation of the GPU, 0 to 1.", func(c Card) float64 { return c.UtilPct / 100 }},
		{"power_watts", "Power draw of the GPU.", func(c Card) float64 { return c.PowerW }},
		{"power_limit_watts", "Power limit of the GPU.", func(c Card) float64 { return c.PowerLimitW }},
		{"temperature_celsius", "Temperature of the GPU.", func(c Card) float64 { return c.TemperatureC }},
		{"paused", "1 if a person paused the GPU, otherwise 0.", func(c Card) float64 { return flag(c.Paused) }},
		{"stale", "1 if the GPU could not be read, so that no job starts there, otherwise 0.", func(c Card) float64 { return flag(c.Stale) }},
		{"jobs", "Running jobs on the GPU.", func(c Card) float64 { return float64(c.Jobs) }},
	} {
		f := p.add("gauge", "berth_gpu_"+g.name, g.help, "gpu")
		for _, c := range cards {
			if value := g.of(c); value >= 0 {
				f.set(value, strconv.Itoa(c.Index))
			}
		}
	}
}

func flag(set bool) float64 {
	if set {
		return 1
	}
	return 0
}
