package people

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"berth/internal/job"
	"berth/internal/machine/keep"
	"berth/internal/machine/run"
	"berth/internal/machine/site"
	"berth/internal/queue/engine"
	"berth/internal/queue/engine/launch"
	"berth/internal/queue/store"
)

// Owner is the user a job runs as, with the environment.
func (p *People) Owner(j *job.Job) (launch.Owner, error) {
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
	user, ok := p.Users.Cached(j.UID, userGrace)
	if !ok {
		p.want(j.UID)
		return launch.Owner{}, fmt.Errorf("user %s (uid %d) cannot be looked up: %w", j.User, j.UID, engine.ErrNotNow)
	}
	if user.Name != j.User {
		return launch.Owner{}, Successor(j.UID, j.User, user.Name)
	}
	o := launch.Owner{Env: jobEnviron(captured, j.Spec, user.Name, user.Home, user.Shell), Home: user.Home}
	if err := p.makeLog(j, user.UID, user.GID); err != nil {
		return launch.Owner{}, err
	}
	if j.UID == 0 {
		return o, nil // root's own jobs keep root's identity
	}
	if o.Credential, err = p.Credential(user); err != nil {
		return launch.Owner{}, fmt.Errorf("%w: %w", err, engine.ErrNotNow)
	}
	o.Credential.Umask = j.Umask
	return o, nil
}

// ownerHere is the one user of a private daemon.
func (p *People) ownerHere(j *job.Job, captured []string) launch.Owner {
	if p.own {
		return launch.Owner{Env: captured, Home: job.Getenv(captured, "HOME")}
	}
	home, shell := p.Home(p.UID), job.Getenv(p.env, "SHELL")
	if user, ok := p.Users.Cached(p.UID, known); ok {
		shell = user.Shell
	}
	return launch.Owner{Env: jobEnviron(captured, j.Spec, j.User, home, shell), Home: home}
}

// Inherited is the environment that a job inherits.
func (p *People) Inherited(j *job.Job) ([]string, error) {
	captured, err := p.environs.get(p.queue.Store, j.Environ)
	if err != nil {
		return nil, fmt.Errorf("read the environment of job %s: %w", j.ID, err)
	}
	if !p.places.Shared {
		return p.ownerHere(j, captured).Env, nil
	}
	user, err := p.RunsAs(context.Background(), j.UID, j.User)
	if err != nil {
		return nil, err
	}
	return jobEnviron(captured, j.Spec, user.Name, user.Home, user.Shell), nil
}

// Credential is what a process needs to become a user, with the limits of a login.
// In a private daemon no process becomes anybody.
func (p *People) Credential(user site.User) (*keep.Credential, error) {
	if !p.places.Shared {
		return nil, nil
	}
	limits, err := p.loginLimits(user)
	if err != nil {
		return nil, fmt.Errorf("limits of user %s: %w", user.Name, err)
	}
	return &keep.Credential{UID: user.UID, GID: user.GID, Groups: user.Groups, Rlimits: limits, Umask: -1, Home: user.Home}, nil
}

func (p *People) loginLimits(user site.User) ([]keep.Rlimit, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if known, ok := p.limits[user.UID]; ok && time.Since(known.at) < limitsTTL {
		return known.limits, known.err
	}
	limits, err := p.Users.LoginLimits(user)
	if p.limits == nil || len(p.limits) > 10_000 {
		p.limits = map[int]loginLimits{}
	}
	p.limits[user.UID] = loginLimits{limits, err, time.Now()}
	return limits, err
}

type loginLimits struct {
	limits []keep.Rlimit
	err    error
	at     time.Time
}

