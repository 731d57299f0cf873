package people

import (
	"context"
	"fmt"
	"os"
	"sync"
	"time"

	"berth/internal/job"
	"berth/internal/machine/site"
	"berth/internal/queue"
	"berth/internal/queue/engine"
)

// How long information about a user may be used.
const (
	FreshFor     = 5 * time.Minute  // then it is looked up again
	userGrace    = 15 * time.Minute // then no job is started with it
	limitsTTL    = time.Minute
	LookupTime   = 10 * time.Second
	refreshEvery = time.Minute
	changesEvery = time.Second    // how often the files of local users are looked at
	known        = 24 * time.Hour // to show a name
)

// People knows the users of the machine, and as whom each job and each helper
// runs. It caches what starting a job needs, so that the engine's goroutine never
// waits for a directory service.
type People struct {
	places   site.Places
	own      bool     // of an own queue
	env      []string // of this process
	UID      int      // whose daemon it is
	JobsDir  string   // the directory of the jobs' directories
	Users    *site.Users
	queue    *queue.Queue // once it is open
	environs environs
	wanted   chan int // uids needed and not looked up recently

	mu     sync.Mutex
	limits map[int]loginLimits
}

// Successor says that a uid has passed from one user to another, who must not
// inherit what the first one left behind: tokens, and jobs that have not started.
func Successor(uid int, was, is string) error {
	return fmt.Errorf("uid %d was user %s and is now user %s", uid, was, is)
}

// Home is a user's home directory as last known.
func (p *People) Home(uid int) string {
	if user, ok := p.Users.Cached(uid, known); ok {
		return user.Home
	}
	if !p.places.Shared {
		return job.Getenv(p.env, "HOME")
	}
	return ""
}

// New knows nobody yet. own means the queue of a berth run, and jobsDir has the
// directories of jobs.
func New(places site.Places, own bool, env []string, jobsDir string) *People {
	return &People{places: places, own: own, env: env, UID: os.Getuid(), JobsDir: jobsDir, Users: site.NewUsers(FreshFor), wanted: make(chan int, 64)}
}

// Opened takes the queue whose jobs are to run.
func (p *People) Opened(q *queue.Queue) { p.queue = q }

// KeepKnown looks up the users of live jobs before the engine has to ask,
// and again when the files of local users have changed.
func (p *People) KeepKnown(ctx context.Context, do func(context.Context, func(*engine.Turn)) error) {
	ticker := time.NewTicker(changesEvery)
	defer ticker.Stop()
	as, at := p.Users.Edition(), time.Now()
	for {
		var uids []int
		select {
		case <-ctx.Done():
			return
		case uid := <-p.wanted:
			uids = []int{uid}
		case <-ticker.C:
			now := p.Users.Edition()
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
		p.LookUp(ctx, uids)
	}
}

// LookUp looks up users, several at a time, with a deadline each.
func (p *People) LookUp(ctx context.Context, uids []int) {
	var group sync.WaitGroup
	turn := make(chan struct{}, 4)
	for _, uid := range uids {
		turn <- struct{}{}
		group.Go(func() {
			defer func() { <-turn }()
			bounded, cancel := context.WithTimeout(ctx, LookupTime)
			defer cancel()
			if _, err := p.Users.ByUID(bounded, uid); err != nil {
				p.queue.Log.Warn("look up user", "uid", uid, "err", err)
			}
		})
	}
	group.Wait()
}

// Name is a user's name as last known, or else the number.
func (p *People) Name(uid int) string {
	if user, ok := p.Users.Cached(uid, known); ok {
		return user.Name
	}
	return fmt.Sprint(uid)
}

// Want looks a user up in the background, so that the next request has the name.
func (p *People) Want(uid int) {
	if _, ok := p.Users.Cached(uid, known); !ok {
		p.want(uid)
	}
}

func (p *People) want(uid int) {
	select {
	case p.wanted <- uid:
	default: // very many are, and this one is asked for again
	}
}

// ListenerOwner says whose process listens on an address.
func (p *People) ListenerOwner(address string) string {
	uid, found := site.ListenerOwner(address)
	if !found {
		return "by an unknown process"
	}
	bounded, cancel := context.WithTimeout(context.Background(), ownerTime)
	defer cancel()
	user, err := p.Users.ByUID(bounded, uid)
	if err != nil {
		return fmt.Sprintf("by a process of uid %d", uid)
	}
	return fmt.Sprintf("by a process of user %s (uid %d)", user.Name, uid)
}

// ownerTime bounds the look-up of the user who has the port.
const ownerTime = 2 * time.Second
