package daemon

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"berth/internal/job"
	"berth/internal/queue/config"
	"berth/internal/queue/store"
)

// memory is the part of the store that retain looks after.
type memory interface {
	Job(id string) (*job.Job, error)
	LastSeq() (int64, error)
	Forget(keep store.Keep) (int, error)
	DropText(most int64) (int, error)
	SweepBlobs() (int64, error)
	KeepEvents(total int) error
}

var _ memory = (*store.Store)(nil)

// retainNow reports whether to delete now, and by which rules. Between the
// regular times only a flood needs it, and only numbers count: ages could be wrong
// after a change of the clock. Every job that comes or ends is an event.
func retainNow(cfg config.Config, regular bool, newEvents int64) (rules config.Config, ok bool) {
	if regular {
		return cfg, true
	}
	cfg.History, cfg.Logs = 0, 0
	return cfg, newEvents > int64(cfg.Events/4)
}

// retain deletes what is too old or too much: finished jobs, their logs, and
// events. An error is reported and does not stop the rest: on a full disk jobs
// cannot be deleted, but logs can.
func retain(now time.Time, cfg config.Config, m memory, jobsDir string, log *slog.Logger) (forgotten int, err error) {
	keep := store.Keep{Jobs: cfg.HistoryJobs}
	if cfg.History > 0 {
		keep.Since = now.Add(-cfg.History)
	}
	if cfg.Logs > 0 {
		keep.Logs = now.Add(-cfg.Logs)
	}
	forgotten, err = m.Forget(keep)
	errs := []error{err}
	// This includes directories that an earlier berth did not get to.
	removed, err := expire(now, cfg, m, jobsDir, log)
	errs = append(errs, err)
	errs = append(errs, dropText(cfg, m, log), m.KeepEvents(cfg.Events))
	if removed > 0 {
		log.Info("removed old logs", "directories", removed)
	}
	return forgotten, errors.Join(errs...)
}

// dropText drops what is too much of the text of ended jobs, and the text that no
// job refers to any more.
func dropText(cfg config.Config, m memory, log *slog.Logger) error {
	dropped, err := m.DropText(cfg.HistoryText)
	if dropped > 0 {
		log.Info("dropped the text of ended jobs", "jobs", dropped)
	}
	_, swept := m.SweepBlobs()
	return errors.Join(err, swept)
}

// expire removes directories below jobsDir that are no longer needed: those of
// forgotten jobs, and those of jobs that ended too long ago for their logs to be
// kept. It takes ages from the store: a user can set the times of a directory.
func expire(now time.Time, cfg config.Config, m memory, jobsDir string, log *slog.Logger) (removed int, err error) {
	dir, err := os.Open(filepath.Clean(jobsDir))
	if errors.Is(err, fs.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, fmt.Errorf("look for old logs: %w", err)
	}
	defer dir.Close()
	last, err := m.LastSeq()
	if err != nil {
		return 0, err
	}
	bin, err := openBin(dir)
	if err != nil {
		return 0, fmt.Errorf("remove old logs: %w", err)
	}
	defer bin.close()
	for {
		names, err := dir.Readdirnames(1000)
		for _, name := range names {
			gone, err := expired(now, cfg, m, name, last)
			if err != nil {
				return removed, err
			}
			if !gone {
				continue
			}
			if err := bin.throw(name); err != nil {
				log.Warn("a job's directory cannot be removed", "job", name, "error", err)
				continue
			}
			removed++
		}
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return removed, fmt.Errorf("look for old logs: %w", err)
		}
	}
	if err := bin.empty(); err != nil {
		return removed, fmt.Errorf("remove old logs: %w", err)
	}
	return removed, nil
}

// expired reports whether a directory belonged to a job and can be removed. A
// number above the last one may be a job that is just being submitted.
func expired(now time.Time, cfg config.Config, m memory, name string, last int64) (bool, error) {
	number, ok := jobNumber(name)
	if !ok || number > last {
		return false, nil
	}
	j, err := m.Job(name)
	if errors.Is(err, store.ErrNotFound) {
		return true, nil
	}
	if err != nil {
		return false, err
	}
	return cfg.Logs > 0 && j.State.Terminal() && j.EndedAt.Before(now.Add(-cfg.Logs)), nil
}

// jobNumber is the 17 of "17" and of "17_3". A directory with any other name is
// not a job's and is left alone.
func jobNumber(name string) (int64, bool) {
	base, index, isTask := strings.Cut(name, "_")
	number, err := strconv.ParseInt(base, 10, 64)
	if err != nil || number < 1 || strconv.FormatInt(number, 10) != base {
		return 0, false
	}
	if isTask {
		n, err := strconv.ParseInt(index, 10, 64)
		if err != nil || n < 0 || strconv.FormatInt(n, 10) != index {
			return 0, false
		}
	}
	return number, true
}
