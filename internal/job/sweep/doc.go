// Package sweep makes the trials of a sweep, and picks their metrics from logs.
//
// A sweep is an array whose tasks have commands of their own: it has one id, one
// row, one limit of tasks at a time, and every verb of an array. Axes (axis.go) are
// the values of its parameters, and their product is its trials. A Maker
// (template.go) puts the values of a trial into the words of its command; in a shell
// line it quotes them as their place needs (quoting.go). The daemon expands what
// `berth sweep` and the API send, and jobfile expands the lines of a jobs file, with
// these same functions. A trial keeps its parameters and its template with its spec,
// so more trials can be added while the sweep runs. Metrics (metric.go) are picked
// here alone, line by line, with bounds on everything that a log or a user chooses.
//
// It is pure: it opens no file, and knows no clock and no job that runs.
package sweep
