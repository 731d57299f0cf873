package site

import "syscall"

// Umask is this process's. It can be read only by setting it; for that moment
// nobody gets more than before. It is for programs that make no files at the
// same time.
func Umask() int {
	umask := syscall.Umask(0o777)
	syscall.Umask(umask)
	return umask
}
