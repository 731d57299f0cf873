package slurm

import (
	"io"
	"os"
	"path/filepath"
	"strconv"

	"golang.org/x/sys/unix"

	"berth/internal/compat/frontend"
)

// hasInput reports whether a command would read something: its input is neither a
// terminal nor /dev/null.
func hasInput(c *frontend.Call) (in *os.File, ok bool) {
	in, ok = c.In.(*os.File)
	if !ok {
		return nil, false
	}
	if _, err := unix.IoctlGetTermios(int(in.Fd()), unix.TCGETS); err == nil {
		return nil, false
	}
	info, err := in.Stat()
	if err != nil {
		return nil, false // it is closed
	}
	null, err := os.Stat(os.DevNull)
	return in, err != nil || !os.SameFile(info, null)
}

// feed makes a named pipe that a job reads its input from, and copies in to it
// once the job has opened it. If srun is gone by then, so is the pipe, and the job
// fails instead of running without its input.
func feed(in io.Reader) (pipe string, done func(), err error) {
	dir, err := os.MkdirTemp("", "berth-srun-")
	if err != nil {
		return "", nil, err
	}
	pipe, done = filepath.Join(dir, "stdin"), func() { _ = os.RemoveAll(dir) } // nobody could do more
	if err := unix.Mkfifo(pipe, 0o600); err != nil {
		done()
		return "", nil, err
	}
	go func() {
		to, err := os.OpenFile(pipe, os.O_WRONLY, 0)
		if err != nil {
			return // removed before the job began
		}
		done()
		_, _ = io.Copy(to, in) // a command may end before its input does
		_ = to.Close()
	}()
	return pipe, done, nil
}

// fed is a command that reads its input from a pipe, which the process writer fills.
// One that was killed leaves the pipe, and the job would wait for it for ever.
func fed(pipe string, writer int, command []string) []string {
	const script = `kill -0 "$1" || { echo "srun was killed, so there is no input" >&2; exit 1; }; shift; exec "$@" <"$0"`
	return append([]string{"/bin/sh", "-c", script, pipe, strconv.Itoa(writer)}, command...)
}
