package slurm

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"os/user"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"berth/internal/api"
	"berth/internal/compat/frontend"
	"berth/internal/job"
	"berth/internal/job/jobfile"
	"berth/internal/text"
)

var sacct = frontend.Program{Name: "sacct", Usage: sacctUsage, Run: runSacct}

const sacctUsage = `usage: sacct [OPTION...]

List jobs that have ended, are running or are queued: by default your own since
midnight.

  -j, --jobs IDS         only these jobs, whenever they ended
  -u, --user NAMES       jobs of these users
  -a, --allusers         jobs of all users
  -S, --starttime TIME   that ended since: 2026-03-01, 2026-03-01T14:00, today,
                         now-2days
  -E, --endtime TIME     and were submitted before
      --name NAMES       only jobs of these names
  -r, --partition NAMES  only jobs of these partitions; the only one is berth
  -N, --nodelist NAMES   only jobs that ran on these nodes; the only one is this
                         machine
  -s, --state STATES     only these: CD, F, CA, TO, OOM, NF, R, PD or in full
  -o, --format NAMES     columns: JobID,JobName,State,ExitCode,Elapsed,Start,End,
                         Submit,User,AllocTRES,AllocCPUS,NodeList,Priority,...;
                         NAME%WIDTH, NAME%-WIDTH to the left
  -b, --brief            JobID,State,ExitCode
  -l, --long             JobID,JobIDRaw,JobName,Partition,MaxVMSize,MaxRSS,NTasks,
                         AllocCPUS,Elapsed,State,ExitCode,ReqMem,ReqTRES,AllocTRES
  -n, --noheader         no titles
  -p, --parsable         | between columns, and at the end; -P without that one
      --delimiter TEXT   this instead of |
      --units UNIT       memory in K, M, G, T or P
      --json             as JSON, with the keys of Slurm 22.05
  -X, --allocations      accepted, and ignored: berth records no steps
      --help             print this

Accounts (-A) and QOS (-q) are refused. berth does not keep the CPU time that a job
used: TotalCPU is 00:00:00, as in a Slurm that does not gather it.

Exit status: 0 listed; 1 failed or bad usage.

Example:
  sacct -S now-7days -o JobID,JobName%30,State,Elapsed,ExitCode
`

const (
	usualAccounts = "JobID,JobName,Partition,Account,AllocCPUS,State,ExitCode"
	briefAccounts = "JobID,State,ExitCode"
	longAccounts  = "JobID,JobIDRaw,JobName,Partition,MaxVMSize,MaxRSS,NTasks,AllocCPUS,Elapsed,State,ExitCode,ReqMem,ReqTRES,AllocTRES"
)

type accounts struct {
	ids, users, states    []string
	names                 []string
	partitions, nodes     []string
	everyone, bare        bool
	brief, long, json     bool
	delimiter             string
	parsable, parsable2   bool
	since, until, columns string
	units                 string // of memory
}

func (a *accounts) options() options {
	known := options{
		"jobs": listed('j', &a.ids), "user": listed('u', &a.users), "uid": listed(0, &a.users),
		"state": listed('s', &a.states), "allusers": on('a', &a.everyone),
		"noheader": on('n', &a.bare), "parsable": on('p', &a.parsable), "parsable2": on('P', &a.parsable2),
		"starttime": kept('S', &a.since), "endtime": kept('E', &a.until), "format": kept('o', &a.columns),
		"json": on(0, &a.json), "long": on('l', &a.long), "brief": on('b', &a.brief), "delimiter": kept(0, &a.delimiter),
		"name": listed(0, &a.names), "partition": listed('r', &a.partitions), "nodelist": listed('N', &a.nodes),
		"accounts": without('A', "accounts"), "qos": without('q', "QOS"),
		"units": {0, valued, func(value string) error {
			if a.units = strings.ToUpper(value); len(a.units) != 1 || !strings.Contains(units, a.units) {
				return text.Mismatch(value, "K, M, G, T or P")
			}
			return nil
		}},
	}
	return known.ignore(bare, "allocations:X duplicates:D verbose:v allclusters:L truncate:T").ignore(valued, "clusters:M")
}

// units are those of --units, each 1024 of the one before.
const units = "KMGTP"

// inUnits is an amount of memory in one of the units; empty: as the job asked for it.
func inUnits(amount, unit string) string {
	pairs, _, err := jobfile.TranslateSlurm([]jobfile.SlurmOption{{Name: "mem", Value: amount}})
	if unit == "" || err != nil || len(pairs) != 1 {
		return amount
	}
	n := float64(number(pairs[0].Value)) * 1024
	for range strings.Index(units, unit) {
		n /= 1024
	}
	if n == math.Trunc(n) {
		return fmt.Sprintf("%.0f%s", n, unit)
	}
	return fmt.Sprintf("%.2f%s", n, unit)
}

