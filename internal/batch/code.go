package batch

import (
	"context"
	"path/filepath"
	"strings"
	"time"

	"berth/internal/job"
	"berth/internal/jobfile"
	copies "berth/internal/snapshot"
)

// codeAgain is how long a file whose code could not be copied waits for the next
// try.
const codeAgain = 10 * time.Second

// takeCode copies the code for the lines that ask for it, each tree once. The
// queue decides which lines use these copies: a line that was there before keeps
// its own.
func (s *session) takeCode(ctx context.Context, file *jobfile.File) error {
	made := map[[2]string]*copies.Made{}
	lines := map[*jobfile.Line]*copies.Made{}
	for _, line := range file.Lines {
		tree := line.Spec.Snapshot.Tree
		if tree == "" {
			continue
		}
		a := copies.Ask{Queue: s.codeQueue(), Dir: s.whole(line.Spec.Dir), Tree: tree, Skip: []string{s.layout.logDir, s.layout.state}}
		if tree != job.SnapshotAuto {
			a.Tree = s.whole(tree)
		}
		key := [2]string{a.Dir, a.Tree}
		if made[key] == nil {
			one, err := s.opt.Snapshots.Make(ctx, a)
			if err != nil {
				return err
			}
			made[key] = &one
			for _, notice := range one.Notices {
				s.log.Info("snapshot", "notice", notice)
			}
		}
		lines[line] = made[key]
	}
	for line, m := range lines {
		line.Spec.Dir, line.Spec.Snapshot = m.Dir, m.Snapshot
	}
	return nil
}

// codeQueue is this queue as the place of snapshots knows it.
func (s *session) codeQueue() copies.Queue {
	return copies.Queue{Name: "run " + s.layout.state, Dir: filepath.Join(s.layout.state, "store")}
}

// whole is a path of a line as its job will see it.
func (s *session) whole(path string) string {
	if path == "~" || strings.HasPrefix(path, "~/") {
		return filepath.Join(s.getenv("HOME"), path[1:])
	}
	if filepath.IsAbs(path) {
		return filepath.Clean(path)
	}
	return filepath.Join(s.opt.Dir, path)
}

// removeCode removes snapshots that no job of any queue needs.
func (s *session) removeCode(ctx context.Context) {
	if s.opt.Snapshots.Dir == "" || !s.opt.Snapshots.Due(time.Now()) {
		return
	}
	err := s.opt.Snapshots.Remove(ctx, s.codeQueue(), time.Now(), func(context.Context) (map[string]bool, error) {
		used := map[string]bool{}
		err := s.store.Each(func(j *job.Job) error {
			used[j.Spec.Snapshot.ID] = true
			return nil
		})
		return used, err
	})
	if err != nil {
		s.log.Warn("old snapshots of code were not removed", "err", err)
	}
}
