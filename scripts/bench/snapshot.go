package main

import (
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"time"
)

// snapshot: submitting with a snapshot of a git tree of 5,000 files, compared to a
// plain copy of the tree: the first one, which has to reach the disk; the same
// again; and after an edit.
func (b *bench) snapshot() {
	const dirs, files = 100, 50
	random := rand.New(rand.NewPCG(1, 2))
	for d := range dirs {
		dir := filepath.Join("tree", fmt.Sprint("d", d%10), fmt.Sprint("e", d))
		check(os.MkdirAll(dir, 0o755))
		for f := range files {
			text := make([]byte, 500+random.IntN(11500))
			for i := range text {
				text[i] = byte(random.Uint32())
			}
			check(os.WriteFile(filepath.Join(dir, fmt.Sprint("f", f)), text, 0o644))
		}
	}
	check(exec.Command("git", "-C", "tree", "init", "-q").Run())
	check(exec.Command("git", "-C", "tree", "add", "-A").Run())
	s := b.serve("snapshots")
	defer s.stop()
	state := ""
	submit := func(flags ...string) time.Duration {
		cmd := s.command(append(append([]string{"submit", "-q", "--hold"}, flags...), "--", "true")...)
		cmd.Dir, cmd.Env = "tree", append(cmd.Env, "XDG_STATE_HOME="+state)
		start := time.Now()
		check(cmd.Run())
		return time.Since(start)
	}
	// The best of a few rounds: other work on the disk comes and goes.
	plain, first, same, edited, none := time.Hour, time.Hour, time.Hour, time.Hour, time.Hour
	for round := range 3 {
		start := time.Now()
		check(os.Mkdir(fmt.Sprint("copy", round), 0o755))
		check(exec.Command("cp", "-r", "tree/d0", "tree/d1", "tree/d2", "tree/d3", "tree/d4", "tree/d5", "tree/d6", "tree/d7", "tree/d8", "tree/d9", fmt.Sprint("copy", round)).Run())
		plain = min(plain, time.Since(start))
		var err error
		state, err = filepath.Abs(fmt.Sprint("snapshot-state", round))
		check(err)
		first, same = min(first, submit("--snapshot")), min(same, submit("--snapshot"))
		check(os.WriteFile("tree/d0/e0/f0", []byte(fmt.Sprint("edit ", round)), 0o644))
		edited, none = min(edited, submit("--snapshot")), min(none, submit())
		check(exec.Command("chmod", "-R", "u+w", state).Run()) // so that it can be removed
	}
	for _, row := range []struct {
		what string
		took time.Duration
		most float64
	}{{"the first", first, 12}, {"the same tree again", same, 3}, {"after an edit", edited, 5}} {
		ratio := (row.took - none).Seconds() / plain.Seconds()
		b.row(fmt.Sprintf("snapshot of %d files, %s, relative to cp -r", dirs*files, row.what), fmt.Sprintf("%.1f x", ratio), fmt.Sprintf("<= %.0f x", row.most), ratio <= row.most)
	}
}
