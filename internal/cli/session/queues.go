package session

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"berth/internal/api"
	"berth/internal/job/jobfile"
	"berth/internal/machine/site"
	"berth/internal/queue/batch"
	"berth/internal/text/problem"
)

// queuesBeside are the queues that a verb may mean if the user named none: the
// run of this directory, the daemon, and the user's other runs. A run of this
// directory that has ended is the last, and only where there is no daemon.
func queuesBeside(ctx context.Context, found Target) (queues []Target) {
	var here *RunTarget
	if place, err := batch.Find(batch.DefaultLogDir); err == nil {
		here = openRunTarget(ctx, place)
	}
	if here != nil && here.Live {
		queues = append(queues, Target{Run: here})
	}
	if found.used() {
		queues = append(queues, found)
	}
	for _, t := range runningRuns(ctx) {
		if here == nil || !sameDir(t.Run.StateDir, here.StateDir) {
			queues = append(queues, t)
		}
	}
	if here != nil && !here.Live && !found.used() {
		queues = append(queues, Target{Run: here})
	}
	if len(queues) == 0 {
		return []Target{found}
	}
	return queues
}

// runningRuns are the user's runs that go on, in any directory.
func runningRuns(ctx context.Context) (runs []Target) {
	list, err := site.RunsOf(os.Getenv)
	if err != nil {
		return nil // findDaemon has said so, if it matters
	}
	for _, dir := range list.Running() {
		place, err := batch.Find(dir)
		if err != nil {
			continue // it was moved or removed
		}
		if run := openRunTarget(ctx, place); run.Live {
			runs = append(runs, Target{Run: run})
		}
	}
	return runs
}

// sameDir reports whether two paths lead to one directory.
func sameDir(a, b string) bool {
	one, err := os.Stat(a)
	if err != nil {
		return false
	}
	other, err := os.Stat(b)
	return err == nil && os.SameFile(one, other)
}

// EveryQueueKey marks a verb that shows several queues.
const EveryQueueKey = "queues"

// choose settles which queues the verb means: those that have the jobs it names.
// Of several it is the run of this directory, or else the user is asked, unless
// the verb shows them all.
func (s *Session) choose(ctx context.Context, cmd *cobra.Command, args []string) error {
	if len(s.Queues) < 2 {
		return nil
	}
	acts, every := cmd.Annotations[ActsKey] != "", cmd.Annotations[EveryQueueKey] != ""
	words, err := jobWords(cmd, args)
	if err != nil {
		return nil //nolint:nilerr // the verb says what is wrong, and does nothing
	}
	file := ""
	if f := cmd.Flag("batch"); f != nil {
		file = FileName(f.Value.String())
	}
	if len(words) == 0 && file == "" {
		s.Queues = slices.DeleteFunc(s.Queues, Target.over)
		if every || len(s.Queues) == 1 {
			return s.at(s.Queues[0])
		}
		return s.Pick(acts)
	}
	having, err := s.having(ctx, api.Select{Words: words, Batch: file}, every)
	switch {
	case err != nil:
		return err
	case len(having) == 0:
		having = s.Queues[:1] // which will say so
	case len(having) > 1 && !every:
		exist := "jobs " + strings.Join(words, " ") + " exist"
		switch len(words) {
		case 0:
			exist = cmd.Flag("batch").Value.String() + " is"
		case 1:
			exist = "job " + words[0] + " exists"
		}
		return ask(having, exist+" in")
	case acts:
		s.Say("the %s is meant", having[0].Title())
	}
	s.Queues = having
	return s.at(having[0])
}

// jobWords are the words that name jobs, unless all are meant.
func jobWords(cmd *cobra.Command, args []string) ([]string, error) {
	if dash := cmd.ArgsLenAtDash(); dash >= 0 && cmd.Annotations[ActsKey] != "" {
		args = args[:dash] // after it is a command
	}
	if cmd.Annotations[ActsKey] == ActsOnFirst {
		args = args[:min(1, len(args))]
	}
	sel, err := jobfile.ParseSelection(args)
	if sel.All {
		args = nil
	}
	return args, err
}

// FileName is a jobs file as queues know it; empty: none.
func FileName(file string) string {
	dir, err := os.Getwd()
	if file == "" || err != nil {
		return file
	}
	return batch.FileName(dir, file)
}

