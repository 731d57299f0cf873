package cli

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"berth/internal/api"
	"berth/internal/cli/session"
	"berth/internal/job"
	"berth/internal/job/jobfile"
	"berth/internal/machine/site"
	"berth/internal/machine/snapshot"
	"berth/internal/text"
	"berth/internal/text/problem"
)

// codeSnapshots makes the snapshots of code for the jobs of a request.
type codeSnapshots struct {
	s       *session.Session
	request *api.SubmitRequest
	place   snapshot.Place
	queue   snapshot.Queue
	script  string                      // the submitted script, absolute; empty: none
	made    map[[2]string]snapshot.Made // by directory and tree
	warned  map[string]bool             // about what
}

// submit submits the jobs. If the daemon's config asks for snapshots, it refuses
// those that say nothing, and they are submitted again with one. A daemon on
// another machine cannot have the code of this one, and an own queue has no default.
func (c *codeSnapshots) submit(ctx context.Context, none bool) (api.SubmitReply, error) {
	c.request.CanSnapshot = c.s.Target.Host == nil && c.s.Target.Run == nil
	if none {
		c.byDefault("no")
	}
	if err := c.add(ctx); err != nil {
		return api.SubmitReply{}, err
	}
	reply, err := api.Call(ctx, c.s.Client, api.Submit, *c.request)
	if !api.WantsSnapshots(err) {
		return reply, err
	}
	c.byDefault(job.SnapshotAuto)
	if err := c.add(ctx); err != nil {
		return api.SubmitReply{}, err
	}
	return api.Call(ctx, c.s.Client, api.Submit, *c.request)
}

// add copies the code of the jobs that ask for it, and refers to the copies.
func (c *codeSnapshots) add(ctx context.Context) error {
	for i := range c.request.Jobs {
		spec := &c.request.Jobs[i]
		tree := jobfile.SnapshotOf(string(spec.Snapshot))
		if tree == "" || c.request.DryRun {
			continue
		}
		if c.s.Target.Host != nil {
			return problem.Newf(problem.Invalid, "log in to that machine and submit there, or leave the snapshot out", "a snapshot of code cannot be sent to another machine")
		}
		if err := c.addTo(ctx, spec, tree); err != nil {
			return err
		}
	}
	return nil
}

// byDefault is for the jobs that say nothing.
func (c *codeSnapshots) byDefault(value api.Text) {
	for i := range c.request.Jobs {
		if spec := &c.request.Jobs[i]; spec.Snapshot == "" {
			spec.Snapshot = value
		}
	}
}

func (c *codeSnapshots) addTo(ctx context.Context, spec *api.Spec, tree string) error {
	a := snapshot.Ask{Dir: c.whole(string(spec.Dir)), Tree: tree}
	if tree != job.SnapshotAuto {
		a.Tree = c.whole(tree)
	}
	made, err := c.make(ctx, a)
	if err != nil {
		return err
	}
	for _, notice := range made.Notices {
		c.s.Say("snapshot: %s", notice)
	}
	spec.Dir, spec.Snapshot = api.Text(made.Dir), api.Text(made.Tree)
	made.Script = c.scriptIn(&made.Snapshot, spec.Command.Argv)
	if !slices.ContainsFunc(c.request.Snapshots, func(s job.Snapshot) bool { return s.Tree == made.Tree }) {
		c.request.Snapshots = append(c.request.Snapshots, made.Snapshot)
	}
	c.warn(spec, &made.Snapshot)
	return nil
}

// make makes each snapshot once.
func (c *codeSnapshots) make(ctx context.Context, a snapshot.Ask) (snapshot.Made, error) {
	key := [2]string{a.Dir, a.Tree}
	if made, ok := c.made[key]; ok {
		made.Notices = nil
		return made, nil
	}
	if c.made == nil {
		var err error
		if c.place, err = snapshotPlace(os.Getenv); err != nil {
			return snapshot.Made{}, err
		}
		socket, err := filepath.Abs(c.s.Target.Socket)
		if err != nil {
			return snapshot.Made{}, fmt.Errorf("working directory: %w", err)
		}
		c.queue, c.made = snapshot.Queue{Name: socket}, map[[2]string]snapshot.Made{}
	}
	a.Queue = c.queue
	made, err := c.place.Make(ctx, a)
	if err == nil {
		c.made[key] = made
	}
	return made, err
}

