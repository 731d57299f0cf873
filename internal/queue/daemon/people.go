package daemon

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"berth/internal/api"
	"berth/internal/job"
	"berth/internal/machine/keep"
	"berth/internal/machine/run"
	"berth/internal/machine/site"
	"berth/internal/queue"
	"berth/internal/queue/access"
	"berth/internal/queue/engine"
	"berth/internal/queue/engine/launch"
	"berth/internal/queue/store"
	"berth/internal/text/problem"
)

// How long information about a user may be used.
const (
	userTTL      = 5 * time.Minute  // then it is looked up again
	tokenUserTTL = 2 * time.Second  // likewise for a token, which outlives its user
	userGrace    = 15 * time.Minute // then no job is started with it
	limitsTTL    = time.Minute
	lookupTime   = 10 * time.Second
	refreshEvery = time.Minute
	changesEvery = time.Second    // how often the files of local users are looked at
	known        = 24 * time.Hour // to show a name
)

// people knows the users of the machine, and as whom each job and each helper
// runs. It caches what starting a job needs, so that the engine's goroutine never
// waits for a directory service.
type people struct {
	places   site.Places
	own      bool     // of an own queue
	env      []string // of this process
	uid      int      // whose daemon it is
	jobs     string   // the directory of the jobs' directories
	users    *site.Users
	queue    *queue.Queue // once it is open
	environs environs
	wanted   chan int // uids needed to start a job and not looked up recently

	mu     sync.Mutex
	limits map[int]loginLimits
}

type loginLimits struct {
	limits []keep.Rlimit
	err    error
	at     time.Time
}

// Identify says who the caller is: the kernel, a token or a session vouches for
// the identity.
func (h *door) Identify(ctx context.Context, p api.Peer) (api.Caller, error) {
	if p.Secret == "" && p.Proof.Session == "" {
		c, err := h.admit(ctx, p.UID, "", userTTL)
		c.PID, c.Way = p.PID, p.Way
		return c, err
	}
	now := time.Now()
	var entry access.TokenEntry
	var ok bool
	err := problem.Newf(problem.Forbidden, "create one with: berth token create", "the token is unknown or has expired")
	if p.Secret != "" {
		entry, ok = h.tokens.Check(p.Secret, now)
	} else {
		entry, ok = h.tokens.Prove(p.Proof, p.Way.Listener, now)
		err = problem.Newf(problem.Forbidden, "open another with: berth web", "the session is unknown or has ended")
	}
	if !ok {
		h.svc.note(api.Caller{UID: -1, Token: "none", Way: p.Way}, "token use", nil, "", err)
		return api.Caller{}, err
	}
	c, refused := h.admit(ctx, entry.UID, entry.User, tokenUserTTL)
	c.Token, c.Way = entry.ID, p.Way
	if refused == nil && entry.Session && h.svc.places.Shared {
		refused = h.mayLogIn(c, p.Way.Trusted(), false) // it may have become an administrator's
	}
	if refused != nil {
		h.svc.note(api.Caller{UID: entry.UID, Name: entry.User, Token: entry.ID, Way: p.Way}, "token use", nil, "", refused)
		return api.Caller{}, refused
	}
	c.Over = h.tokens.Note(entry.ID, p.Way.From, now)
	return c, nil
}

// admit is a user as the caller of a request. The user must exist; while users
// cannot be looked up, no one is admitted. was is the user's name when a token
// or a login was made; empty: the kernel names the user. What is known of the user
// may be that old.
func (h *door) admit(ctx context.Context, uid int, was string, maxAge time.Duration) (api.Caller, error) {
	if !h.svc.places.Shared && uid != h.svc.people.uid && uid != 0 {
		return api.Caller{}, problem.Newf(problem.Forbidden, "start your own with: berth submit", "this is another user's private daemon")
	}
	ctx, cancel := context.WithTimeout(ctx, lookupTime)
	defer cancel()
	user, err := h.svc.people.users.Within(ctx, uid, maxAge)
	switch {
	case err != nil && !h.svc.places.Shared:
		// As in a container without a passwd entry. The kernel's answer is
		// enough for the daemon's own user.
		user = site.User{Name: h.svc.people.userName(uid), UID: uid}
	case errors.Is(err, site.ErrUnknownUser):
		return api.Caller{}, problem.Newf(problem.Forbidden, "", "there is no user with uid %d", uid)
	case err != nil:
		h.svc.queue.Log.Error("look up user", "uid", uid, "err", err)
		return api.Caller{}, problem.Newf(problem.Unable, "ask the administrator to check the user database (getent passwd)", "your user name cannot be looked up at the moment")
	}
	c := api.Caller{UID: uid, Name: user.Name}
	if was != "" && h.svc.places.Shared && user.Name != was {
		return c, problem.Newf(problem.Forbidden, "create one with: berth token create", "the token is no longer valid: %v", successor(uid, was, user.Name))
	}
	c.Admin = uid == 0 || !h.svc.places.Shared || h.isAdmin(user)
	return c, nil
}

