// Package keep is the supervisor of one job at a time, and the contract
// between it and berth: the order that starts a job, the frames on the socket,
// the record on disk, and what identifies a process although pids are reused.
//
// A supervisor outlives the berth that started it, so this package may not
// import anything but the standard library, may not read a configuration, an
// environment variable or the network, and may not decide what a job's end
// means: it records what it saw.
package keep
