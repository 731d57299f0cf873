package slurm

import (
	"cmp"
	"errors"
	"fmt"
	"os/user"
	"slices"
	"time"

	"berth/internal/api"
	"berth/internal/compat/frontend"
	"berth/internal/job"
	"berth/internal/text"
)

var squeue = frontend.Program{Name: "squeue", Usage: squeueUsage, Run: runSqueue, OwnH: true}

const squeueUsage = `usage: squeue [OPTION...]

List queued and running jobs in Slurm's format.

      --me, -u, --user NAMES    only jobs of these users
  -j, --jobs IDS                only these jobs
  -n, --name NAMES              only jobs of these names
  -t, --states STATES           only these: PD, R, S or PENDING and so on, or all
  -o, --format FORMAT           columns: "%.18i %.9P %j"; %i %A %F %K %P %j %u %t %T
                                %M %l %L %D %N %R %r %C %m %b %S %e %V %Q %Z %o ...
  -O, --Format NAMES            columns by name, each 20 wide or NAME:WIDTH
  -l, --long                    with time limits
      --start                   when queued jobs are expected to start
  -r, --array                   a line for each task of an array
  -h, --noheader                no titles
      --help                    print this

Reasons are Slurm's words; berth why says more.

Exit status: 0 listed; 1 failed; 255 bad usage.

Example:
  squeue --me -o "%.8i %.20j %.8T %.10M %R"
`

const (
	usualFormat = "%.18i %.9P %.8j %.8u %.2t %.10M %.6D %R"
	longFormat  = "%.18i %.9P %.8j %.8u %.8T %.10M %.9l %.6D %R"
	startFormat = "%.18i %.9P %.8j %.8u %.2t %.19S %.6D %20Y %R"
)

// remembered is for how long squeue lists a job that has ended, if asked for such
// jobs.
const remembered = 5 * time.Minute

type listing struct {
	me, long, start, tasks, bare bool
	users, ids, names, states    []string
	format, columns              string
}

func squeueOptions() map[string]option[listing] {
	ignored := func(short byte, kind int) option[listing] { return option[listing]{short: short, kind: kind} }
	return map[string]option[listing]{
		"me": on(0, func(l *listing) *bool { return &l.me }), "long": on('l', func(l *listing) *bool { return &l.long }),
		"start": on(0, func(l *listing) *bool { return &l.start }), "array": on('r', func(l *listing) *bool { return &l.tasks }),
		"noheader": on('h', func(l *listing) *bool { return &l.bare }),
		"user":     listed('u', func(l *listing) *[]string { return &l.users }), "users": listed(0, func(l *listing) *[]string { return &l.users }),
		"jobs": listed('j', func(l *listing) *[]string { return &l.ids }), "job": listed(0, func(l *listing) *[]string { return &l.ids }),
		"name": listed('n', func(l *listing) *[]string { return &l.names }), "states": listed('t', func(l *listing) *[]string { return &l.states }),
		"state":  listed(0, func(l *listing) *[]string { return &l.states }),
		"format": kept('o', func(l *listing) *string { return &l.format }), "Format": kept('O', func(l *listing) *string { return &l.columns }),
		"all": ignored('a', bare), "verbose": ignored('v', bare), "partition": ignored('p', valued), "account": ignored('A', valued), "qos": ignored('q', valued),
		"nodelist": ignored('w', valued), "sort": ignored('S', valued), "clusters": ignored('M', valued), "priority": ignored('P', bare), "array-unique": ignored(0, bare),
	}
}

func runSqueue(c *frontend.Call) int {
	var l listing
	words, err := parse(c.Args, squeueOptions(), &l, true)
	if err == nil && len(words) > 0 {
		err = fmt.Errorf("expected only options, found %s", text.Found(words[0]))
	}
	columns, wrong := l.shown()
	if err = cmp.Or(err, wrong); err != nil {
		c.Complain(err.Error(), "see squeue --help")
		return badUsage
	}
	return ask(c, func(a *asker) error {
		entries, err := l.entries(a)
		if err != nil {
			return err
		}
		if l.long {
			fmt.Fprintln(c.Out, a.now.Format("Mon Jan 02 15:04:05 2006"))
		}
		if !l.bare {
			fmt.Fprintln(c.Out, columns.line(func(f *field) string { return f.title }))
		}
		for i := range entries {
			fmt.Fprintln(c.Out, columns.line(func(f *field) string { return frontend.OneLine(f.value(a, &entries[i])) }))
		}
		return nil
	})
}

// shown are the columns that were asked for.
func (l *listing) shown() (columns, error) {
	fields := jobFields()
	if l.columns != "" {
		return namedColumns(l.columns, fields)
	}
	usual := usualFormat
	switch {
	case l.start:
		usual = startFormat
	case l.long:
		usual = longFormat
	}
	return formatColumns(cmp.Or(l.format, usual), fields)
}

// entries are the jobs that were asked for, in the order of the queue: waiting
// ones first, as Slurm has them.
func (l *listing) entries(a *asker) ([]entry, error) {
	if l.me {
		me, err := user.Current()
		if err != nil {
			return nil, err
		}
		l.users = append(l.users, me.Username)
	}
	var views []job.View
	take := func(v job.View) error {
		long, short := state(&v)
		over := v.EndedAt != nil && len(l.states) == 0 // it was named
		if !over && !(l.start && v.State != job.Queued) && among(l.users, v.User) && among(l.names, v.Name) && among(l.states, long, short, "all") {
			views = append(views, v)
		}
		return nil
	}
	last, err := a.client.JobsAll(a.ctx, api.Query{Reasons: true, Order: true, Select: api.Select{Words: l.ids}}, take)
	if err == nil && len(l.states) > 0 && len(l.ids) == 0 {
		lately := a.now.Add(-remembered)
		_, err = a.client.JobsAll(a.ctx, api.Query{Over: true, Since: &lately}, take)
	}
	if err != nil {
		return nil, err
	}
	if len(l.ids) > 0 && last.Total == 0 {
		return nil, errors.New("Invalid job id specified")
	}
	place := map[string]int{}
	for i, id := range last.Order {
		place[id] = i + 1
	}
	rank := func(v job.View) int {
		if v.State != job.Queued {
			return len(place) + 2
		}
		return cmp.Or(place[v.ID], len(place)+1)
	}
	slices.SortStableFunc(views, func(x, y job.View) int { return cmp.Compare(rank(x), rank(y)) })
	if l.tasks {
		var entries []entry
		for _, v := range views {
			entries = append(entries, entry{View: v})
		}
		return line(entries), nil
	}
	return line(fold(views)), nil
}
