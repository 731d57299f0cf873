package site

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"slices"
	"strconv"
	"sync"
	"syscall"
	"time"
)

const (
	// defaultUserTTL is how long an answer of the user database stays valid.
	defaultUserTTL = time.Minute
	// maxUsers bounds the cache; the oldest entries go first.
	maxUsers = 4096
	// lookupDeadline bounds one lookup, which runs several programs.
	lookupDeadline = 20 * time.Second
)

// Users is the user database with a cache. It is safe for concurrent use, and
// concurrent lookups of one user share one query.
type Users struct {
	machine machine
	ttl     time.Duration
	now     func() time.Time

	mu      sync.Mutex
	byUID   map[int]User
	uids    map[string]int // by name as looked up
	groups  map[string]groupAnswer
	pending map[string]*lookup
}

type groupAnswer struct {
	gid   int
	known bool
	at    time.Time
}

// lookup is one query in progress.
type lookup struct {
	done  chan struct{}
	as    Edition // of the files when it began
	user  User
	group groupAnswer
	err   error
}

// NewUsers caches this machine's user database. An answer stays valid for ttl;
// 0 means defaultUserTTL.
func NewUsers(ttl time.Duration) *Users { return newUsers(here(), ttl, time.Now) }

func newUsers(m machine, ttl time.Duration, now func() time.Time) *Users {
	ttl = cmp.Or(ttl, defaultUserTTL)
	return &Users{
		machine: m, ttl: ttl, now: now,
		byUID: make(map[int]User), uids: make(map[string]int), groups: make(map[string]groupAnswer), pending: make(map[string]*lookup),
	}
}

// ByUID is the user with this id, from the cache if it is recent enough and the
// files of local users have not changed.
func (u *Users) ByUID(ctx context.Context, uid int) (User, error) {
	return u.Within(ctx, uid, u.ttl)
}

// Within is ByUID with an answer that is at most maxAge old.
func (u *Users) Within(ctx context.Context, uid int, maxAge time.Duration) (User, error) {
	known := func(l *lookup) (ok bool) {
		l.user, ok = u.current(uid, maxAge)
		return ok
	}
	l := u.join("uid:"+strconv.Itoa(uid), known, func(ctx context.Context, l *lookup) {
		l.user, l.err = u.machine.byUID(ctx, uid)
	})
	if err := l.wait(ctx); err != nil {
		return User{}, err
	}
	return l.user.clone(), nil
}

// KnowSelf notes the user of this process without asking a program: the local file
// has most users, and the kernel knows the groups. It returns false for one that it
// does not have.
func (u *Users) KnowSelf() bool {
	uid := strconv.Itoa(os.Getuid())
	l := &lookup{as: u.Edition()}
	if l.user, l.err = u.machine.passwdFile(uid); l.err == nil && l.user.UID == os.Getuid() {
		l.user.Groups, l.err = os.Getgroups()
	}
	if l.err != nil || l.user.UID != os.Getuid() {
		return false
	}
	l.user.Groups = append(l.user.Groups, l.user.GID)
	slices.Sort(l.user.Groups)
	l.user.Groups = slices.Compact(l.user.Groups)
	u.keep("uid:"+uid, l)
	return true
}

// ByName is the user with this name.
func (u *Users) ByName(ctx context.Context, name string) (User, error) {
	known := func(l *lookup) (ok bool) {
		if uid, named := u.uids[name]; named {
			l.user, ok = u.current(uid, u.ttl)
		}
		return ok
	}
	l := u.join("name:"+name, known, func(ctx context.Context, l *lookup) {
		l.user, l.err = u.machine.byName(ctx, name)
	})
	if err := l.wait(ctx); err != nil {
		return User{}, err
	}
	return l.user.clone(), nil
}

// Cached is the entry of a user that is at most maxAge old. It never queries
// and never waits.
func (u *Users) Cached(uid int, maxAge time.Duration) (User, bool) {
	u.mu.Lock()
	defer u.mu.Unlock()
	user, ok := u.recent(uid, maxAge)
	return user.clone(), ok
}

// current is recent, unless the files of local users have changed since: a uid
// may have passed to another user, or a user left a group.
func (u *Users) current(uid int, maxAge time.Duration) (User, bool) {
	user, ok := u.recent(uid, maxAge)
	if !ok || user.as != u.Edition() {
		return User{}, false
	}
	return user, true
}

// recent is Cached with the mutex held.
func (u *Users) recent(uid int, maxAge time.Duration) (User, bool) {
	user, ok := u.byUID[uid]
	if !ok || u.now().Sub(user.At) > maxAge {
		return User{}, false
	}
	return user, true
}

// InGroup reports whether a user was in a group at the last lookup. A group
// that does not exist has no members.
func (u *Users) InGroup(user User, group string) (bool, error) {
	gid, known, err := u.groupNumber(context.Background(), group)
	if err != nil || !known {
		return false, err
	}
	return gid == user.GID || slices.Contains(user.Groups, gid), nil
}

func (u *Users) groupNumber(ctx context.Context, name string) (gid int, known bool, err error) {
	remembered := func(l *lookup) (ok bool) {
		l.group, ok = u.groups[name]
		return ok && u.now().Sub(l.group.at) <= u.ttl
	}
	l := u.join("group:"+name, remembered, func(ctx context.Context, l *lookup) {
		l.group.gid, l.group.known, l.err = u.machine.groupNumber(ctx, name)
	})
	if err := l.wait(ctx); err != nil {
		return 0, false, err
	}
	return l.group.gid, l.group.known, nil
}

// Edition identifies the content of the files of local users. It changes with
// every useradd, userdel and usermod.
type Edition [2]struct {
	inode   uint64
	changed int64
}

// Edition is that of the files now.
func (u *Users) Edition() (e Edition) {
	for i, name := range []string{"/etc/passwd", "/etc/group"} {
		info, err := os.Stat(u.machine.path(name))
		if err != nil {
			continue // there may be none, and other sources of users
		}
		e[i].changed = info.ModTime().UnixNano()
		if stat, ok := info.Sys().(*syscall.Stat_t); ok {
			e[i].inode = stat.Ino
		}
	}
	return e
}

// join answers from the cache, joins the query in progress, or starts one, all
// under one lock, so that a query that has just ended is not repeated. A query
// continues when its first caller gives up: others may wait for it.
func (u *Users) join(key string, known func(*lookup) bool, ask func(context.Context, *lookup)) *lookup {
	u.mu.Lock()
	defer u.mu.Unlock()
	l := &lookup{done: make(chan struct{})}
	if known(l) {
		close(l.done)
		return l
	}
	if under := u.pending[key]; under != nil {
		return under
	}
	l.user, l.group, l.as = User{}, groupAnswer{}, u.Edition()
	u.pending[key] = l
	go func() {
		ctx, cancel := context.WithTimeout(context.Background(), lookupDeadline)
		defer cancel()
		ask(ctx, l)
		u.keep(key, l)
		close(l.done)
	}()
	return l
}

func (l *lookup) wait(ctx context.Context) error {
	select {
	case <-l.done: // an answer that is there is returned even if ctx has ended
		return l.err
	default:
	}
	select {
	case <-l.done:
		return l.err
	case <-ctx.Done():
		return fmt.Errorf("query the user database: %w", context.Cause(ctx))
	}
}

func (u User) clone() User {
	u.Groups = slices.Clone(u.Groups)
	return u
}