// successor says that a uid has passed from one user to another, who must not
// inherit what the first one left behind: tokens, and jobs that have not started.
func successor(uid int, was, is string) error {
	return fmt.Errorf("uid %d was user %s and is now user %s", uid, was, is)
}

func (h *door) isAdmin(user site.User) bool {
	group := h.svc.config().AdminGroup
	if group == "" {
		return false
	}
	in, err := h.svc.people.users.InGroup(user, group)
	if err != nil {
		h.svc.queue.Log.Error("look up group", "group", group, "err", err)
		return false
	}
	return in
}

// owner is the user a job runs as, with the environment.
func (p *people) owner(j *job.Job) (launch.Owner, error) {
	captured, err := p.environs.get(p.queue.Store, j.Environ)
	if err != nil {
		err = fmt.Errorf("its environment cannot be read: %w", err)
		if !errors.Is(err, store.ErrNotFound) {
			err = fmt.Errorf("%w: %w", err, engine.ErrNotNow)
		}
		return launch.Owner{}, err
	}
	if !p.places.Shared {
		return p.ownerHere(j, captured), p.roomForLog()
	}
	user, ok := p.users.Cached(j.UID, userGrace)
	if !ok {
		select {
		case p.wanted <- j.UID:
		default:
		}
		return launch.Owner{}, fmt.Errorf("user %s (uid %d) cannot be looked up: %w", j.User, j.UID, engine.ErrNotNow)
	}
	if user.Name != j.User {
		return launch.Owner{}, successor(j.UID, j.User, user.Name)
	}
	o := launch.Owner{Env: jobEnviron(captured, j.Spec, user.Name, user.Home, user.Shell), Home: user.Home}
	if err := p.makeLog(j, user.UID, user.GID); err != nil {
		return launch.Owner{}, err
	}
	if j.UID == 0 {
		return o, nil // root's own jobs keep root's identity
	}
	if o.Credential, err = p.credential(user); err != nil {
		return launch.Owner{}, fmt.Errorf("%w: %w", err, engine.ErrNotNow)
	}
	o.Credential.Umask = j.Umask
	return o, nil
}

// credential is what a process needs to become a user, with the limits of a login.
// In a private daemon no process becomes anybody.
func (p *people) credential(user site.User) (*keep.Credential, error) {
	if !p.places.Shared {
		return nil, nil
	}
	limits, err := p.loginLimits(user)
	if err != nil {
		return nil, fmt.Errorf("limits of user %s: %w", user.Name, err)
	}
	return &keep.Credential{UID: user.UID, GID: user.GID, Groups: user.Groups, Rlimits: limits, Umask: -1, Home: user.Home}, nil
}

// ask runs one of berth's own commands as a user.
func (p *people) ask(ctx context.Context, user site.User, life time.Duration, word string, input []byte) ([]byte, error) {
	as, err := p.credential(user)
	if err != nil {
		return nil, err
	}
	return p.queue.Runner.Ask(ctx, run.Helper{As: as, Args: []string{word}, Life: life}, input)
}

// ownerHere is the one user of a private daemon.
func (p *people) ownerHere(j *job.Job, captured []string) launch.Owner {
	if p.own {
		return launch.Owner{Env: captured, Home: lookup(captured, "HOME")}
	}
	home, shell := p.home(p.uid), lookup(p.env, "SHELL")
	if user, ok := p.users.Cached(p.uid, known); ok {
		shell = user.Shell
	}
	return launch.Owner{Env: jobEnviron(captured, j.Spec, j.User, home, shell), Home: home}
}

// home is a user's home directory as last known.
func (p *people) home(uid int) string {
	if user, ok := p.users.Cached(uid, known); ok {
		return user.Home
	}
	if !p.places.Shared {
		return lookup(p.env, "HOME")
	}
	return ""
}

// roomForLog checks the disk for a private daemon, whose supervisors create the
// directories themselves. Checking the disk is cheaper than creating a directory
// here, where all requests wait.
func (p *people) roomForLog() error {
	var disk unix.Statfs_t
	if err := unix.Statfs(p.jobs, &disk); err != nil {
		return nil // creating the directory will report the error
	}
	if disk.Bavail == 0 || disk.Files > 0 && disk.Ffree == 0 {
		return fmt.Errorf("make the job's directory: %w: %w", syscall.ENOSPC, engine.ErrNotNow)
	}
	return nil
}

