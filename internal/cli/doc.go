// Package cli is the command line: one file per verb, flags into options,
// outcomes into exit statuses. It schedules nothing and touches no store.
package cli
