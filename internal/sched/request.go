package sched

import (
	"slices"
	"strconv"
	"strings"

	"berth/internal/job"
	"berth/internal/job/reason"
)

// Request is what a job asks for. It is comparable: jobs with equal Requests fit
// equally well, so one answer serves them all.
type Request struct {
	GPUs      int     `json:"gpus"`               // 0: a CPU job
	VRAMMiB   int64   `json:"vram_mib,omitempty"` // per GPU; 0: undeclared
	Share     float64 `json:"share,omitempty"`    // of each of its GPUs
	Exclusive bool    `json:"exclusive,omitempty"`
	Type      string  `json:"type,omitempty"`  // lower case
	IDs       string  `json:"ids,omitempty"`   // "3,1": exactly these, in this order
	Allow     string  `json:"allow,omitempty"` // "0,1,3": ascending, each once
	CPUs      int     `json:"cpus,omitempty"`
	MemMiB    int64   `json:"mem_mib,omitempty"`
}

// NewRequest reads the request out of a spec. vramMiB is the declaration in force,
// which a retry may have raised above the spec's. Rules that change what a job asks
// for (Exclusive, JobsPerGPU) are applied here and nowhere else.
func NewRequest(spec job.Spec, vramMiB int64, rules Rules) Request {
	r := Request{GPUs: spec.GPUs, CPUs: spec.CPUs, MemMiB: spec.MemMiB}
	switch {
	case len(spec.IDs) > 0:
		r.GPUs = len(spec.IDs)
	case spec.Share > 0:
		r.GPUs = max(1, spec.GPUs)
	}
	if r.GPUs <= 0 {
		// A CPU job that declares nothing still keeps one core busy.
		r.GPUs, r.CPUs = 0, max(1, spec.CPUs)
		return r
	}
	r.VRAMMiB = max(0, vramMiB)
	r.Share = spec.Share
	r.Exclusive = spec.Exclusive || rules.Exclusive
	r.Type = strings.ToLower(spec.Type)
	r.IDs = joinIDs(spec.IDs)
	r.Allow = joinIDs(slices.Compact(slices.Sorted(slices.Values(spec.Allow))))
	if r.undeclared() && rules.JobsPerGPU > 0 {
		r.Share = 1 / float64(rules.JobsPerGPU)
	}
	return r
}

// amounts are the parts of a request in which more is harder to place.
type amounts struct {
	gpus    int
	vramMiB int64
	share   float64
	cpus    int
	memMiB  int64
	term    term
}

func (r *Request) amounts() amounts {
	return amounts{gpus: r.GPUs, vramMiB: r.VRAMMiB, share: r.Share, cpus: r.CPUs, memMiB: r.MemMiB}
}

// undeclared reports that a job does not say how much of a card it needs: it gets
// idle cards, to itself.
func (r *Request) undeclared() bool { return r.GPUs > 0 && r.VRAMMiB == 0 && r.Share == 0 }

// allows reports whether the job's type and allow list admit the card. IDs are
// checked elsewhere.
func (r *Request) allows(c *Card) bool {
	if r.Type != "" && !strings.Contains(strings.ToLower(c.Name), r.Type) {
		return false
	}
	return !r.oneOf(c) && (r.Allow == "" || slices.Contains(splitIDs(r.Allow), c.Index))
}

// oneOf reports a part of a card for a job that wants several GPUs: CUDA gives a
// program one part, so the others would lie idle. A job that names parts may have
// them.
func (r *Request) oneOf(c *Card) bool { return c.Part && r.GPUs > 1 && r.IDs == "" }

// Named lists the cards that the job restricts itself to: exactly these in this
// order, or any of them. A job that takes any card names none.
func (r *Request) Named(cards []Card) (ids []int, exactly bool) {
	if r.IDs != "" {
		return splitIDs(r.IDs), true
	}
	if r.Type == "" && r.Allow == "" {
		return nil, false
	}
	ids = []int{}
	for i := range cards {
		if r.allows(&cards[i]) {
			ids = append(ids, cards[i].Index)
		}
	}
	return ids, false
}

// asked is the request as reasons show it.
func (r *Request) asked() reason.Request {
	return reason.Request{
		GPUs: r.GPUs, VRAMMiB: r.VRAMMiB, Share: r.Share, Exclusive: r.Exclusive, Type: r.Type,
		IDs: splitIDs(r.IDs), Allow: splitIDs(r.Allow), CPUs: r.CPUs, MemMiB: r.MemMiB,
	}
}

func joinIDs(ids []int) string {
	var b strings.Builder
	for i, id := range ids {
		if i > 0 {
			b.WriteByte(',')
		}
		b.WriteString(strconv.Itoa(id))
	}
	return b.String()
}

// splitIDs undoes joinIDs.
func splitIDs(list string) []int {
	if list == "" {
		return nil
	}
	fields := strings.Split(list, ",")
	ids := make([]int, len(fields))
	for i, field := range fields {
		id, err := strconv.Atoi(field)
		if err != nil {
			panic("bug: a request's card list reads " + strconv.Quote(list))
		}
		ids[i] = id
	}
	return ids
}
