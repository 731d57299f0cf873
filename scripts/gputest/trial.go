package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// check is one test on a GPU.
type check struct {
	name  string
	about string
	limit time.Duration
	sim   bool // works with simulated GPUs
	run   func(context.Context, *trial)
}

// trial is one check in progress: its findings, and what it has to undo.
type trial struct {
	*host
	name    string
	dir     string // its own, readable by the jobs' user
	figures []string
	wrong   []string
	undo    []func()
	daemons []*daemon
}

// skip is why a check cannot run here.
type skip string

func (s skip) Error() string { return string(s) }

func skipf(format string, args ...any) error { return skip(fmt.Sprintf(format, args...)) }

// seen records a figure for the table.
func (t *trial) seen(format string, args ...any) {
	t.figures = append(t.figures, fmt.Sprintf(format, args...))
	t.say("seen: "+format, args...)
}

// expect records a failure and continues: the rest of the check is still of
// interest.
func (t *trial) expect(ok bool, format string, args ...any) bool {
	if !ok {
		t.wrong = append(t.wrong, fmt.Sprintf(format, args...))
		t.say("wrong: "+format, args...)
	}
	return ok
}

// later registers fn for the end of the check, the last first.
func (t *trial) later(fn func()) { t.undo = append(t.undo, fn) }

// try runs one check and cleans up after it.
func (h *host) try(ctx context.Context, c check) result {
	r := result{Check: c.name, About: c.about, Result: skipped}
	if h.Sim && !c.sim {
		r.Why = []string{"needs a real GPU"}
		return r
	}
	h.say("== %s: %s", c.name, c.about)
	began := time.Now()
	t := &trial{host: h, name: c.name, dir: filepath.Join(h.dir, c.name)}
	err := os.Mkdir(t.dir, 0o755)
	if err == nil {
		err = t.inTime(ctx, c)
	}
	r.Seconds = time.Since(began).Seconds()
	r.Figures, r.Why = t.figures, t.wrong
	var why skip
	switch {
	case errors.As(err, &why) && len(t.wrong) == 0:
		r.Why = []string{string(why)}
	case err != nil:
		r.Result, r.Why = failed, append(r.Why, err.Error())
	case len(t.wrong) > 0:
		r.Result = failed
	default:
		r.Result = passed
	}
	if r.Result == failed || h.verbose {
		r.Log = t.logTail()
	}
	if left := t.clean(); len(left) > 0 && r.Result == passed && ctx.Err() == nil {
		r.Result, r.Why = failed, []string{"left behind: " + strings.Join(left, ", ")}
	}
	return r
}

func (t *trial) inTime(ctx context.Context, c check) error {
	limited, cancel := context.WithTimeout(ctx, c.limit)
	defer cancel()
	err := untilNeed(func() { c.run(limited, t) })
	if err != nil && errors.Is(limited.Err(), context.DeadlineExceeded) && ctx.Err() == nil {
		return fmt.Errorf("not finished within %v: %w", c.limit, err)
	}
	return err
}

// unmet is what need panics with.
type unmet struct{ error }

// need ends the check with an error that it cannot go on after.
func need(err error) {
	if err != nil {
		panic(unmet{err})
	}
}

// must is need for a call with a result.
func must[T any](value T, err error) T {
	need(err)
	return value
}

// needTo is need for an error that does not say what was tried.
func needTo(do string, err error) {
	if err != nil {
		need(fmt.Errorf("%s: %w", do, err))
	}
}

// requires skips the check unless this host has what it needs.
func (t *trial) requires(has bool, format string, args ...any) {
	if !has {
		need(skipf(format, args...))
	}
}

// untilNeed runs something, and returns the error that need ended it with.
func untilNeed(run func()) (err error) {
	defer func() {
		switch cause := recover().(type) {
		case nil:
		case unmet:
			err = cause.error
		default:
			panic(cause)
		}
	}()
	run()
	return nil
}

// clean undoes everything, even after an interruption: it has a deadline of
// its own. It returns what did not end by itself.
func (t *trial) clean() []string {
	for len(t.undo) > 0 {
		last := t.undo[len(t.undo)-1]
		t.undo = t.undo[:len(t.undo)-1]
		last()
	}
	left := t.endMarked()
	if !t.keep {
		_ = os.RemoveAll(t.dir)
	}
	return left
}

// poll repeats until done returns true. what fits after "waited for".
func poll(ctx context.Context, every time.Duration, what string, done func() (bool, error)) error {
	ticker := time.NewTicker(every)
	defer ticker.Stop()
	for {
		ok, err := done()
		if ok || err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("waited for %s: %w", what, ctx.Err())
		case <-ticker.C:
		}
	}
}

// pollFor is poll with a limit of its own.
func pollFor(ctx context.Context, limit time.Duration, what string, done func() (bool, error)) error {
	limited, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	if err := poll(limited, 25*time.Millisecond, what, done); err != nil {
		if ctx.Err() == nil && limited.Err() != nil {
			return fmt.Errorf("waited %v for %s", limit, what)
		}
		return err
	}
	return nil
}

// pause waits, or less if the check ends.
func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}
