package reason

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"berth/internal/text"
)

// String is the reason as a sentence, without a capital or a full stop: it
// follows a job's name or "berth: job".
func (r Reason) String() string {
	switch r.Kind {
	case WaitsForGPUs:
		return r.needs() + r.facts()
	case WaitsForCPUs:
		return fmt.Sprintf("needs %s; %d of %d are free", text.Count(r.Amount, "CPU"), r.Free, r.Total)
	case WaitsForMemory:
		return fmt.Sprintf("needs %d MiB of memory; %d of %d are free", r.Amount, r.Free, r.Total)
	case WaitsForReadings:
		return "waits until the GPUs can be read: " + r.Detail
	case WaitsBehind:
		return fmt.Sprintf("waits behind job %s, which %s", r.Job, r.Because)
	case WaitsForTurn:
		return fmt.Sprintf("fits; it starts after the jobs ahead of it (at most %s at a time)", text.Count(r.Total, "start"))
	case WaitsForArray:
		return fmt.Sprintf("array %s already has %s running; its limit is %d", r.Pool, text.Count(r.Amount, "task"), r.Total)
	case WaitsForGroup:
		return r.groupLimit()
	case WaitsForResume:
		return fmt.Sprintf("group %s is paused by %s", r.Pool, r.User)
	case WaitsForLimit:
		return r.userLimit()
	case WaitsForShare:
		return fmt.Sprintf("%s, and job %s of a user below theirs goes first", r.moreGPUs(), r.Job)
	case StartsNow:
		return "fits; it starts next"
	case NotQueued:
		return fmt.Sprintf("job %s is not in the queue", r.Job)
	}
	return r.never()
}

// never is the sentence of a job that cannot run on this machine.
func (r Reason) never() string {
	switch r.Kind {
	case TooManyGPUs:
		has := strconv.FormatInt(r.Total, 10)
		if r.Total == 0 {
			has = "none"
		}
		return fmt.Sprintf("asks for %s; this machine has %s", text.Count(r.Needs, "GPU"), has)
	case NoSuchGPU:
		if r.Parts {
			return fmt.Sprintf("asks for %s, which is partitioned; its parts are %s", gpus(r.IDs), r.numbers())
		}
		return fmt.Sprintf("asks for %s%s; this machine has %s", gpus(r.IDs), r.limits(), r.machine())
	case RepeatedGPU:
		return fmt.Sprintf("asks for %s more than once", gpus(r.IDs))
	case TooFewAllowed:
		return fmt.Sprintf("asks for %s%s; %d of this machine's %d qualify: %s",
			text.Count(r.Needs, "GPU"), r.limits(), r.Amount, r.Total, r.machine()) + r.parts()
	case TooMuchVRAM:
		share := ""
		if r.Share > 0 {
			share = fmt.Sprintf(" (share %s)", text.Share(r.Share))
		}
		if r.Needs > 1 {
			return fmt.Sprintf("asks for %d GPUs with %d MiB each%s; the %d largest GPUs it may use have room for %d each",
				r.Needs, r.VRAMMiB, share, r.Needs, r.HoldsMiB)
		}
		return fmt.Sprintf("asks for %d MiB per GPU%s; the largest GPU it may use has room for %d", r.VRAMMiB, share, r.HoldsMiB)
	case TooManyCPUs:
		return fmt.Sprintf("asks for %s; this machine has %d", text.Count(r.Amount, "CPU"), r.Total)
	case TooMuchMemory:
		return fmt.Sprintf("asks for %d MiB of memory; this machine has %d", r.Amount, r.Total)
	case OverUserLimit:
		if r.Resource != NoResource {
			return fmt.Sprintf("asks for %s; the limit %s is %d (%s)", r.amount(r.Amount), r.whose(), r.Total, r.key(string(r.Resource)))
		}
		return fmt.Sprintf("asks for %s; %s", countGPUs(r.MoreGPUs), r.limitGPUs()) + r.whoBorrows()
	}
	return ""
}

// groupLimit is the sentence of a job whose group is at its limit, or above it: a
// limit may be lowered while jobs run.
func (r Reason) groupLimit() string {
	runs, jobs := int64(len(r.Jobs)), text.Some(r.Jobs, maxJobsNamed)
	if runs > r.Total {
		return fmt.Sprintf("%s of group %s are running (%s); its limit is %d", text.Count(runs, "job"), r.Pool, jobs, r.Total)
	}
	return fmt.Sprintf("%d of group %s's %s %s running (%s)", runs, r.Pool, text.Count(r.Total, "job"), text.Verb(runs, "are"), jobs)
}

// userLimit is the sentence of a job whose user is at a limit.
func (r Reason) userLimit() string {
	if r.LimitGPUs > 0 {
		words := r.moreGPUs() + r.whoBorrows()
		if r.Unmeasured {
			words += "; a share counts as a whole GPU until its memory is measured, usually within seconds"
		}
		return words
	}
	user := cmp.Or(r.User, "its user")
	if r.Resource != NoResource {
		return fmt.Sprintf("%s holds %s and this job needs %d more; the limit %s is %d (%s)",
			user, r.amount(r.Held), r.Amount, r.whose(), r.Total, r.key(string(r.Resource)))
	}
	if r.Flag != "" {
		return fmt.Sprintf("%s already %s; the limit is %d at a time (%s)", text.Count(r.Amount, "job"), text.Verb(r.Amount, "run"), r.Total, r.Flag)
	}
	if r.Parked > 0 {
		return fmt.Sprintf("%s already has %s, %d of them parked; the limit %s is %d (%s)", user, text.Count(r.Amount, "job"), r.Parked, r.whose(), r.Total, r.key("running_jobs"))
	}
	return fmt.Sprintf("%s already runs %s; the limit %s is %d (%s)", user, text.Count(r.Amount, "job"), r.whose(), r.Total, r.key("running_jobs"))
}

