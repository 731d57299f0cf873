package cli

import (
	"cmp"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"berth/internal/queue/config"
	"berth/internal/sched"
	"berth/internal/sched/sim"
	"berth/internal/text"
)

// settings are the flags of a replay as values.
type settings struct {
	policies []sim.Policy
	machine  sim.Machine
	choices  sim.Choices
	share    config.Portion // of each user
	changed  func(flag string) bool
}

// replayFlags adds the flags that change decisions.
func (o *simulateOptions) replayFlags(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.StringVar(&o.parkCost, "park-cost", "", "let every job with one GPU be parked, at this `cost` each way: seconds (20), a copy speed (5GB/s), or measured")
	flags.BoolVar(&o.parkGangs, "park-gangs", false, "let jobs with several GPUs be parked too, as if none of them used NCCL")
	flags.StringVar(&o.gangSaves, "gang-checkpoint", "", "jobs with several GPUs save their own work this `often` (30m), or when they are told to (term): then they are ended for others, and go on from there")
	flags.StringVar(&o.restart, "restart-cost", "", "`time` that a job which saved its own work loses when it runs again (default 2m, or twice --min-run if that is less)")
	flags.StringVar(&o.parkMem, "park-memory", "", "host `memory` for parked jobs (1280G); 0: no limit (default: half of the host's, taken to be twice the memory of the GPUs)")
	flags.StringVar(&o.share, "user-share", "", "each user's `share` of the GPUs (4 or 50%): what they take beyond it is borrowed, and gives way (default: none; that of a snapshot)")
	flags.StringVar(&o.estimates, "estimates", string(sim.History), "source of estimates: history, perfect, limits, none, or one duration for all jobs (24h)")
	flags.StringVar(&o.maxBypass, "max-bypass", "", fmt.Sprintf("how long other jobs may overtake a user's oldest waiting job (default %gh); 0 or never: no limit", sched.DefaultMaxBypass.Hours()))
	flags.StringVar(&o.minRun, "min-run", "", "minimum time a job runs before it is parked for another (default 1m)")
	flags.StringVar(&o.halfLife, "half-life", "", "time after which usage counts half under fair share (default 7d); 0: never")
	flags.StringVar(&o.placement, "placement", "", "which GPU that fits a job gets: pack, spread (default pack)")
}

// Bounds on the values.
const (
	maxParkCost   = 24 * time.Hour
	maxRate       = 1e15 // bytes a second
	leastHalfLife = time.Minute
)

// read parses the flags into values, or says what was expected.
func (o *simulateOptions) read(cmd *cobra.Command) (settings, error) {
	s := settings{changed: cmd.Flags().Changed}
	if err := inRange(cmd, "gpus", float64(o.gpus), 1, sim.MaxGPUs); err != nil {
		return s, err
	}
	if err := inRange(cmd, "seeds", float64(o.seeds), 0, maxSeeds); err != nil {
		return s, err
	}
	vramMiB, err := text.ParseSize(o.vram)
	if err == nil && vramMiB == 0 {
		err = errors.New("expected a size above 0, found 0")
	}
	if err != nil {
		return s, badFlag(cmd, "vram", err)
	}
	s.machine = sim.Machine{GPUs: o.gpus, VRAMMiB: vramMiB}
	if s.choices.Park, err = o.readParking(cmd); err != nil {
		return s, err
	}
	if s.changed("user-share") {
		if s.share, err = parseShare(o.share); err != nil {
			return s, badFlag(cmd, "user-share", err)
		}
	}
	if s.changed("estimates") {
		if s.choices.Estimates, err = parseEstimates(o.estimates); err != nil {
			return s, badFlag(cmd, "estimates", err)
		}
	}
	s.choices.OwnMaxBypass, s.choices.OwnPlacement, s.choices.OwnMinRun = s.changed("max-bypass"), s.changed("placement"), s.changed("min-run")
	if s.policies, err = o.parsePolicies(); err != nil {
		return s, err
	}
	if err := o.adjust(cmd, s.policies); err != nil {
		return s, err
	}
	if !s.changed("restart-cost") {
		s.choices.Park.Restart = sim.MillisOf(s.policies[0].Rules.Restart().Seconds())
	}
	return s, nil
}