// account is a column of sacct, with its usual width.
type account struct {
	field
	width int
}

// named is the field of one of its names, with Slurm's spelling of it as title.
func (f account) named(name string) (field, bool) {
	for title := range strings.FieldsSeq(f.names) {
		if strings.EqualFold(title, name) {
			f.title = title
			return f.field, true
		}
	}
	return field{}, false
}

func accountFields(unit string) []account {
	take := func(names string, width int, value func(*asker, *entry) string) account {
		return account{field{0, names, "", value}, width}
	}
	constant := func(word string) func(*asker, *entry) string { return func(*asker, *entry) string { return word } }
	return []account{
		take("JobID JobIDRaw", 12, func(_ *asker, e *entry) string { return e.ID }),
		take("JobName", 10, func(_ *asker, e *entry) string { return e.Name }),
		take("User", 9, func(_ *asker, e *entry) string { return e.User }),
		take("Partition", 10, constant(partition)), take("Account", 10, constant("")), take("Cluster", 10, constant("berth")), take("QOS", 10, constant("normal")),
		take("NNodes AllocNodes", 8, constant("1")), take("NTasks", 8, constant("1")),
		take("NodeList", 15, func(a *asker, e *entry) string { return cmp.Or(a.node(e), "None assigned") }),
		take("AllocCPUS NCPUS ReqCPUS", 10, func(a *asker, e *entry) string { return cmp.Or(a.detail(e.ID).Settings["cpus"], "1") }),
		take("ReqMem", 10, func(a *asker, e *entry) string { return inUnits(cmp.Or(a.detail(e.ID).Settings["mem"], "0"), unit) }),
		take("State", 10, func(_ *asker, e *entry) string { long, _ := state(&e.View); return long }),
		take("ExitCode DerivedExitCode", 8, func(_ *asker, e *entry) string { return exitCode(&e.View) }),
		take("Elapsed", 10, func(a *asker, e *entry) string { return longClock(a.elapsed(&e.View)) }),
		take("ElapsedRaw", 10, func(a *asker, e *entry) string { return strconv.Itoa(int(a.elapsed(&e.View) / time.Second)) }),
		take("TotalCPU", 10, constant("00:00:00")),
		take("Timelimit", 10, func(a *asker, e *entry) string { return longLimit(a.detail(e.ID).TimeLimitS) }),
		take("Submit Eligible", 19, func(_ *asker, e *entry) string { return known(e.SubmittedAt) }),
		take("Start", 19, func(_ *asker, e *entry) string { return known(e.StartedAt) }),
		take("End", 19, func(_ *asker, e *entry) string { return known(e.EndedAt) }),
		take("AllocTRES AllocGRES ReqTRES ReqGRES", 10, func(_ *asker, e *entry) string { return fmt.Sprintf("gres/gpu=%d,node=1", e.GPUs) }),
		take("Priority", 10, func(_ *asker, e *entry) string { return strconv.Itoa(e.Priority) }),
		take("WorkDir", 20, func(a *asker, e *entry) string { return a.detail(e.ID).Dir }),
		take("Reason", 22, func(_ *asker, e *entry) string { return e.reason() }),
		take("MaxVMSize MaxRSS", 10, constant("")),
	}
}

func known(t *time.Time) string {
	if t == nil {
		return "Unknown"
	}
	return stamp(t)
}

// longClock has hours even if there are none.
func longClock(d time.Duration) string {
	if d < time.Hour {
		return fmt.Sprintf("00:%02d:%02d", int(d.Minutes()), int(d.Seconds())%60)
	}
	if d < 10*time.Hour {
		return "0" + clock(d)
	}
	return clock(d)
}

// longLimit is a time limit with hours even if it has none.
func longLimit(seconds float64) string {
	if seconds == 0 {
		return limit(seconds)
	}
	return longClock(time.Duration(seconds * float64(time.Second)))
}

// exitCode is code:signal.
func exitCode(v *job.View) string {
	signal := 0
	if v.Signal != nil {
		signal = signalNumber(*v.Signal)
	}
	return fmt.Sprintf("%d:%d", frontend.Value(v.ExitCode), signal)
}

func signalNumber(name string) int {
	return int(unix.SignalNum("SIG" + strings.TrimPrefix(name, "SIG")))
}

