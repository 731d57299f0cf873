package batch

import (
	"slices"
	"strconv"
	"strings"

	"berth/internal/job"
	"berth/internal/machine/gpu"
	"berth/internal/queue"
	"berth/internal/text/problem"
)

// gpuChoice decides which GPUs the jobs of an own queue may use.
type gpuChoice struct {
	opt   *HostOptions
	env   []string
	say   func(Word)
	cards []int // the answer
}

func (g *gpuChoice) lookup(name string) (string, bool) { return job.LookupEnv(g.env, name) }

// from evaluates the first reading of the GPUs.
func (g *gpuChoice) from(m *queue.Queue, first gpu.Sample, err error) ([]gpu.Device, error) {
	switch {
	case g.opt.Away && g.opt.GPUs == nil && (err != nil || m.NoGPUs):
		return nil, nil // a login node needs no GPU
	case err != nil:
		return nil, problem.Newf(problem.Unable, queue.NoCardsHint, "the GPUs cannot be read: %w", err)
	case m.NoGPUs:
		return nil, g.without("this machine has no GPU")
	case g.noneAllocated():
		m.Source, m.NoGPUs = gpu.None(), true
		return nil, g.without("Slurm gave no GPU to this job")
	}
	return first.Devices, g.choose(first)
}

// without checks whether the jobs can run without a GPU: either all of them can, or
// none is started. why says what is wrong with the GPUs.
func (g *gpuChoice) without(why string) error {
	switch {
	case g.opt.AsGpusched:
		return problem.Newf(problem.Unable, "try --sim 2: simulated GPUs, real processes", "%s", why)
	case len(g.opt.GPUs) > 0:
		return problem.Newf(problem.Invalid, "", "--gpus names GPU %d; %s", g.opt.GPUs[0], why)
	case g.opt.NeedsGPU != "":
		return problem.Newf(problem.Unable, "[gpus=0] before a command runs it without one; --sim 2 tries the file on simulated GPUs",
			"%s, and %s one", why, g.opt.NeedsGPU)
	}
	g.say(Word{NoGPU: why})
	return nil
}

// choose checks the ids that the user gave or inherited against the cards of
// this machine.
func (g *gpuChoice) choose(sample gpu.Sample) error {
	have := make([]string, 0, len(sample.Devices))
	for _, d := range sample.Devices {
		have = append(have, strconv.Itoa(d.Index))
		g.cards = append(g.cards, d.Index)
	}
	list := "this machine has " + strings.Join(have, ", ")
	if len(sample.Devices) == 0 {
		return problem.Newf(problem.Unable, "berth doctor says what is wrong with them", "no GPU of this machine can be read: %s", sample.Faults[0].Text)
	}
	if g.opt.GPUs != nil {
		if g.opt.AsGpusched { // it uses those that exist
			g.cards = slices.DeleteFunc(slices.Clone(g.opt.GPUs), func(index int) bool { return !slices.Contains(g.cards, index) })
			if len(g.cards) == 0 {
				return problem.Newf(problem.Unable, "correct --gpus", "every job is INFEASIBLE: --gpus names no GPU that exists; %s", list)
			}
			return nil
		}
		for _, index := range g.opt.GPUs {
			if !slices.Contains(g.cards, index) {
				return problem.Newf(problem.Invalid, "", "--gpus names GPU %d, %s", index, absent(sample, strconv.Itoa(index), list))
			}
		}
		g.cards = g.opt.GPUs
		return nil
	}
	if g.chooseAllocated(sample) {
		return nil
	}
	inherited, set := g.lookup("CUDA_VISIBLE_DEVICES")
	if !set {
		return nil
	}
	return g.inherit(sample, inherited, list)
}

// inherit uses the cards of an inherited CUDA_VISIBLE_DEVICES.
func (g *gpuChoice) inherit(sample gpu.Sample, inherited, list string) error {
	const hint = "unset it, or choose GPUs with --gpus"
	refuse := func(kind problem.Kind, format string, args ...any) error {
		return problem.Newf(kind, hint, "the inherited CUDA_VISIBLE_DEVICES "+format, args...)
	}
	g.cards = []int{}
	words := strings.FieldsFunc(inherited, func(r rune) bool { return r == ',' || r == ' ' })
	if len(words) == 0 {
		return refuse(problem.Unable, "is empty, so no GPU may be used")
	}
	if words[0] == "-1" { // the convention for no GPU
		return refuse(problem.Unable, "is %s, so no GPU may be used", inherited)
	}
	for _, word := range words {
		index, ok := findCard(sample, word)
		if !ok {
			return refuse(problem.Invalid, "names %q, %s", word, absent(sample, word, list))
		}
		if slices.Contains(g.cards, index) {
			return refuse(problem.Invalid, "names GPU %d twice: %s", index, inherited)
		}
		g.cards = append(g.cards, index)
	}
	return nil
}

// noneAllocated reports whether Slurm gave no card, so that none of the machine's
// may be used.
func (g *gpuChoice) noneAllocated() bool {
	_, set := g.lookup("CUDA_VISIBLE_DEVICES")
	return inAllocation(g.env) && g.opt.GPUs == nil && (set || g.opt.Sim == 0) && queue.GaveNone(g.lookup)
}

// chooseAllocated uses the cards that Slurm gave, if they can be told.
func (g *gpuChoice) chooseAllocated(sample gpu.Sample) bool {
	if !inAllocation(g.env) {
		return false
	}
	var cards []int
	for _, given := range queue.Given(g.lookup, sample.Devices) {
		for _, d := range sample.Devices {
			if d.UUID == given.UUID {
				cards = append(cards, d.Index)
			}
		}
	}
	if len(cards) > 0 {
		g.cards = cards
	}
	return len(cards) > 0
}

// absent is why a word names no card: the card is partitioned, and its parts are
// cards of their own, or it does not exist.
func absent(sample gpu.Sample, word, list string) string {
	var parts []string
	for _, d := range sample.Devices {
		if d.Part != nil && word == strconv.Itoa(d.Part.Of) {
			parts = append(parts, strconv.Itoa(d.Index))
		}
	}
	if len(parts) > 0 {
		return "which is partitioned; its parts are " + strings.Join(parts, ", ")
	}
	return "which does not exist; " + list
}

// findCard reads one word of CUDA_VISIBLE_DEVICES as CUDA does: an index, a
// UUID, or a unique prefix of one.
func findCard(sample gpu.Sample, word string) (index int, ok bool) {
	matches := 0
	for _, d := range sample.Devices {
		if word == strconv.Itoa(d.Index) || word == d.UUID {
			return d.Index, true
		}
		if strings.HasPrefix(word, "GPU-") && strings.HasPrefix(d.UUID, word) {
			index = d.Index
			matches++
		}
	}
	return index, matches == 1
}