// readParking reads which jobs can be parked, and at what cost.
func (o *simulateOptions) readParking(cmd *cobra.Command) (p *sim.Parking, err error) {
	changed := cmd.Flags().Changed
	p = &sim.Parking{Pace: &sched.FirstPace, Who: sim.ThatAskFor}
	if changed("park-cost") {
		if p, err = parsePark(o.parkCost); err != nil {
			return nil, badFlag(cmd, "park-cost", err)
		}
		p.Who = sim.SingleGPU
	}
	if o.parkGangs {
		p.Who = sim.EveryJob
	}
	if changed("gang-checkpoint") {
		if p.GangsSave, err = parseSaves(o.gangSaves); err != nil {
			return nil, badFlag(cmd, "gang-checkpoint", err)
		}
	}
	if changed("restart-cost") {
		cost, err := orZero(o.restart)
		if err != nil || cost > maxParkCost {
			return nil, badFlag(cmd, "restart-cost", text.Mismatch(o.restart, "a duration of up to a day"))
		}
		p.Restart = sim.MillisOf(cost.Seconds())
	}
	p.MemoryMiB = sim.HostMemory
	if changed("park-memory") {
		if p.MemoryMiB, err = parseParkMemory(o.parkMem); err != nil {
			return nil, badFlag(cmd, "park-memory", err)
		}
	}
	return p, nil
}

// parseSaves parses how often a job saves its own work.
func parseSaves(written string) (sim.Saves, error) {
	written = strings.ToLower(strings.TrimSpace(written))
	if written == "term" {
		return sim.WhenTold, nil
	}
	every, err := text.ParseDuration(written)
	if err != nil || every < time.Second {
		return 0, text.Mismatch(written, "how often jobs save their work (30m), or term")
	}
	return sim.Saves(sim.MillisOf(every.Seconds())), nil
}

// parseParkMemory parses a size, or 0 for no limit.
func parseParkMemory(written string) (int64, error) {
	if strings.TrimSpace(written) == "0" {
		return 0, nil
	}
	return text.ParseSize(written)
}

// parseShare parses a number of GPUs, or a percentage.
func parseShare(written string) (config.Portion, error) {
	number, percent := strings.CutSuffix(strings.TrimSpace(written), "%")
	value, err := strconv.ParseFloat(strings.TrimSpace(number), 64)
	most := float64(sim.MaxGPUs)
	if percent {
		most = 100
	}
	if err != nil || !(value > 0 && value <= most) {
		return config.Portion{}, text.Mismatch(written, fmt.Sprintf("a number of GPUs up to %d, or a percentage above 0%% and up to 100%%", sim.MaxGPUs))
	}
	if percent {
		return config.Portion{Percent: value}, nil
	}
	return config.Portion{Amount: value}, nil
}

// lend gives each user of the workload their share.
func (s *settings) lend(w *sim.Workload) {
	if !s.changed("user-share") {
		return
	}
	w.DefaultLimit.Share = s.share.Of(float64(w.Machine.GPUs))
	if w.Rules != nil {
		w.Rules.BorrowTime = cmp.Or(w.Rules.BorrowTime, sched.DefaultBorrowTime)
	}
	for i := range s.policies {
		s.policies[i].Rules.BorrowTime = sched.DefaultBorrowTime
	}
}

