package predict

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

// Add adds an ended run. Its duration is ignored if it is 0.
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
	if p.Ran <= 0 {
		return
	}
	of := run{log: logOf(p.Ran), gpus: at.gpus}
	in.open(at).note(of, p.OK, most)
	in.open(at.onAny()).note(of, p.OK, most)
}

func (k shelfKey) onAny() shelfKey {
	k.gpus = anyGPUs
	return k
}

// Duration estimates how long a job will run: from runs of the same command, else
// from the user's latest jobs, else from its time limit. The limit and the grace
// period after it bound every estimate.
func (b *Book) Duration(a Ask) Estimate {
	at := shelfKey{user: bounded(a.User), command: key(a.Command, a.Key), gpus: max(0, a.GPUs)}
	e := Estimate{Source: FromNothing}
	if s, assumed := b.sameCommand(at); s.count > 0 {
		e = Estimate{Source: FromCommand, Samples: s.count}
		e.Low, e.Mid, e.High = s.estimate(assumed)
	} else if s := b.recent(at); s.count > 0 {
		e = Estimate{Source: FromUser, Samples: s.count}
		e.Low, e.Mid, e.High = s.estimate(sameUser)
	} else if a.Limit > 0 {
		// It may be anything up to the limit: take half. The grace period counts
		// in full, or a short limit with a long one would hide how long the job
		// can stay.
		e = Estimate{Mid: a.Limit/2 + a.Grace, High: a.Limit + a.Grace, Source: FromLimit}
	}
	if most := a.Limit + a.Grace; a.Limit > 0 {
		e.Low, e.Mid, e.High = min(e.Low, most), min(e.Mid, most), min(e.High, most)
	}
	return e
}

// sameCommand samples the runs of a command on the same number of cards or, if
// there are none, on other numbers. All weigh the same, because the order of the
// runs of a sweep means nothing. A success on another number of cards is better
// evidence than a failure on the same number.
func (b *Book) sameCommand(at shelfKey) (sample, prior) {
	s := newSample(1)
	if at.command == "" {
		return s, sameCommand
	}
	these, all := b.commands.shelves[at], b.commands.shelves[at.onAny()]
	switch {
	case these != nil && len(these.runs) > 0 && (these.well || all == nil || !all.well):
		s.addAll(these.runs)
		return s, sameCommand
	case all != nil:
		s.addAll(all.runs)
	}
	return s, otherGPUs
}

func (s *sample) addAll(runs []run) {
	for i := len(runs) - 1; i >= 0; i-- {
		s.add(runs[i].log)
	}
}

// recent samples a user's latest jobs: first those on the same number of cards,
// newest first, then the others. Failed ones count only if none succeeded.
func (b *Book) recent(at shelfKey) sample {
	at.command = ""
	s := newSample(recentFade)
	these, all := b.users.shelves[at], b.users.shelves[at.onAny()]
	if these != nil && (these.well || all == nil || !all.well) {
		s.addAll(these.runs)
	}
	if all == nil {
		return s
	}
	for i := len(all.runs) - 1; i >= 0 && s.count < mostRecent; i-- {
		if all.runs[i].gpus != at.gpus {
			s.add(all.runs[i].log)
		}
	}
	return s
}
