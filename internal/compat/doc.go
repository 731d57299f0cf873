// Package compat is the folder of other schedulers' interfaces: berth called by
// their names, with their flags, files and words. frontend has what they share.
//
// Nothing outside this folder needs them. They schedule nothing: each is a client
// of a queue. docs/reference/compatibility.md lists what they promise.
package compat