// adjust applies flags to all policies.
func (o *simulateOptions) adjust(cmd *cobra.Command, policies []sim.Policy) error {
	changed := cmd.Flags().Changed
	if changed("max-bypass") {
		bound, err := parseBypass(strings.ToLower(strings.TrimSpace(o.maxBypass)))
		if err != nil {
			return badFlag(cmd, "max-bypass", text.Mismatch(o.maxBypass, "a duration of at least 1s, or 0 for no limit"))
		}
		for i := range policies {
			policies[i].Rules.MaxBypass = bound
		}
	}
	if changed("min-run") {
		least, err := text.ParseDuration(o.minRun)
		if err != nil {
			return badFlag(cmd, "min-run", err)
		}
		for i := range policies {
			policies[i].Rules.MinRun = least
		}
	}
	if changed("half-life") {
		halfLife, err := orNever(o.halfLife)
		if err != nil || halfLife > 0 && halfLife < leastHalfLife {
			return badFlag(cmd, "half-life", text.Mismatch(o.halfLife, "a duration of at least 1m, or 0 for never"))
		}
		for i := range policies {
			policies[i].HalfLife = halfLife
		}
	}
	if changed("placement") {
		placement, err := sched.ParsePlacement(o.placement)
		if err != nil {
			return badFlag(cmd, "placement", err)
		}
		for i := range policies {
			policies[i].Rules.Placement = placement
		}
	}
	return nil
}

// orNever parses a duration; 0 and never mean no limit.
func orNever(text string) (time.Duration, error) {
	if strings.EqualFold(strings.TrimSpace(text), "never") {
		return 0, nil
	}
	return orZero(text)
}

// orZero parses a duration, or 0.
func orZero(written string) (time.Duration, error) {
	if number, err := strconv.ParseFloat(strings.TrimSuffix(strings.TrimSpace(written), "s"), 64); err == nil && number == 0 {
		return 0, nil
	}
	return text.ParseDuration(written)
}

// parsePark parses the cost of parking: a time each way, a copy speed, or the word
// for what a daemon plans with until it has parked a job.
func parsePark(text string) (*sim.Parking, error) {
	text = strings.TrimSpace(text)
	if strings.EqualFold(text, "measured") {
		return &sim.Parking{Pace: &sched.FirstPace}, nil
	}
	bad := fmt.Errorf("expected a time each way of up to a day (20, 1m), a bandwidth (5GB/s, 800MiB/s) or measured, found %q", text)
	if rate, isRate := strings.CutSuffix(strings.ToLower(text), "/s"); isRate {
		bytes, err := parseBytes(rate)
		if err != nil {
			return nil, bad
		}
		return &sim.Parking{BytesPerSecond: bytes}, nil
	}
	cost, err := orZero(text)
	if err != nil || cost > maxParkCost {
		return nil, bad
	}
	return &sim.Parking{EachWay: sim.MillisOf(cost.Seconds())}, nil
}

var byteUnits = []struct {
	suffix string
	bytes  float64
}{
	{"tib", 1 << 40}, {"gib", 1 << 30}, {"mib", 1 << 20}, {"kib", 1 << 10},
	{"tb", 1e12}, {"gb", 1e9}, {"mb", 1e6}, {"kb", 1e3}, {"t", 1e12}, {"g", 1e9}, {"m", 1e6}, {"k", 1e3}, {"b", 1},
}

// parseBytes parses an amount as vendors write it: GB is 10^9 bytes, GiB 2^30.
func parseBytes(text string) (float64, error) {
	for _, unit := range byteUnits {
		number, found := strings.CutSuffix(text, unit.suffix)
		if !found {
			continue
		}
		value, err := strconv.ParseFloat(strings.TrimSpace(number), 64)
		if err != nil || !(value*unit.bytes >= 1 && value*unit.bytes <= maxRate) {
			return 0, fmt.Errorf("expected a bandwidth, found %q", text)
		}
		return value * unit.bytes, nil
	}
	return 0, fmt.Errorf("expected a unit, found %q", text)
}

// parseEstimates parses a source of estimates, or a duration.
func parseEstimates(written string) (sim.Estimates, error) {
	written = strings.ToLower(strings.TrimSpace(written))
	if d, err := text.ParseDuration(written); err == nil && d > 0 {
		return sim.Fixed(d), nil
	}
	return sim.ParseEstimates(written)
}