// moreGPUs says how far the job would exceed the limit on GPUs.
func (r Reason) moreGPUs() string {
	return fmt.Sprintf("%s holds %s and this job needs %s more; %s", cmp.Or(r.User, "its user"), countGPUs(r.HeldGPUs), text.Decimal(r.MoreGPUs), r.limitGPUs())
}

func (r Reason) limitGPUs() string {
	if r.LimitIsShare {
		return fmt.Sprintf("the share %s is %s (%s)", r.whose(), text.Decimal(r.LimitGPUs), r.key("gpus"))
	}
	return fmt.Sprintf("the limit %s is %s (%s)", r.whose(), text.Decimal(r.LimitGPUs), r.key("gpus_max"))
}

// whoBorrows says which jobs may exceed the share, if this one may not.
func (r Reason) whoBorrows() string {
	switch {
	case !r.NeverBorrows:
		return ""
	case r.BorrowS > 0:
		return ", beyond which a job has to be preemptible or have a time limit of at most " + text.Brief(text.OfSeconds(r.BorrowS))
	}
	return ", beyond which a job has to be preemptible"
}

// amount is an amount of the resource that is limited.
func (r Reason) amount(n int64) string {
	if r.Resource == Memory {
		return fmt.Sprintf("%d MiB of memory", n)
	}
	return text.Count(n, "CPU")
}

// key is where the config sets the limit.
func (r Reason) key(name string) string {
	if r.Own {
		return "limits.users." + cmp.Or(r.User, "NAME") + "." + name
	}
	return "limits." + name
}

// whose says whether a limit is for one user or for every user.
func (r Reason) whose() string {
	if r.Own && r.User != "" {
		return "for " + r.User
	}
	return "per user"
}

// needs begins the sentence: "needs 2 GPUs with 18432 MiB free".
func (r Reason) needs() string {
	var b strings.Builder
	b.WriteString("needs ")
	if r.Share > 0 {
		fmt.Fprintf(&b, "share %s of ", text.Share(r.Share))
	}
	switch {
	case len(r.IDs) > 0:
		b.WriteString(gpus(r.IDs))
		if r.Idle {
			b.WriteString(" idle")
		}
	case r.Idle && r.Needs == 1:
		b.WriteString("an idle GPU")
	case r.Idle:
		fmt.Fprintf(&b, "%d idle GPUs", r.Needs)
	case r.Share > 0 && r.Needs == 1:
		b.WriteString("a GPU")
	case r.Share > 0:
		fmt.Fprintf(&b, "each of %d GPUs", r.Needs)
	default:
		b.WriteString(text.Count(r.Needs, "GPU"))
	}
	b.WriteString(r.limits())
	if !r.Idle {
		fmt.Fprintf(&b, " with %d MiB free", r.VRAMMiB)
	}
	if r.Exclusive {
		b.WriteString(" and no other berth job")
	}
	return b.String()
}

func (r Reason) limits() string { return limits(r.Type, r.Allow) }

// limits is which cards a job restricts itself to.
func limits(kind string, allow []int) string {
	words := ""
	if kind != "" {
		words += " of type " + kind
	}
	if len(allow) > 0 {
		words += " among " + gpus(allow)
	}
	return words
}

// facts describes the cards: first the free memory of those that lack nothing
// else, then what keeps the job off the others.
func (r Reason) facts() string {
	var best, others []Card
	for _, c := range r.Cards {
		if !r.Idle && c.Obstacle == "" || c.Obstacle == ObstacleFree {
			best = append(best, c)
		} else {
			others = append(others, c)
		}
	}
	slices.SortStableFunc(best, func(a, b Card) int { return cmp.Compare(b.FreeMiB, a.FreeMiB) })
	free := make([]string, len(best))
	for i, c := range best {
		free[i] = fmt.Sprintf("gpu%d %d", c.GPU, c.FreeMiB)
	}
	words := ""
	if len(free) > 0 {
		words += "; best now: " + text.Some(free, maxCardsNamed)
	}
	if len(others) > 0 {
		words += "; " + text.Some(grouped(others), maxCardsNamed)
	}
	return words
}

// numbers lists the machine's cards as a user types them in --ids.
func (r Reason) numbers() string {
	list := make([]string, len(r.Cards))
	for i, c := range r.Cards {
		list[i] = strconv.Itoa(c.GPU)
	}
	return text.Some(list, maxCardsNamed)
}

// machine lists the machine's cards with their names.
func (r Reason) machine() string {
	names := make([]string, len(r.Cards))
	for i, c := range r.Cards {
		names[i] = strings.TrimSpace(fmt.Sprintf("gpu%d %s", c.GPU, c.Name))
	}
	return text.Some(names, maxCardsNamed)
}

// parts says why MIG parts do not count.
func (r Reason) parts() string {
	if !r.Parts {
		return ""
	}
	return "; a job can use only one part of a partitioned GPU"
}
