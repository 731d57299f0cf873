// Package config is the configuration of a daemon: its values and defaults, and the
// file that it is read from. It may not ask a daemon, its queue or its callers for
// anything.
//
// Files, in reading order; each uses only those above it (a test holds that):
//
//	what it is: listen values limits config bounds
//	the file: keys slurm
//	read and judged: check file
package config