// snapshotPlace is where this user's snapshots are.
func snapshotPlace(getenv func(string) string) (snapshot.Place, error) {
	places, err := site.PrivatePlaces(getenv)
	if err != nil {
		return snapshot.Place{}, err
	}
	p := snapshot.Place{Dir: filepath.Join(places.StateDir, "snapshots"), Limit: snapshot.DefaultLimit}
	if size := getenv(snapshot.SizeVariable); size != "" {
		mib, err := text.ParseSize(size)
		if err != nil {
			return p, problem.Newf(problem.Invalid, "BERTH_SNAPSHOT_SIZE=4G", "%s: %v", snapshot.SizeVariable, err)
		}
		p.Limit = mib << 20
	}
	return p, nil
}

// whole makes a path absolute, as the daemon will.
func (c *codeSnapshots) whole(path string) string {
	if path == "~" || strings.HasPrefix(path, "~/") {
		return filepath.Join(os.Getenv("HOME"), path[1:])
	}
	if filepath.IsAbs(path) {
		return filepath.Clean(path)
	}
	return filepath.Join(c.request.Dir, path)
}

// scriptIn is the submitted script if it is in the tree: the job runs the copy.
// Its word in the command gets the path that it has in the tree.
func (c *codeSnapshots) scriptIn(made *job.Snapshot, argv []string) string {
	at := slices.Index(argv, c.script)
	if c.script == "" || at < 0 {
		return ""
	}
	dir, err := filepath.EvalSymlinks(filepath.Dir(c.script))
	if err != nil {
		return ""
	}
	path := filepath.Join(dir, filepath.Base(c.script))
	if _, err := os.Lstat(made.Inside(path)); err != nil || made.Inside(path) == path {
		return ""
	}
	argv[at] = path
	return path
}

// warn points out what names the original tree by its full path: there the job
// sees the files as they are when it starts, not the copy.
func (c *codeSnapshots) warn(spec *api.Spec, made *job.Snapshot) {
	command := spec.Command.Shell
	for _, word := range spec.Command.Argv {
		if word != made.Script {
			command += "\x00" + word
		}
	}
	named := []string{"the command", command, "setup", string(spec.Setup)}
	for _, name := range slices.Sorted(maps.Keys(spec.Env)) {
		named = append(named, name, spec.Env[name])
	}
	if _, own := spec.Env["PYTHONPATH"]; !own {
		named = append(named, "PYTHONPATH", os.Getenv("PYTHONPATH"))
	}
	for i := 0; i < len(named); i += 2 {
		if namesTree(named[i+1], made.Tree) && !c.warned[named[i]] { // once, however many jobs there are
			if c.warned == nil {
				c.warned = map[string]bool{}
			}
			c.warned[named[i]] = true
			c.s.Say("snapshot: %s names the original tree %s, not the copy: the job would use its files as they are when it starts; use $BERTH_SNAPSHOT", named[i], made.Tree)
		}
	}
}

// namesTree reports whether a text has the tree's path in it, as a whole.
func namesTree(written, tree string) bool {
	for {
		_, rest, found := strings.Cut(written, tree)
		if !found {
			return false
		}
		if rest == "" || strings.IndexByte("/:;'\" \t\x00", rest[0]) >= 0 {
			return true
		}
		written = rest
	}
}

// removeOld removes snapshots that no job needs any more. It can be done at any
// later submission too, so that an error is only reported.
func (c *codeSnapshots) removeOld(ctx context.Context) {
	if c.made == nil || !c.place.Due(time.Now()) {
		return
	}
	err := c.place.Remove(ctx, c.queue, time.Now(), func(ctx context.Context) (map[string]bool, error) {
		reply, err := api.Call(ctx, c.s.Client, api.ListSnapshots, api.None{})
		used := make(map[string]bool, len(reply.IDs))
		for _, id := range reply.IDs {
			used[id] = true
		}
		return used, err
	})
	if err != nil {
		c.s.Say("old snapshots of code were not removed: %v", err)
	}
}
