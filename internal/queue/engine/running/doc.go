// Package running is the running and parked jobs, their supervisors, and the
// orders to send once they are on disk. It watches what jobs use, parks and
// preempts them, and keeps them within their limits.
//
// It knows the cards that jobs hold, and no queue. It decides about no end: that is
// judge's. Start with set.go.
package running
