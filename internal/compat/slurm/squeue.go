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
  -p, --partition NAMES         only jobs of these partitions; the only one is berth
  -w, --nodelist NAMES          only jobs on these nodes; the only one is this machine
  -S, --sort LETTERS            order: those of --format, each with - for descending:
                                -S -p,i
  -i, --iterate SECONDS         print the list again and again
  -o, --format FORMAT           columns: "%.18i %.9P %j"; %i %A %F %K %P %j %u %t %T
                                %M %l %L %D %N %R %r %E %C %m %b %S %e %V %Q %Z %o ...
  -O, --Format NAMES            columns by name, each 20 wide or NAME:WIDTH
  -l, --long                    with time limits
      --start                   when queued jobs are expected to start
  -r, --array                   a line for each task of an array
  -h, --noheader                no titles
      --json                    as JSON, with the keys of Slurm 22.05
      --help                    print this

Reasons are Slurm's words; berth why says more. Tasks of an array have no number of
their own: %A is 17_3 for one, and 17 for those that wait. Accounts (-A) and
QOS (-q) are refused.

Exit status: 0 listed; 1 failed or bad usage.

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
	json                         bool
	users, ids, names, states    []string
	partitions, nodes            []string
	format, columns              string
	sort                         []key
	every                        time.Duration // 0: once
}

func (l *listing) options() options {
	known := options{
		"me": on(0, &l.me), "long": on('l', &l.long),
		"start": on(0, &l.start), "array": on('r', &l.tasks),
		"noheader": on('h', &l.bare),
		"user":     listed('u', &l.users), "users": listed(0, &l.users),
		"jobs": listed('j', &l.ids), "job": listed(0, &l.ids),
		"name": listed('n', &l.names), "states": listed('t', &l.states),
		"state":  listed(0, &l.states),
		"format": kept('o', &l.format), "Format": kept('O', &l.columns),
		"json":      on(0, &l.json),
		"partition": listed('p', &l.partitions), "nodelist": listed('w', &l.nodes),
		"account": without('A', "accounts"), "qos": without('q', "QOS"),
		"sort": {'S', valued, func(value string) (err error) { l.sort, err = sortKeys(value); return err }}, "iterate": {'i', valued, l.iterate},
	}
	return known.ignore(bare, "all:a verbose:v priority:P array-unique").ignore(valued, "clusters:M")
}

func runSqueue(c *frontend.Call) int {
	c = byNumber(c)
	var l listing
	err := l.options().alone(c.Args)
	columns, wrong := l.shown()
	if err = cmp.Or(err, wrong); err != nil {
		return c.Misuse(err.Error(), frontend.Failed)
	}
	return ask(c, func(a *asker) error {
		if i := slices.IndexFunc(l.nodes, func(name string) bool { return name != a.host }); i >= 0 {
			return fmt.Errorf("Invalid node name %s", text.Found(l.nodes[i]))
		}
		for {
			err := l.print(a, columns)
			if l.every > 0 && a.ctx.Err() != nil {
				return nil
			}
			if err != nil || l.every == 0 {
				return err
			}
			fmt.Fprintln(c.Out)
			select {
			case <-a.ctx.Done():
				return nil
			case <-time.After(l.every):
			}
			a.now, a.details = time.Now(), map[string]*api.Detail{}
		}
	})
}

func (l *listing) iterate(value string) error {
	n, ok := text.Digits(value, 6)
	if !ok || n == 0 {
		return text.Mismatch(value, "a number of seconds")
	}
	l.every = time.Duration(n) * time.Second
	return nil
}

// print lists the jobs once.
func (l *listing) print(a *asker, columns columns) error {
	entries, err := l.entries(a)
	if err != nil {
		return err
	}
	order(a, entries, l.sort)
	if l.json {
		var list []object
		for i := range entries {
			list = append(list, a.queued(&entries[i]))
		}
		return a.print("openapi/v0.0.38", "jobs", list)
	}
	if l.long || l.every > 0 && !l.bare {
		fmt.Fprintln(a.Out, a.now.Format("Mon Jan 02 15:04:05 2006"))
	}
	if !l.bare {
		fmt.Fprintln(a.Out, columns.line(func(f *field) string { return f.title }))
	}
	for i := range entries {
		fmt.Fprintln(a.Out, columns.line(func(f *field) string { return frontend.OneLine(f.value(a, &entries[i])) }))
	}
	return nil
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
	if !among(l.partitions, partition) {
		return nil, nil
	}
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
		waits := len(l.nodes) > 0 && a.node(&entry{View: v}) == ""
		if !over && !waits && !(l.start && v.State != job.Queued) && among(l.users, v.User) && among(l.names, v.Name) && among(l.states, long, short, "all") {
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
	entries := line(fold(views))
	for i := range entries {
		if e := &entries[i]; e.tasks != "" {
			if most := a.detail(e.ID).Settings["array_limit"]; most != "" {
				e.tasks += "%" + most
			}
		}
	}
	return entries, nil
}
