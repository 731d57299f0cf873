package keep

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"syscall"
)

// A job that is not simply the supervisor's child begins in a stage: the
// supervisor's own program, executed again, which receives the order through a
// socket, changes user and limits, and is replaced by the job's command. This
// file is the supervisor's side of it.

// stageWord, as the last argument, makes the program a stage.
const stageWord = "__begin"

// The messages of a stage. The end of the stream after stageReady means that
// the command has begun: the exec closes the socket.
const (
	stageReady  FrameKind = 'R' // log_from, log_regular, note, and the log's descriptor
	stageFailed FrameKind = 'F' // why
	stageJoin             = "join"
)

// stage is the supervisor's end of the socket.
type stage struct {
	file *os.File
	fds  []int // received, oldest first
}

// report is the outcome of a stage.
type report struct {
	log  *logFile
	note string
	err  error // why nothing began
}

var errStageDied = errors.New("the process was killed before its command began")

func newStage() (s *stage, theirs int, err error) {
	pair, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, -1, fmt.Errorf("create socket pair: %w", err)
	}
	syscall.SetNonblock(pair[0], true)
	return &stage{file: os.NewFile(uintptr(pair[0]), "stage")}, pair[1], nil
}

// selfArgv executes this program again for that word, whatever word makes it a
// supervisor.
func selfArgv(word string) []string {
	last := len(os.Args) - 1
	return append(os.Args[:last:last], word)
}

// give sends the order and passes on the outcome. Nothing waits for it: the
// user's directory may be on a file system that does not answer.
func (s *stage) give(order []byte, to chan<- report) {
	defer s.file.Close()
	_, _ = s.file.Write(order) // if the stage is gone, the read below notices
	to <- s.hear()
}

// refusal gives a helper's order, and returns why it was not carried out; "": its
// command has begun.
func (s *stage) refusal(order []byte) string {
	defer s.file.Close()
	_, _ = s.file.Write(order)
	frame, err := ReadFrame(s)
	if err != nil {
		return ""
	}
	return frame.Get("why")
}

func (s *stage) hear() report {
	r := report{err: errStageDied}
	for {
		frame, err := ReadFrame(s)
		if err != nil {
			break
		}
		switch frame.Kind {
		case stageReady:
			r.note, r.err = frame.Get("note"), nil
			if len(s.fds) == 0 {
				continue
			}
			from, _ := strconv.ParseInt(frame.Get("log_from"), 10, 64)
			r.log = &logFile{fd: s.fds[0], from: from, regular: frame.Get("log_regular") == "true"}
			s.fds = s.fds[1:]
		case stageFailed:
			r.err = errors.New(frame.Get("why"))
		}
	}
	for _, fd := range s.fds {
		syscall.Close(fd)
	}
	if r.err == nil && r.log == nil {
		r.err = errStageDied
	}
	if r.err != nil && r.log != nil {
		r.log.close()
		r.log = nil
	}
	return r
}

// Read reads what the stage writes and keeps the descriptors that come with
// it.
func (s *stage) Read(p []byte) (n int, err error) {
	raw, err := s.file.SyscallConn()
	if err != nil {
		return 0, err
	}
	control := make([]byte, syscall.CmsgSpace(4))
	var controlled int
	var readErr error
	err = raw.Read(func(fd uintptr) bool {
		n, controlled, _, _, readErr = syscall.Recvmsg(int(fd), p, control, syscall.MSG_CMSG_CLOEXEC)
		return readErr != syscall.EAGAIN
	})
	if err == nil {
		err = readErr
	}
	if err != nil {
		return 0, err
	}
	if n == 0 {
		return 0, io.EOF
	}
	messages, err := syscall.ParseSocketControlMessage(control[:controlled])
	if err != nil {
		return n, err
	}
	for i := range messages {
		if fds, err := syscall.ParseUnixRights(&messages[i]); err == nil {
			s.fds = append(s.fds, fds...)
		}
	}
	return n, nil
}
