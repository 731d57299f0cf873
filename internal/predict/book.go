package predict

// Bounds of a Book. Sixteen runs of one command are enough to know its scatter,
// and few enough to follow a command that changed. Eight of a user's: what is
// submitted together is alike, what came before it is not. Each command and each
// user takes a shelf for each number of cards and one for all, so the tables hold
// some four thousand commands and a thousand users, in some ten megabytes at most.
const (
	mostRuns     = 16
	mostRecent   = 8
	mostCommands = 8192
	mostUsers    = 2048
)

// recentFade is the weight of a user's run against the one after it: the last two
// weigh as much as all before, and the last eight nearly everything.
const recentFade = 0.7

// Book remembers runs that are over, and guesses from them. It is bounded in
// everything and forgets what was added to longest ago. The same runs added in
// the same order give the same answers. Asking changes nothing, so that several
// may ask at once while nobody adds.
//
// A command is known by its user: train.py of another is another program, and
// how long it takes is not for everybody to see.
type Book struct {
	commands, users table
}

// NewBook is a book in which nothing is written.
func NewBook() *Book {
	return &Book{commands: newTable(mostCommands), users: newTable(mostUsers)}
}

// Len is how many kinds of run it remembers: pairs of a command or a user with a
// number of cards.
func (b *Book) Len() int { return len(b.commands.shelves) + len(b.users.shelves) }

// Add writes down a run that is over. What never ran has no time to be
// remembered.
func (b *Book) Add(p Past) {
	at := shelfKey{user: bounded(p.User), command: key(p.Command, p.Key), gpus: max(0, p.GPUs)}
	if at.command != "" {
		b.commands.open(at).notePeak(p, mostRuns)
		note(&b.commands, at, p, mostRuns)
	}
	at.command = ""
	note(&b.users, at, p, mostRecent)
}

// note keeps a run's time with those on as many cards, and with all.
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

// Duration guesses how long a job will run: from the same command's runs, else
// from the user's latest jobs, else from its time limit. The limit bounds every
// guess.
func (b *Book) Duration(a Ask) Guess {
	at := shelfKey{user: bounded(a.User), command: key(a.Command, a.Key), gpus: max(0, a.GPUs)}
	g := Guess{Source: FromNothing}
	if s, believed := b.sameCommand(at); s.count > 0 {
		g = Guess{Source: FromCommand, Samples: s.count}
		g.Low, g.Mid, g.High = s.guess(believed)
	} else if s := b.recent(at); s.count > 0 {
		g = Guess{Source: FromUser, Samples: s.count}
		g.Low, g.Mid, g.High = s.guess(sameUser)
	} else if a.Limit > 0 {
		// Where between nothing and the limit nobody knows: half.
		g = Guess{Mid: a.Limit / 2, High: a.Limit, Source: FromLimit}
	}
	if a.Limit > 0 {
		g.Low, g.Mid, g.High = min(g.Low, a.Limit), min(g.Mid, a.Limit), min(g.High, a.Limit)
	}
	return g
}

// sameCommand sums up the runs of a command on as many cards, or where there are
// none, on another number. The runs of a sweep come in no order that matters:
// they weigh the same. A run that ended well on other cards tells more than one
// that failed on these.
func (b *Book) sameCommand(at shelfKey) (sample, belief) {
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

// recent sums up a user's latest jobs: those on as many cards first, the newest
// before the older, then the others. Failed ones count only where none ended
// well.
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
