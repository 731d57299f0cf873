package site

import (
	"errors"
	"strconv"
	"strings"
)

// keep caches an answer. If the database did not answer, the cache stays as it
// is; if the user no longer exists, it is dropped.
func (u *Users) keep(key string, l *lookup) {
	u.mu.Lock()
	defer u.mu.Unlock()
	delete(u.pending, key)
	kind, name, _ := strings.Cut(key, ":")
	switch {
	case errors.Is(l.err, ErrUnknownUser):
		u.drop(kind, name)
	case l.err != nil:
	case kind == "group":
		l.group.at = u.now()
		if len(u.groups) >= maxUsers {
			clear(u.groups) // far more than real use; they are looked up again
		}
		u.groups[name] = l.group
	default:
		l.user.At, l.user.as = u.now(), l.as
		u.makeRoom(l.user.UID)
		u.byUID[l.user.UID] = l.user
		u.uids[l.user.Name] = l.user.UID
		if kind == "name" {
			u.uids[name] = l.user.UID
		}
	}
}

// drop forgets a user who has been removed from the database.
func (u *Users) drop(kind, name string) {
	uid, known := u.uids[name]
	if kind == "uid" {
		var err error
		uid, err = strconv.Atoi(name)
		known = err == nil
	}
	if known {
		u.forget(uid)
	}
}

func (u *Users) forget(uid int) {
	delete(u.byUID, uid)
	for name, id := range u.uids {
		if id == uid {
			delete(u.uids, name)
		}
	}
}

// makeRoom keeps the cache within its bound.
func (u *Users) makeRoom(uid int) {
	if _, known := u.byUID[uid]; known {
		return
	}
	for len(u.byUID) >= maxUsers {
		oldest := -1
		for id, user := range u.byUID {
			if oldest < 0 || user.At.Before(u.byUID[oldest].At) {
				oldest = id
			}
		}
		u.forget(oldest)
	}
	// There may be more names than users: some services ignore case.
	if len(u.uids) >= 4*maxUsers {
		clear(u.uids)
	}
}
