package site

import "syscall"

// Umask is this process's umask. The only way to read it is to set it; for
// that moment it is stricter than before. Callers must not create files at the
// same time.
func Umask() int {
	umask := syscall.Umask(0o777)
	syscall.Umask(umask)
	return umask
}
