// Package cli is the command line: one file per verb, flags into options,
// outcomes into exit statuses. It schedules nothing and touches no store.
//
// Below it, top is the live view and manual the renderer of the pages. Start with
// root.go, then any verb: submit.go, list.go.
package cli