// having is the queues that have one of these jobs. The run of this directory is
// asked first, and unless every queue is wanted, the others only if it has none.
func (s *Session) having(ctx context.Context, jobs api.Select, every bool) (having []Target, err error) {
	for _, t := range s.Queues {
		err := s.In(t, func(one *Session) error {
			page, err := api.Call(ctx, one.Client, api.ListJobs, api.Query{Select: jobs, Over: true, Limit: 1})
			if len(page.Jobs) > 0 {
				having = append(having, t)
			}
			return err
		})
		if err != nil && problem.KindOf(err) != problem.NotFound {
			return nil, err
		}
		if t.isHere() && !t.over() && len(having) > 0 && !every {
			break
		}
	}
	return having, nil
}

// In does something in one of several queues.
func (s *Session) In(t Target, do func(*Session) error) error {
	one := *s
	err := one.at(t)
	if err == nil {
		err = do(&one)
	}
	return Failed(err, t)
}

// Pick takes the first queue if that is the run of this directory, or the daemon
// and the verb only looks. Otherwise the user has to say which is meant.
func (s *Session) Pick(acts bool) error {
	first, others := s.Queues[0], s.Queues[1:]
	switch {
	case len(others) == 0:
	case !first.isHere() && (first.Run != nil || acts):
		return ask(s.Queues, "there are")
	case acts:
		s.Say("the %s is meant", first.Title())
	default:
		s.Advise("other queues: %s", nameAll(others, func(t Target) string { return t.Title() + " (" + t.flag() + ")" }, "; "))
	}
	s.Queues = s.Queues[:1]
	return s.at(first)
}

// ask refuses a verb that could mean several queues, and says what to type.
func ask(queues []Target, exist string) error {
	return problem.Newf(problem.Invalid, nameAll(queues, func(t Target) string { return commandWith(os.Args[1:], t.flag()) }, ", or "),
		"%s %d queues; say which is meant", exist, len(queues))
}

// MostNamed bounds the queues that a message names.
const MostNamed = 5

func nameAll(queues []Target, name func(Target) string, between string) string {
	var names []string
	for _, t := range queues[:min(len(queues), MostNamed)] {
		names = append(names, name(t))
	}
	if more := len(queues) - MostNamed; more > 0 {
		names = append(names, fmt.Sprintf("%d more", more))
	}
	return strings.Join(names, between)
}

// commandWith is this command with a flag more, as it is typed.
func commandWith(args []string, flag string) string {
	words := []string{"berth"}
	at := len(args)
	if dash := slices.Index(args, "--"); dash >= 0 {
		at = dash
	}
	for _, word := range args[:at] {
		words = append(words, shellWord(word))
	}
	words = append(words, flag)
	for _, word := range args[at:] {
		words = append(words, shellWord(word))
	}
	return strings.Join(words, " ")
}

// shellWord writes a word as a shell reads it.
func shellWord(word string) string {
	plain := func(r rune) bool {
		return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("_-+=./:,@%", r)
	}
	if word != "" && strings.IndexFunc(word, func(r rune) bool { return !plain(r) }) < 0 {
		return word
	}
	return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
}

// over reports whether it is a run that has ended.
func (t Target) over() bool { return t.Run != nil && !t.Run.Live }

// isHere reports whether it is the run of this directory.
func (t Target) isHere() bool {
	return t.Run != nil && relative(t.Run.LogDir) == batch.DefaultLogDir
}

// Title names a queue.
func (t Target) Title() string {
	switch {
	case t.Run == nil && t.Private:
		return "queue of your daemon"
	case t.Run == nil:
		return "queue of this machine"
	case t.isHere():
		return "berth run in this directory"
	}
	dir := t.Run.LogDir
	if filepath.Base(dir) == batch.DefaultLogDir {
		dir = filepath.Dir(dir)
	}
	return "berth run in " + homely(relative(dir))
}

// flag chooses the queue.
func (t Target) flag() string {
	if t.Run == nil {
		return "--log-dir " + daemonInstead
	}
	path := homely(relative(t.Run.LogDir))
	if rest, home := strings.CutPrefix(path, "~/"); home {
		return "--log-dir ~/" + shellWord(rest)
	}
	return "--log-dir " + shellWord(path)
}

// homely writes a path in the user's home directory with ~.
func homely(path string) string {
	home, err := os.UserHomeDir()
	if err != nil || !filepath.IsAbs(path) {
		return path
	}
	if rel, err := filepath.Rel(home, path); err == nil && rel != "." && filepath.IsLocal(rel) {
		return "~/" + rel
	}
	return path
}
