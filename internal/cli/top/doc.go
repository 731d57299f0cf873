// Package top is the live view of a queue in a terminal: GPUs, jobs, the selected
// job's story, memory and log, and keys to act on them.
//
// The model, update and draw are pure: a message and a model give the next model
// and its commands, as values. Only Run and Once know a terminal and a client.
// What is shown of names, commands and logs goes through package text.
//
// Its files are in groups, and each uses only those above it:
//
//	the model: log model keys update rows pane view
//	the terminal: run
package top
