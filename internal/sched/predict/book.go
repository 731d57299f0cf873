package predict

import "time"

// Bounds of a Book. Sixteen runs of one command are enough to know how much they
// vary, and few enough to follow a command that changed. Eight jobs of a user:
// those submitted together are similar, earlier ones are not. Each command and
// each user takes one shelf per number of cards and one for all, so the tables
// hold about 4,000 commands and 1,000 users, in ten megabytes at most.
const (
	mostRuns     = 16
	mostRecent   = 8
	mostCommands = 8192
	mostUsers    = 2048
)

// recentFade is the weight of a user's run relative to the next one: the last two
// weigh as much as all before them.
const recentFade = 0.7

// Book remembers ended runs and estimates from them. It is bounded, and forgets
// the commands and users without new runs for longest. The same runs added in
// the same order give the same estimates. Estimating changes nothing, so several
// goroutines may do it while none adds.
//
// Commands are separate for each user: another user's train.py is another
// program, and its duration is private.
type Book struct {
	commands, users table
}

// NewBook is an empty book.
func NewBook() *Book {
	return &Book{commands: newTable(mostCommands), users: newTable(mostUsers)}
}

// Len is how many shelves it has: one for each command or user and number of
// cards.
func (b *Book) Len() int { return len(b.commands.shelves) + len(b.users.shelves) }

// Add adds an ended run. Its duration counts only if it succeeded, and is ignored
// if it is 0.
func (b *Book) Add(p Past) {
	at := shelfKey{user: bounded(p.User), command: key(p.Command, p.Key), gpus: max(0, p.GPUs)}
	if at.command != "" {
		b.commands.open(at).notePeak(p, mostRuns)
		note(&b.commands, at, p, mostRuns)
	}
	at.command = ""
	note(&b.users, at, p, mostRecent)
}

// note adds a run's duration to the shelf for its number of cards, and to the
// one for all numbers.
func note(in *table, at shelfKey, p Past, most int) {
	if p.Ran <= 0 || !p.OK {
		return
	}
	of := run{log: logOf(p.Ran), gpus: at.gpus, exact: checksum(p.Command)}
	for _, key := range []shelfKey{at, at.onAny()} {
		s := in.open(key)
		s.runs = push(s.runs, of, most)
	}
}

func (k shelfKey) onAny() shelfKey {
	k.gpus = anyGPUs
	return k
}

// Duration estimates how long a job will run: from runs of the same command, else
// from the user's latest jobs, else from its time limit. The limit and the grace
// period after it bound every estimate. A job that runs already is expected to
// run longer than it has: once it has outlasted the estimate, only longer runs
// count, and without any there is no estimate.
func (b *Book) Duration(a Ask) Estimate {
	e := b.fromRuns(a, 0)
	if e.High <= a.Ran && e.Samples > 0 {
		e = b.fromRuns(a, a.Ran)
		e.Longer = e.Samples > 0
	}
	most := a.Limit + a.Grace
	switch {
	case a.Limit > 0 && e.Samples == 0:
		// It may be anything up to the limit: take half. The grace period counts
		// in full, or a short limit with a long one would hide how long the job
		// can stay.
		e = Estimate{Mid: a.Limit/2 + a.Grace, High: most, Source: FromLimit}
	case a.Limit > 0:
		e.Low, e.Mid, e.High = min(e.Low, most), min(e.Mid, most), min(e.High, most)
	}
	return e.after(a.Ran)
}

// after is the estimate for a job that has run for some time.
func (e Estimate) after(ran time.Duration) Estimate {
	switch {
	case ran <= 0:
		return e
	case e.High <= ran:
		return Estimate{Source: FromNothing}
	case e.Mid <= ran:
		e.Mid = ran + (e.High-ran)/2
	}
	e.Low = max(e.Low, ran)
	return e
}

// fromRuns estimates from the runs that took longer than this.
func (b *Book) fromRuns(a Ask, longer time.Duration) Estimate {
	at := shelfKey{user: bounded(a.User), command: key(a.Command, a.Key), gpus: max(0, a.GPUs)}
	e := Estimate{Source: FromNothing}
	if s, assumed, source := b.sameCommand(at, a.Command, longer); s.count > 0 {
		e = Estimate{Source: source, Samples: s.count}
		e.Low, e.Mid, e.High = s.estimate(assumed)
	} else if s := b.recent(at, longer); s.count > 0 {
		e = Estimate{Source: FromUser, Samples: s.count}
		e.Low, e.Mid, e.High = s.estimate(sameUser)
	}
	return e
}

// sameCommand samples the runs of a command on the same number of cards or, if
// there are none, on other numbers. Runs with the same arguments go before those
// with others. All weigh the same, because the order of the runs of a sweep means
// nothing.
func (b *Book) sameCommand(at shelfKey, command string, longer time.Duration) (sample, prior, Source) {
	s := newSample(1, longer)
	if at.command == "" {
		return s, sameCommand, FromNothing
	}
	these, assumed := b.commands.shelves[at], sameCommand
	if these == nil || len(these.runs) == 0 {
		these, assumed = b.commands.shelves[at.onAny()], otherGPUs
	}
	if these == nil {
		return s, assumed, FromNothing
	}
	exact := checksum(command)
	s.addIf(these.runs, func(r run) bool { return r.exact == exact })
	if s.count > 0 && command != "" {
		return s, assumed, FromCommand
	}
	s = newSample(1, longer)
	s.addIf(these.runs, func(run) bool { return true })
	return s, assumed, FromProgram
}

// addIf adds runs, the newest first.
func (s *sample) addIf(runs []run, counts func(run) bool) {
	for i := len(runs) - 1; i >= 0; i-- {
		if counts(runs[i]) {
			s.add(runs[i].log)
		}
	}
}

// recent samples a user's latest jobs: first those on the same number of cards,
// newest first, then the others.
func (b *Book) recent(at shelfKey, longer time.Duration) sample {
	at.command = ""
	s := newSample(recentFade, longer)
	if these := b.users.shelves[at]; these != nil {
		s.addIf(these.runs, func(run) bool { return true })
	}
	if all := b.users.shelves[at.onAny()]; all != nil {
		s.addIf(all.runs, func(r run) bool { return r.gpus != at.gpus && s.count < mostRecent })
	}
	return s
}
