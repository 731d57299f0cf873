// Package client runs Slurm's programs as the current user, and reads what they
// answer: sbatch, squeue, scancel, scontrol and sacct. Each call has a deadline.
//
// It knows no job of berth's and decides nothing: an error says whether asking
// again later helps.
package client

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"berth/internal/slurm"
	"berth/internal/text"
)

// Slurm's programs are slow when slurmctld is.
const (
	submitTime = 60 * time.Second
	askTime    = 30 * time.Second
)

// maxIDs bounds the ids in one command line.
const maxIDs = 500

// Client calls Slurm's programs with this environment, whose PATH has them.
type Client struct {
	Environ []string
	Dir     string // in which they run; empty: /
}

// Kind is what an error means for the caller.
type Kind int

// The kinds. What was asked of a Slurm that is Away may have been done nevertheless.
const (
	Away    Kind = iota // it cannot be reached or is busy: ask again later
	Missing             // it is not installed here
	Full                // a limit on queued jobs: there is room once some have ended
	Refused             // asking again does not help
)

// Error is why one of Slurm's programs failed.
type Error struct {
	Kind    Kind
	Program string
	Said    string // on its standard error
	cause   error
}

// Error is what the program said, in one line without the prefixes.
func (e *Error) Error() string {
	var said []string
	for line := range strings.Lines(e.Said) {
		line = strings.TrimSpace(line)
		for _, prefix := range []string{"sbatch: ", "squeue: ", "scancel: ", "error: ", "Batch job submission failed: "} {
			line = strings.TrimPrefix(line, prefix)
		}
		if line != "" && !slices.Contains(said, line) && len(said) < 3 {
			said = append(said, line)
		}
	}
	return cmp.Or(strings.Join(said, "; "), e.cause.Error())
}

func (e *Error) Unwrap() error { return e.cause }

// Is reports whether an error is one of Slurm's of this kind.
func Is(err error, kind Kind) bool {
	e, ok := errors.AsType[*Error](err)
	return ok && e.Kind == kind
}

// Submit calls sbatch, which must print parsably, and returns the id of the job.
func (c Client) Submit(ctx context.Context, arguments []string) (id string, err error) {
	out, err := c.call(ctx, submitTime, "sbatch", arguments...)
	if err != nil {
		return "", err
	}
	if id, err = slurm.Submitted(out); err != nil { // it may have the job
		return "", &Error{Kind: Away, Program: "sbatch", cause: err}
	}
	return id, nil
}

// MaxArraySize is Slurm's bound of an array; nil: not known.
func (c Client) MaxArraySize(ctx context.Context) *int {
	config, err := c.call(ctx, askTime, "scontrol", slurm.SettingsCommand()...)
	if size, whole := text.Digits(slurm.Settings(config)["maxarraysize"], 9); err == nil && whole {
		return &size
	}
	return nil
}

// Queue lists the user's jobs, with those that ended a few minutes ago.
func (c Client) Queue(ctx context.Context) ([]slurm.Entry, error) {
	out, err := c.call(ctx, askTime, "squeue", slurm.QueueCommand(strconv.Itoa(os.Getuid()))...)
	if err != nil {
		return nil, err
	}
	return slurm.Queue(out)
}

// Cancel cancels jobs. scancel's options choose among those with these ids.
func (c Client) Cancel(ctx context.Context, ids []string, options ...string) (err error) {
	for some := range slices.Chunk(ids, maxIDs) {
		_, failed := c.call(ctx, askTime, "scancel", slices.Concat(options, some)...)
		err = cmp.Or(err, failed)
	}
	return err
}

// Hold keeps waiting jobs from starting.
func (c Client) Hold(ctx context.Context, ids []string) error { return c.control(ctx, "uhold", ids) }

// Release ends Hold.
func (c Client) Release(ctx context.Context, ids []string) error {
	return c.control(ctx, "release", ids)
}

func (c Client) control(ctx context.Context, verb string, ids []string) error {
	if len(ids) == 0 {
		return nil
	}
	_, err := c.call(ctx, askTime, "scontrol", verb, strings.Join(ids, ","))
	return err
}

// Accounts says how jobs ended: by Slurm's accounting if it has one, else by what
// slurmctld still remembers. A job that neither knows is missing.
func (c Client) Accounts(ctx context.Context, ids []string) (accounts []slurm.Account, err error) {
	if out, err := c.call(ctx, askTime, "sacct", slurm.AccountCommand(ids)...); err == nil {
		if accounts, err = slurm.Accounts(out); err == nil && len(accounts) > 0 {
			return accounts, nil
		}
	}
	for _, id := range ids {
		out, err := c.call(ctx, askTime, "scontrol", slurm.RememberedCommand(id)...)
		switch {
		case err == nil:
			accounts = append(accounts, slurm.Remembered(out)...)
		case !Is(err, Refused):
			return accounts, err // whether it remembers is not known
		}
	}
	return accounts, nil
}

// call runs a program and returns what it printed.
func (c Client) call(ctx context.Context, patience time.Duration, program string, arguments ...string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	path, err := c.Find(program)
	if err != nil {
		return "", err
	}
	cmd := exec.CommandContext(ctx, path, arguments...)
	var stdout, stderr bytes.Buffer
	cmd.Dir, cmd.Env, cmd.Stdout, cmd.Stderr, cmd.WaitDelay = cmp.Or(c.Dir, "/"), c.Environ, &stdout, &stderr, time.Second
	err = cmd.Run()
	e := &Error{Program: program, Said: stderr.String(), cause: err}
	exit, exited := errors.AsType[*exec.ExitError](err)
	switch {
	case err == nil:
		return stdout.String(), nil
	case ctx.Err() != nil:
		e.cause = fmt.Errorf("%s did not answer within %s", program, patience)
	case slurm.Crowded(e.Said):
		e.Kind = Full
	case exited && exit.Exited() && !slurm.Temporary(e.Said):
		e.Kind = Refused
	}
	return "", e
}

// Find returns the path of one of Slurm's programs.
func (c Client) Find(program string) (string, error) {
	for _, pair := range c.Environ {
		path, ok := strings.CutPrefix(pair, "PATH=")
		for _, dir := range filepath.SplitList(path) {
			if full := filepath.Join(dir, program); ok && filepath.IsAbs(dir) {
				if info, err := os.Stat(full); err == nil && info.Mode().IsRegular() && info.Mode()&0o111 != 0 {
					return full, nil
				}
			}
		}
	}
	return "", &Error{Kind: Missing, Program: program, cause: fmt.Errorf("there is no %s here: Slurm is not installed, or not in PATH", program)}
}
