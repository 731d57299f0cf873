// Package render shows jobs, arrays, GPUs and groups as text: the cells of tables,
// sentences and blocks of facts, for every verb and for berth top. It also knows
// what a terminal has room for.
//
// It may not ask a daemon for anything.
//
// Its files are in groups, and each uses only those above it:
//
//	the screen: terminal screen
//	times and blocks of text: time facts
//	what is shown: row job estimate gpu group columns
package render
