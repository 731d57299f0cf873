package keep

import (
	"bufio"
	"errors"
	"os"
	"syscall"
	"time"
)

// writeTimeout bounds how long a berth that does not read can block its
// supervisor. It is then disconnected, and may come back.
const writeTimeout = 5 * time.Second

// introduction is how long a new connection may take to send its first frame.
// A berth of the first protocol sends nothing before the greeting.
const introduction = 250 * time.Millisecond

// conn is a connection to a berth, or to a client attached to a terminal.
type conn struct {
	file   *os.File
	reader *bufio.Reader
}

// incoming is a frame from a connection, or its end.
type incoming struct {
	from  *conn
	frame Frame
	err   error
}

func newConn(fd int) *conn {
	syscall.SetNonblock(fd, true)
	file := os.NewFile(uintptr(fd), "controller")
	return &conn{file, bufio.NewReaderSize(file, 4096)}
}

// visit is a connection to a job's terminal.
type visit struct {
	conn  *conn
	first Frame
}

// introduce finds out what has connected.
func (c *conn) introduce(berths chan<- *conn, visits chan<- visit) {
	_ = c.file.SetReadDeadline(time.Now().Add(introduction))
	if _, err := c.reader.Peek(1); err != nil {
		if !errors.Is(err, os.ErrDeadlineExceeded) {
			c.close()
			return
		}
		_ = c.file.SetReadDeadline(time.Time{})
		berths <- c
		return
	}
	_ = c.file.SetReadDeadline(time.Now().Add(writeTimeout))
	first, err := ReadFrame(c.reader)
	_ = c.file.SetReadDeadline(time.Time{})
	switch {
	case err != nil:
		c.close()
	case first.Kind == FrameAttach:
		visits <- visit{c, first}
	default:
		berths <- c // its first frame says nothing more
	}
}

// read passes frames on until the connection ends.
func (c *conn) read(to chan<- incoming) {
	for {
		frame, err := ReadFrame(c.reader)
		to <- incoming{c, frame, err}
		if err != nil {
			return
		}
	}
}

// send writes a frame, if there is a connection. On error it is shut, and its
// reader reports that.
func (c *conn) send(f Frame) {
	if c == nil {
		return
	}
	bytes, err := f.Encode()
	if err != nil {
		panic("bug: " + err.Error())
	}
	if !c.put(bytes) {
		c.shut(syscall.SHUT_RDWR)
	}
}

// put writes bytes and reports success.
func (c *conn) put(bytes []byte) bool {
	c.file.SetWriteDeadline(time.Now().Add(writeTimeout))
	_, err := c.file.Write(bytes)
	return err == nil
}

// drain makes the reader deliver what has arrived, then the end.
func (c *conn) drain() { c.shut(syscall.SHUT_RD) }

func (c *conn) shut(how int) {
	raw, err := c.file.SyscallConn()
	if err == nil {
		_ = raw.Control(func(fd uintptr) { _ = syscall.Shutdown(int(fd), how) })
	}
}

func (c *conn) close() { c.file.Close() }

// listen accepts connections from this user and from root, for ever.
func listen(berths chan<- *conn, visits chan<- visit) error {
	syscall.SetNonblock(fdListener, true)
	file := os.NewFile(fdListener, "listener")
	raw, err := file.SyscallConn()
	if err != nil {
		return err
	}
	go func() {
		defer file.Close()
		for {
			fd, acceptErr := -1, error(nil)
			err := raw.Read(func(listener uintptr) bool {
				fd, _, acceptErr = syscall.Accept4(int(listener), syscall.SOCK_CLOEXEC)
				return !errors.Is(acceptErr, syscall.EAGAIN)
			})
			switch {
			case err != nil:
				return
			case acceptErr != nil:
				time.Sleep(100 * time.Millisecond) // do not spin, for example when out of descriptors
			case !trusted(fd):
				syscall.Close(fd)
			default:
				go newConn(fd).introduce(berths, visits)
			}
		}
	}()
	return nil
}

// trusted asks the kernel for the user at the other end.
func trusted(fd int) bool {
	peer, err := syscall.GetsockoptUcred(fd, syscall.SOL_SOCKET, syscall.SO_PEERCRED)
	return err == nil && (peer.Uid == 0 || int(peer.Uid) == os.Geteuid())
}