func (a *accounts) shown() (columns, error) {
	all := accountFields(a.units)
	usual, between := usualAccounts, " "
	switch {
	case a.brief:
		usual = briefAccounts
	case a.long:
		usual = longAccounts
	}
	if a.parsable || a.parsable2 {
		between = cmp.Or(a.delimiter, "|")
	}
	var list columns
	for part := range strings.SplitSeq(cmp.Or(a.columns, usual), ",") {
		name, width, sized := strings.Cut(strings.TrimSpace(part), "%")
		i := slices.IndexFunc(all, func(f account) bool { _, is := f.named(name); return is })
		if i < 0 {
			return nil, fmt.Errorf("--format: unknown name %s", text.Found(name))
		}
		named, _ := all[i].named(name)
		c := column{field: &named, width: all[i].width, right: i > 0} // the id is on the left
		if sized {
			digits, left := strings.CutPrefix(width, "-")
			n, ok := text.Digits(digits, 4)
			if !ok {
				return nil, text.Mismatch(part, "NAME or NAME%WIDTH")
			}
			c.width, c.right = n, !left
		}
		if a.parsable || a.parsable2 {
			c.width = 0
		}
		if len(list) > 0 {
			list = append(list, column{text: between})
		}
		list = append(list, c)
	}
	if a.parsable {
		list = append(list, column{text: between})
	} else if !a.parsable2 {
		list = append(list, column{text: " "})
	}
	return list, nil
}

// when reads a time of sacct: 2026-03-01[T14:00[:00]], 14:00, today, now, now-2days.
func when(word string, now time.Time) (time.Time, error) {
	if word == "today" || word == "midnight" {
		word = "00:00"
	}
	if rest, relative := strings.CutPrefix(word, "now"); relative {
		if rest == "" {
			return now, nil
		}
		unit := strings.TrimLeft(rest[1:], "0123456789")
		n, ok := text.Digits(rest[1:len(rest)-len(unit)], 6)
		span, known := map[string]time.Duration{"": time.Second, "second": time.Second, "minute": time.Minute, "hour": time.Hour, "day": 24 * time.Hour, "week": 7 * 24 * time.Hour}[strings.TrimSuffix(unit, "s")]
		if ok && known && rest[0] == '-' {
			return now.Add(-time.Duration(n) * span), nil
		}
	}
	for _, layout := range []string{"2006-01-02T15:04:05", "2006-01-02T15:04", "2006-01-02", "01/02/06", "15:04:05", "15:04"} {
		if at, err := time.ParseInLocation(layout, word, time.Local); err == nil {
			if at.Year() == 0 {
				at = time.Date(now.Year(), now.Month(), now.Day(), at.Hour(), at.Minute(), at.Second(), 0, time.Local)
			}
			return at, nil
		}
	}
	return time.Time{}, text.Mismatch(word, "a time such as 2026-03-01, 2026-03-01T14:00, 14:00 or now-2days")
}

func runSacct(c *frontend.Call) int {
	c = byNumber(c)
	var a accounts
	err := a.options().alone(c.Args)
	list, wrong := a.shown()
	now := time.Now()
	since := time.Date(now.Year(), now.Month(), now.Day(), 0, 0, 0, 0, time.Local)
	until := now.Add(time.Hour)
	if a.since != "" {
		var bad error
		since, bad = when(a.since, now)
		wrong = errors.Join(wrong, bad)
	}
	if a.until != "" {
		var bad error
		until, bad = when(a.until, now)
		wrong = errors.Join(wrong, bad)
	}
	if err = cmp.Or(err, wrong); err != nil {
		return c.Misuse(err.Error(), frontend.Failed)
	}
	return ask(c, func(k *asker) error {
		if len(a.users) == 0 && !a.everyone && len(a.ids) == 0 {
			me, err := user.Current()
			if err != nil {
				return err
			}
			a.users = []string{me.Username}
		}
		titles := sync.OnceFunc(func() { // not before a daemon answers
			if !a.bare {
				fmt.Fprintln(c.Out, list.line(func(f *field) string { return f.title }))
			}
			if !a.bare && !a.parsable && !a.parsable2 {
				fmt.Fprintln(c.Out, list.rule())
			}
		})
		var found []object
		_, err := k.client.JobsAll(k.ctx, api.Query{Over: true, Select: api.Select{Words: a.ids}}, func(v job.View) error {
			long, short := state(&v)
			e := entry{View: v}
			old := len(a.ids) == 0 && v.EndedAt != nil && v.EndedAt.Before(since)
			late := len(a.ids) == 0 && v.SubmittedAt != nil && v.SubmittedAt.After(until)
			if old || late || !among(a.users, v.User) || !among(a.states, long, short) || !among(a.names, v.Name) || !among(a.partitions, partition) || len(a.nodes) > 0 && !slices.Contains(a.nodes, k.node(&e)) {
				return nil
			}
			if a.json {
				found = append(found, k.accounted(&e))
				return nil
			}
			titles()
			_, err := fmt.Fprintln(c.Out, list.line(func(f *field) string { return frontend.OneLine(f.value(k, &e)) }))
			return err
		})
		switch {
		case err != nil:
		case a.json:
			err = k.print("openapi/dbv0.0.38", "jobs", found)
		default:
			titles()
		}
		return err
	})
}
