package fair

import "slices"

// lines is a line of waiting items for each user. The users take turns; the items
// of one user keep their order.
type lines[T comparable] struct {
	of    map[int][]T // none empty
	users []int       // whose line is not empty, the next one first
}

func (l *lines[T]) add(user int, item T) {
	if l.of == nil {
		l.of = map[int][]T{}
	}
	if len(l.of[user]) == 0 {
		l.users = append(l.users, user)
	}
	l.of[user] = append(l.of[user], item)
}

// addAgain puts an item in front of the others of its user, and the user behind the
// other users.
func (l *lines[T]) addAgain(user int, item T) {
	others := l.of[user]
	l.users = slices.DeleteFunc(l.users, func(u int) bool { return u == user })
	delete(l.of, user)
	l.add(user, item)
	l.of[user] = append(l.of[user], others...)
}

// next takes the first item of the first user whom may allows, and puts the user
// behind the others.
func (l *lines[T]) next(may func(user int) bool) (item T, ok bool) {
	at := slices.IndexFunc(l.users, may)
	if at < 0 {
		return item, false
	}
	user := l.users[at]
	item = l.of[user][0]
	l.users = slices.Delete(l.users, at, at+1)
	if l.of[user] = l.of[user][1:]; len(l.of[user]) == 0 {
		delete(l.of, user)
	} else {
		l.users = append(l.users, user)
	}
	return item, true
}

// remove takes an item out wherever it is, and reports whether it was there.
func (l *lines[T]) remove(user int, item T) bool {
	at := slices.Index(l.of[user], item)
	if at < 0 {
		return false
	}
	if l.of[user] = slices.Delete(l.of[user], at, at+1); len(l.of[user]) == 0 {
		delete(l.of, user)
		l.users = slices.DeleteFunc(l.users, func(u int) bool { return u == user })
	}
	return true
}

func (l *lines[T]) empty() bool { return len(l.users) == 0 }

func (l *lines[T]) length() int {
	n := 0
	for _, line := range l.of {
		n += len(line)
	}
	return n
}
