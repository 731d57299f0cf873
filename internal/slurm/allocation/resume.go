package allocation

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"berth/internal/api"
	"berth/internal/job/jobfile"
	"berth/internal/machine/site"
	"berth/internal/slurm/handover"
	"berth/internal/text/problem"
)

// begin reads the jobs file, takes the log directory, and goes on where the ledger
// ends.
func (f *front) begin(ctx context.Context, logDir string) error {
	if err := f.read(ctx); err != nil {
		return err
	}
	if err := f.takeDirectory(logDir); err != nil {
		return err
	}
	err := f.resume()
	if err != nil && problem.KindOf(err) == "" {
		err = problem.Wrap(problem.Unable, "", err)
	}
	return err
}

// read reads the jobs file, which is read again and again.
func (f *front) read(ctx context.Context) error {
	if info, err := os.Stat(f.opt.File); err == nil && !info.Mode().IsRegular() {
		return problem.Newf(problem.Invalid, "write the jobs into a file", "--allocations: expected a jobs file that can be read again, found %s", f.opt.File)
	}
	return f.source.Open(ctx)
}

func (f *front) takeDirectory(logDir string) (err error) {
	const elsewhere = "choose another place with --log-dir"
	if err := os.MkdirAll(f.dir, 0o755); err != nil {
		return problem.Wrap(problem.Unable, elsewhere, err)
	}
	if err := site.OwnPlace(logDir); err != nil {
		return problem.Wrap(problem.Unable, elsewhere, fmt.Errorf("log directory %w", err))
	}
	if f.lock, err = newLock(f.dir, f.opt.LogDir, handoverTime); err != nil {
		return err
	}
	if f.opt.Fresh && Present(logDir) {
		if err := startOver(f.dir, logDir); err != nil {
			return err
		}
		f.lock.close() // it has moved, too
		if f.lock, err = newLock(f.dir, f.opt.LogDir, 0); err != nil {
			return err
		}
	}
	if f.opt.Installed == "" {
		var programs []handover.Program
		if programs, f.opt.Installed, err = handover.Programs(f.opt.Program, f.dir, "berth-keep", "berth-gpu"); err == nil {
			err = handover.Install(programs)
		}
		if err != nil {
			return problem.Newf(problem.Unable, elsewhere, "copy berth to where the nodes see it: %w", err)
		}
	}
	if f.narrator, err = newNarrator(&f.opt, logDir); err != nil {
		return problem.Wrap(problem.Unable, elsewhere, err)
	}
	f.board.path = filepath.Join(logDir, "status.txt")
	return nil
}

// resume goes on where the ledger ends.
func (f *front) resume() (err error) {
	var entries []entry
	if f.ledger, entries, err = openLedger(filepath.Join(f.dir, "ledger.jsonl")); err != nil {
		return err
	}
	f.replay(entries)
	if f.run == "" {
		name := make([]byte, 4)
		_, _ = rand.Read(name) // never fails
		f.run = hex.EncodeToString(name)
		if err := f.ledger.write(entry{Run: f.run}); err != nil {
			return err
		}
	}
	for _, a := range f.allocations {
		if err := a.follow(); err != nil {
			return err
		}
		if a.lines, err = a.directory.lines(); err != nil {
			return err
		}
		a.noMore = a.directory.has(noMoreName)
	}
	f.jobs.earlier = f.jobs.count((*task).ended)
	lines := f.source.Lines()
	if err := f.source.CheckPlaces(lines, f.jobs.over(lines)); err != nil {
		return err
	}
	if err := f.accept(jobfile.File{Lines: lines}); err != nil {
		return err
	}
	for _, a := range f.allocations {
		if err := a.complete(); err != nil {
			return err
		}
	}
	if failed := f.jobs.failed(); f.opt.Retry == api.RetryFailed && len(failed) > 0 {
		f.jobs.forget(failed)
		f.jobs.earlier -= len(failed)
		return f.ledger.write(entry{Forget: failed})
	}
	return nil
}

// replay brings back what the ledger says.
func (f *front) replay(entries []entry) {
	for _, e := range entries {
		switch {
		case e.Run != "":
			f.run = e.Run
		case len(e.Jobs) > 0:
			for _, key := range e.Jobs {
				f.jobs.add(key)
			}
		case e.Ask > 0:
			f.allocations = append(f.allocations, f.newAllocation(e.Ask))
		case e.Got > 0:
			f.allocations[e.Got-1].slurm = e.Slurm
		case e.Deal > 0:
			for _, id := range e.IDs {
				f.allocations[e.Deal-1].take(f.jobs.all[id-1])
			}
		case e.Close > 0:
			a := f.allocations[e.Close-1]
			// What it finished is read before its other jobs are free again.
			a.closed = true
			_ = a.follow()
			a.release()
		case len(e.Forget) > 0:
			f.jobs.forget(e.Forget)
		}
	}
}

// startOver moves the records of earlier allocations away. None may be left in
// Slurm.
func startOver(dir, logDir string) error {
	l, entries, err := openLedger(filepath.Join(dir, "ledger.jsonl"))
	if err != nil {
		return problem.Wrap(problem.Unable, "", err)
	}
	_ = l.file.Close()
	closed := map[int]bool{}
	for _, e := range entries {
		closed[e.Close] = true
	}
	for _, e := range entries {
		if e.Ask > 0 && !closed[e.Ask] {
			return problem.Newf(problem.Refused, "run the same command without --fresh, stop it with Ctrl-C, then start over",
				"allocation %d of an earlier run may still run", e.Ask)
		}
	}
	old := filepath.Join(logDir, "old-"+time.Now().Format("20060102-150405"))
	if err = os.Mkdir(old, 0o755); err == nil {
		err = os.Rename(dir, filepath.Join(old, "alloc"))
	}
	if err == nil {
		_ = os.Rename(filepath.Join(logDir, journalName), filepath.Join(old, journalName))
		err = os.MkdirAll(dir, 0o755)
	}
	if err != nil {
		return problem.Wrap(problem.Unable, "", err)
	}
	return nil
}
