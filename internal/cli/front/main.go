package front

import (
	"os"
	"path/filepath"
	"strconv"
	"syscall"
)

// Version is set when a release is built.
var Version = "0.2.0"

const (
	whole        = "berth-main"
	sentVariable = "BERTH_SENT_REQUEST" // the descriptor of a connection whose reply is to be read
	nothing      = -1
)

// Main runs a command line and returns the exit status, unless the whole program
// takes over.
func Main(args []string) int {
	sent := nothing
	if filepath.Base(args[0]) == "berth" && len(args) > 1 { // not another program's name
		switch {
		case args[1] == "--version" && len(args) == 2:
			if write("berth " + Version + "\n") {
				return 0
			}
		case args[1] == "submit":
			var done bool
			if sent, done = submit(args[2:]); done {
				return 0
			}
		}
	}
	return handOver(args, sent)
}

func write(text string) bool {
	n, err := syscall.Write(1, []byte(text))
	return err == nil && n == len(text)
}

// handOver executes the whole program, with a connection on which the request has
// been sent already.
func handOver(args []string, sent int) int {
	environ := syscall.Environ()
	if sent != nothing {
		_, _, _ = syscall.Syscall(syscall.SYS_FCNTL, uintptr(sent), syscall.F_SETFD, 0) // it is open
		environ = append(environ, sentVariable+"="+strconv.Itoa(sent))
	}
	self, err := os.Executable()
	if err == nil {
		self = filepath.Join(filepath.Dir(self), whole)
		err = syscall.Exec(self, args, environ)
	}
	_, _ = os.Stderr.WriteString("berth: start " + self + ": " + err.Error() + "\nhint: keep " + whole + " beside it; alone, " + whole + " is all of berth\n") // there is nobody else to tell
	return 1
}

// Sent is the connection on which the small program has sent this program's
// request, once.
func Sent() (fd int, is bool) {
	text, is := os.LookupEnv(sentVariable)
	if !is {
		return nothing, false
	}
	_ = os.Unsetenv(sentVariable) // fails only for a name that no variable can have
	fd, err := strconv.Atoi(text)
	if err == nil {
		syscall.CloseOnExec(fd)
	}
	return fd, err == nil
}
