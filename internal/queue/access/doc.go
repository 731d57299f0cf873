// Package access is who may call a daemon besides the users whom the kernel names:
// tokens, the one-time logins of browsers and their sessions; and the audit log of who
// did what. It may not know a job, or decide what a caller may do.
//
// Files, in reading order; each uses only those above it (a test holds that):
//
//	callers: tokens logins
//	the audit log: audit account
package access