// RunsAs is the user whose jobs these are. A later owner of the same number is not.
func (p *People) RunsAs(ctx context.Context, uid int, name string) (site.User, error) {
	if !p.places.Shared {
		// Always the same after a restart: handed-over jobs are followed below it.
		return site.User{Name: name, UID: p.UID, GID: os.Getegid(), Home: cmp.Or(job.Getenv(p.env, "HOME"), p.Home(p.UID))}, nil
	}
	ctx, cancel := context.WithTimeout(ctx, LookupTime)
	defer cancel()
	found, err := p.Users.Within(ctx, uid, FreshFor)
	if err == nil && name != "" && found.Name != name {
		err = Successor(uid, name, found.Name)
	}
	return found, err
}

// Sender is whom a user's messages are sent as: that user, and never root.
func (p *People) Sender(ctx context.Context, uid int, user string) (site.User, error) {
	switch {
	case !p.places.Shared:
		return site.User{Name: p.Name(p.UID), UID: p.UID, GID: os.Getegid(), Home: p.Home(p.UID)}, nil
	case uid == 0 || user == "":
		return Nobody, nil
	}
	ctx, cancel := context.WithTimeout(ctx, LookupTime)
	defer cancel()
	found, err := p.Users.Within(ctx, uid, FreshFor)
	if err == nil && found.Name != user {
		err = Successor(uid, user, found.Name)
	}
	return found, err
}

// Nobody is whom a shared daemon sends messages as that are not a user's own:
// those of administrators, root's, and mail that needs the administrator's
// password. They need no rights, and root's least of all.
var Nobody = site.User{Name: "nobody", UID: 65534, GID: 65534, Groups: []int{65534}, Home: "/"}

// Ask runs one of berth's own commands as a user.
func (p *People) Ask(ctx context.Context, user site.User, life time.Duration, word string, input []byte) ([]byte, error) {
	as, err := p.Credential(user)
	if err != nil {
		return nil, err
	}
	return p.queue.Runner.Doors.Ask(ctx, run.Helper{As: as, Args: []string{word}, Life: life}, input)
}

// OpenAsOwner opens a file with the permissions of the job's user: a shared
// daemon is root, and the user controls the path.
func (p *People) OpenAsOwner(ctx context.Context, j *job.Job, path string) (*os.File, error) {
	if !p.places.Shared {
		return os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK, 0)
	}
	user, err := p.Users.ByUID(ctx, j.UID)
	if err != nil {
		return nil, fmt.Errorf("look up user %s: %w", j.User, err)
	}
	as, err := p.Credential(user)
	if err != nil {
		return nil, err
	}
	return p.queue.Runner.Doors.OpenAs(ctx, as, path)
}

// LogPath is where an attempt's output goes. A path in the job is relative to
// the user's home.
func (p *People) LogPath(j *job.Job) string {
	uid := p.UID
	if p.places.Shared {
		uid = j.UID
	}
	l := *p.queue.Launcher
	l.Home = p.Home(uid)
	return l.LogPath(j)
}

// roomForLog checks the disk for a private daemon, whose supervisors create the
// directories themselves. Checking the disk is cheaper than creating a directory
// here, where all requests wait.
func (p *People) roomForLog() error {
	var disk unix.Statfs_t
	if err := unix.Statfs(p.JobsDir, &disk); err != nil {
		return nil // creating the directory will report the error
	}
	if disk.Bavail == 0 || disk.Files > 0 && disk.Ffree == 0 {
		return fmt.Errorf("make the job's directory: %w: %w", syscall.ENOSPC, engine.ErrNotNow)
	}
	return nil
}

// jobEnviron is the environment of a job: what it exports from the caller's, and
// what a login would set.
func jobEnviron(captured []string, spec job.Spec, user, home, shell string) []string {
	kept := spec.Exported(captured)
	for _, v := range [][2]string{{"HOME", home}, {"USER", user}, {"LOGNAME", user}, {"SHELL", shell}} {
		if v[1] != "" && job.Getenv(kept, v[0]) == "" {
			kept = append(kept, v[0]+"="+v[1])
		}
	}
	if term := job.Getenv(captured, "TERM"); spec.Pty && term != "" && job.Getenv(kept, "TERM") == "" {
		kept = append(kept, "TERM="+term)
	}
	return kept
}
