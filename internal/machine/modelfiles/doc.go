// Package modelfiles finds the files of a model on this machine, and opens them with
// the rights of the user who asks. It opens regular files only, reads no more
// than their headers, and may not run in a daemon for other users.
package modelfiles
