package site

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"time"
)

// Finding is one thing about this host that berth depends on.
type Finding struct {
	Name   string `json:"name"`
	Status string `json:"status"` // OK, Warn or Fail
	What   string `json:"what"`
	Fix    string `json:"fix"` // "" if there is nothing to do
}

// The status of a finding: nothing to do; berth works, but less well; berth
// does not work as it should.
const (
	OK   = "ok"
	Warn = "warn"
	Fail = "fail"
)

// examineDeadline bounds one examination: a dead file server or a hung driver
// is a finding, not a reason to hang.
const examineDeadline = 20 * time.Second

// Examine checks everything on this host that berth depends on, for a daemon
// with these directories, this group of administrators and this version of the
// helper's protocol. It changes nothing.
func Examine(ctx context.Context, places Places, adminGroup string, protocol int) []Finding {
	return exam{
		adminGroup: adminGroup,
		machine:    here(), kernel: thisKernel(), places: places, deadline: examineDeadline,
		helper: findHelper(os.Getenv, SelfDir()), protocol: protocol, arch: runtime.GOARCH, getenv: os.Getenv,
	}.all(ctx)
}

// exam is one examination of a host. Tests examine made-up hosts.
type exam struct {
	machine
	kernel     kernel
	places     Places
	adminGroup string
	deadline   time.Duration
	helper     helper
	protocol   int // the version the helper has to speak
	arch       string
	getenv     func(string) string
}

// check is one question about the host.
type check struct {
	name string
	ask  func(context.Context) Finding
}

func (e exam) checks() []check {
	cards := &cardFacts{exam: e}
	aboutCards := func(ask func(helperSaid) Finding) func(context.Context) Finding {
		return func(ctx context.Context) Finding {
			if !e.hasDriver() {
				return ok(NoCards)
			}
			return ask(cards.get(ctx))
		}
	}
	return []check{
		{"kernel", e.release}, {"pidfd", e.pidfd}, {"boot id", e.bootID}, {"clock", e.clock}, {"proc", e.proc}, {"zombies", e.zombies},
		{"cgroup", e.cgroup}, {"controllers", e.controllers}, {"systemd", e.systemd}, {"logout", e.logout},
		{"getent", e.getentFinding}, {"users", e.users}, {"admins", e.admins}, {"limits", e.limits},
		{"state", e.state}, {"disk", e.disk}, {"ledger", e.ledger}, {"swap", e.swap},
		{"driver", cards.driver}, {"nvml", aboutCards(cards.nvml)},
		{"devices", e.devices}, {"isolation", aboutCards(cards.isolation)}, {"xid", aboutCards(cards.xid)},
		{"topology", aboutCards(cards.topology)}, {"persistence", aboutCards(cards.persistence)}, {"mps", aboutCards(cards.mps)},
		{"memory limits", aboutCards(cards.memoryLimits)}, {"checkpoint", aboutCards(cards.checkpoint)}, {"containers", aboutCards(cards.containers)},
	}
}

// all runs every check at once and returns the findings in the order of the
// list.
func (e exam) all(ctx context.Context) []Finding {
	ctx, cancel := context.WithTimeout(ctx, e.deadline)
	defer cancel()
	checks := e.checks()
	findings := make([]Finding, len(checks))
	var group sync.WaitGroup
	for i, c := range checks {
		group.Go(func() { findings[i] = c.bounded(ctx) })
	}
	group.Wait()
	return findings
}

// bounded returns when the deadline passes, even if the check hangs in the
// kernel.
func (c check) bounded(ctx context.Context) Finding {
	answer := make(chan Finding, 1)
	go func() { answer <- c.ask(ctx) }()
	select {
	case f := <-answer:
		f.Name = c.name
		return f
	case <-ctx.Done():
	}
	return Finding{Name: c.name, Status: Fail, What: "no answer in time", Fix: "look for a hung file system or driver (`dmesg`, `ps -eo pid,stat,wchan,args`)"}
}

func ok(format string, args ...any) Finding {
	return Finding{Status: OK, What: fmt.Sprintf(format, args...)}
}

func warn(fix, format string, args ...any) Finding {
	return Finding{Status: Warn, What: fmt.Sprintf(format, args...), Fix: fix}
}

func fail(fix, format string, args ...any) Finding {
	return Finding{Status: Fail, What: fmt.Sprintf(format, args...), Fix: fix}
}

// isRoot reports whether the examination runs as root: a shared daemon needs
// more than a private one.
func (e exam) isRoot() bool { return e.uid == 0 }

// existing is the nearest existing directory at or above a path.
func existing(path string) string {
	for path != "/" && path != "." {
		if info, err := os.Stat(path); err == nil && info.IsDir() {
			return path
		}
		path = filepath.Dir(path)
	}
	return path
}
