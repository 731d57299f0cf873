// Package launch turns a placed job into its supervisor's order: command,
// environment, log, cards and limits.
//
// It knows no queue and decides nothing: a job that cannot get what it asked for
// is refused, not started with less. Start with Order in order.go.
package launch
