// Package site knows this machine and berth's place on it: its users as the
// user database lists them, their limits at login, the CPUs and memory of the
// host, berth's directories and log, the service manager's protocol, and the
// checks of `berth doctor`.
//
// It may not know a job, a card or a configuration, decide what a user may do,
// or invent an answer: if the user database does not answer, that is an error
// and never "no such user".
//
// Its files are in groups, and each uses only those above it:
//
//	the host: machine command cgroup host network network_berthfault umask
//	users and their limits: sources nss passwd remember users trust limits limitsconf limitsession
//	berth's places: places log runs portowner
//	the service manager: systemd service logout scope porthold
//	berth doctor: doctor doctor_cards doctor_disk doctor_gpu doctor_helper doctor_kernel doctor_users
package site
