// Package judge decides what the end of an attempt means: whether the job ends,
// and how, or goes back to the queue, and why. It believes what the supervisor
// recorded.
//
// It knows no queue and no card, and changes nothing: a ruling is a value.
// Start with Attempt in judge.go.
package judge
