package metrics

import (
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
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

// gauge is a metric of a scrape, with the names of its labels.
type gauge struct{ desc *prometheus.Desc }

func newGauge(name, help string, labels ...string) gauge {
	return gauge{prometheus.NewDesc(name, help, labels, nil)}
}

// The gauges.
var (
	jobs       = newGauge("berth_jobs", "Unfinished jobs by state.", "state")
	waiting    = newGauge("berth_waiting_jobs", "Queued and parked jobs by what they wait for.", "reason")
	oldestWait = newGauge("berth_queue_oldest_wait_seconds", "How long the oldest job that waits for room has waited; 0 if none waits.")
	idleJobs   = newGauge("berth_idle_jobs", "Running jobs that have not used their GPUs or CPUs for idle.report_after.")
	blocked    = newGauge("berth_starts_blocked", "1 if no job can start at all, otherwise 0.")
	strays     = newGauge("berth_unknown_supervisors", "Supervisors that the store does not know.")
	requests   = newGauge("berth_loop_waiting_requests", "Requests that wait for their turn in the scheduling loop.")
	inFlight   = newGauge("berth_api_in_flight_requests", "Requests and streams that are being served.")
	storeBytes = newGauge("berth_store_size_bytes", "Size of the database, with what is not merged into it yet.")
	parkedHost = newGauge("berth_parked_host_bytes", "Host memory that holds the GPU memory of parked jobs.")

	userJobs    = newGauge("berth_user_jobs", "Unfinished jobs of a user.", "user")
	userRunning = newGauge("berth_user_running_jobs", "Running jobs of a user.", "user")
	userGPUs    = newGauge("berth_user_gpus", "GPUs that a user's running jobs count as, against limits and in fair share.", "user")

	cardInfo     = newGauge("berth_gpu_info", "Always 1; the labels describe the GPU.", "gpu", "uuid", "name")
	cardTotal    = newGauge("berth_gpu_memory_total_bytes", "Memory of the GPU.", "gpu")
	cardUsed     = newGauge("berth_gpu_memory_used_bytes", "GPU memory in use, by anyone.", "gpu")
	cardExternal = newGauge("berth_gpu_memory_external_bytes", "GPU memory set aside for processes that berth did not start, spike buffer included.", "gpu")
	cardBooked   = newGauge("berth_gpu_memory_allocated_bytes", "GPU memory allocated to running jobs.", "gpu")
	cardUtil     = newGauge("berth_gpu_utilization_ratio", "Utilisation of the GPU, 0 to 1.", "gpu")
	cardPower    = newGauge("berth_gpu_power_watts", "Power draw of the GPU.", "gpu")
	cardLimit    = newGauge("berth_gpu_power_limit_watts", "Power limit of the GPU.", "gpu")
	cardTemp     = newGauge("berth_gpu_temperature_celsius", "Temperature of the GPU.", "gpu")
	cardHealth   = newGauge("berth_gpu_health", "1 for the health that the GPU has, 0 for the others.", "gpu", "health")
	cardPaused   = newGauge("berth_gpu_paused", "1 if a person paused the GPU, otherwise 0.", "gpu")
	cardStale    = newGauge("berth_gpu_stale", "1 if the GPU could not be read, so that no job starts there, otherwise 0.", "gpu")
	cardJobs     = newGauge("berth_gpu_jobs", "Running jobs on the GPU.", "gpu")
	cardsFailed  = newGauge("berth_gpus_unreadable", "1 if the last reading of the GPUs failed, otherwise 0.")
	cardsRead    = newGauge("berth_gpus_read_timestamp_seconds", "When the GPUs were last read, in seconds since 1970.")
)

// healths are the values of the label health, as users see them.
var healths = []string{"ok", "suspect", "quarantined"}

// collector gives the state of one scrape to a registry.
type collector struct {
	state State
	users map[string]User // under the names that are shown
}

// Describe tells nothing, so that the registry checks what is collected instead.
func (c collector) Describe(chan<- *prometheus.Desc) {}

func (c collector) Collect(to chan<- prometheus.Metric) {
	s := c.state
	put := func(g gauge, value float64, labels ...string) {
		to <- prometheus.MustNewConstMetric(g.desc, prometheus.GaugeValue, value, labels...)
	}
	put(jobs, float64(s.Queued), "queued")
	put(jobs, float64(s.Running), "running")
	put(jobs, float64(s.Parked), "parked")
	put(waiting, float64(s.Room), "room")
	put(waiting, float64(s.Held), "release")
	put(waiting, float64(s.Later), "time")
	put(waiting, float64(s.Dependent), "jobs")
	put(oldestWait, max(0, s.OldestWait.Seconds()))
	put(idleJobs, float64(s.IdleJobs))
	put(blocked, flag(s.Blocked))
	put(strays, float64(s.Strays))
	put(requests, float64(s.Requests))
	put(inFlight, float64(s.InFlight))
	put(parkedHost, float64(s.ParkedMiB*mib))
	put(storeBytes, float64(s.StoreBytes))
	for name, u := range c.users {
		put(userJobs, float64(u.Jobs), name)
		put(userRunning, float64(u.Running), name)
		put(userGPUs, u.GPUs, name)
	}
	put(cardsFailed, flag(s.Unreadable))
	if !s.ReadAt.IsZero() {
		put(cardsRead, float64(s.ReadAt.UnixMilli())/1000)
	}
	for _, card := range s.Cards {
		collectCard(card, put)
	}
}

func collectCard(card Card, put func(g gauge, value float64, labels ...string)) {
	index := strconv.Itoa(card.Index)
	known := func(g gauge, value float64) {
		if value >= 0 {
			put(g, value, index)
		}
	}
	put(cardInfo, 1, index, valid(card.UUID), valid(card.Name))
	put(cardTotal, float64(card.TotalMiB*mib), index)
	put(cardUsed, float64(card.UsedMiB*mib), index)
	put(cardExternal, float64(card.ExternalMiB*mib), index)
	put(cardBooked, float64(card.BookedMiB*mib), index)
	known(cardUtil, card.UtilPct/100)
	known(cardPower, card.PowerW)
	known(cardLimit, card.PowerLimitW)
	known(cardTemp, card.TemperatureC)
	for _, health := range healths {
		put(cardHealth, flag(card.Health == health), index, health)
	}
	put(cardPaused, flag(card.Paused), index)
	put(cardStale, flag(card.Stale), index)
	put(cardJobs, float64(card.Jobs), index)
}

func flag(set bool) float64 {
	if set {
		return 1
	}
	return 0
}
