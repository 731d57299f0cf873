// Package fair lets users take turns, so that one user's requests wait behind that
// user's own, and not in front of everybody else's. A context says whose request it
// is. It knows users by number, and nothing about what they ask for.
package fair

import "context"

type userKey struct{}

// nobody is the user of requests that no user made.
const nobody = -1

// As is a context for the requests of a user.
func As(ctx context.Context, uid int) context.Context {
	return context.WithValue(ctx, userKey{}, uid)
}

// userOf is whose request it is.
func userOf(ctx context.Context) int {
	if uid, known := ctx.Value(userKey{}).(int); known {
		return uid
	}
	return nobody
}