func (p *people) loginLimits(user site.User) ([]keep.Rlimit, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if known, ok := p.limits[user.UID]; ok && time.Since(known.at) < limitsTTL {
		return known.limits, known.err
	}
	limits, err := p.users.LoginLimits(user)
	if p.limits == nil || len(p.limits) > 10_000 {
		p.limits = map[int]loginLimits{}
	}
	p.limits[user.UID] = loginLimits{limits, err, time.Now()}
	return limits, err
}

// keepUsersKnown looks up the users of live jobs before the engine has to ask,
// and again when the files of local users have changed.
func (p *people) keepUsersKnown(ctx context.Context, do func(context.Context, func(*engine.Turn)) error) {
	ticker := time.NewTicker(changesEvery)
	defer ticker.Stop()
	as, at := p.users.Edition(), time.Now()
	for {
		var uids []int
		select {
		case <-ctx.Done():
			return
		case uid := <-p.wanted:
			uids = []int{uid}
		case <-ticker.C:
			now := p.users.Edition()
			if now == as && time.Since(at) < refreshEvery {
				continue
			}
			as, at = now, time.Now()
			seen := map[int]bool{}
			if do(ctx, func(t *engine.Turn) { t.Jobs().Each(0, func(j *job.Job) bool { seen[j.UID] = true; return true }) }) != nil {
				continue
			}
			for uid := range seen {
				uids = append(uids, uid)
			}
		}
		p.lookUp(ctx, uids)
	}
}

// lookUp looks up users, several at a time, with a deadline each.
func (p *people) lookUp(ctx context.Context, uids []int) {
	var group sync.WaitGroup
	turn := make(chan struct{}, 4)
	for _, uid := range uids {
		turn <- struct{}{}
		group.Go(func() {
			defer func() { <-turn }()
			bounded, cancel := context.WithTimeout(ctx, lookupTime)
			defer cancel()
			if _, err := p.users.ByUID(bounded, uid); err != nil {
				p.queue.Log.Warn("look up user", "uid", uid, "err", err)
			}
		})
	}
	group.Wait()
}

// jobEnviron is the environment of a job: what it exports from the caller's, and
// what a login would set.
func jobEnviron(captured []string, spec job.Spec, user, home, shell string) []string {
	kept := exported(captured, spec.Export)
	for _, v := range [][2]string{{"HOME", home}, {"USER", user}, {"LOGNAME", user}, {"SHELL", shell}} {
		if v[1] != "" && lookup(kept, v[0]) == "" {
			kept = append(kept, v[0]+"="+v[1])
		}
	}
	if term := lookup(captured, "TERM"); spec.Pty && term != "" && lookup(kept, "TERM") == "" {
		kept = append(kept, "TERM="+term)
	}
	return kept
}

// exported filters a captured environment.
func exported(captured []string, export string) []string {
	switch export {
	case "", "all":
		return slices.Clone(captured)
	case "none":
		return nil
	}
	wanted := strings.Split(export, ",")
	var kept []string
	for _, pair := range captured {
		name, _, _ := strings.Cut(pair, "=")
		if slices.Contains(wanted, name) {
			kept = append(kept, pair)
		}
	}
	return kept
}

// lookup is the value of a variable; the last definition wins.
func lookup(environ []string, name string) string {
	for i := len(environ) - 1; i >= 0; i-- {
		if value, ok := strings.CutPrefix(environ[i], name+"="); ok {
			return value
		}
	}
	return ""
}

// mayTouch reports whether the caller may change a job or read its output.
func mayTouch(c api.Caller, j *job.Job) bool { return c.Admin || c.UID == j.UID }

// mayBe reports whether the caller may decide what a job executes, by editing it
// or typing into its terminal: its owner, and root, who could become that user
// anyway. Other administrators may not.
func mayBe(c api.Caller, j *job.Job) bool { return c.UID == j.UID || c.UID == 0 }

// notYours is the problem for another user's job: what the caller may not change or
// read, or as an administrator not execute.
func notYours(c api.Caller, j *job.Job) *problem.Problem {
	hint := "its owner and administrators may do this"
	if mayTouch(c, j) {
		hint = "only its owner and root may decide what it executes; an administrator may change when and where it runs, or cancel it"
	}
	return problem.Newf(problem.Forbidden, hint, "job %s belongs to %s", j.ID, j.User)
}
