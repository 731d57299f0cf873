// Package machine is the folder of what berth does on one machine: it reads the
// GPUs (gpu), starts and finds supervisors (run), is the supervisor itself (keep),
// copies code (snapshot), and knows users and places (site).
//
// Nothing here decides which job runs. Start with keep, the contract that lets a
// job outlive berth; then run, its other end.
package machine
