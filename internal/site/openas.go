package site

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// OpenWord is the hidden command under which berth opens a file for itself as
// somebody else. Its main calls OpenMain.
const OpenWord = "__open"

// HoldWord is the hidden command under which berth keeps a scope. Its main
// calls Hold.
const HoldWord = "__hold"

// openTime bounds how long opening may take: the file may be on a server that
// does not answer.
const openTime = 10 * time.Second

// OpenAs opens a regular file for reading with the rights of a user, through a
// process that has become that user: root itself never touches a path that a
// user could bend. A symbolic link in the last place is refused.
func OpenAs(ctx context.Context, u User, path string) (*os.File, error) {
	ctx, cancel := context.WithTimeout(ctx, openTime)
	defer cancel()
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, os.NewSyscallError("socketpair", err)
	}
	theirs := os.NewFile(uintptr(pair[1]), "opener")
	defer theirs.Close()
	ours := os.NewFile(uintptr(pair[0]), "opened")
	conn, err := net.FileConn(ours)
	ours.Close()
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	cmd := exec.CommandContext(ctx, "/proc/self/exe", OpenWord, path)
	cmd.Dir, cmd.Env, cmd.ExtraFiles = "/", []string{}, []*os.File{theirs}
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: credential(u)}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("open %s as %s: %w", path, u.Name, err)
	}
	theirs.Close()
	if deadline, ok := ctx.Deadline(); ok {
		_ = conn.SetReadDeadline(deadline) // one that cannot be set leaves the process's own end
	}
	file, receiveErr := receive(conn.(*net.UnixConn), path)
	if err := cmd.Wait(); err != nil && receiveErr == nil && file == nil {
		receiveErr = err
	}
	return file, receiveErr
}

func credential(u User) *syscall.Credential {
	groups := make([]uint32, len(u.Groups))
	for i, gid := range u.Groups {
		groups[i] = uint32(gid)
	}
	return &syscall.Credential{Uid: uint32(u.UID), Gid: uint32(u.GID), Groups: groups}
}

// receive takes the file, or the number of the error that opening it gave.
func receive(conn *net.UnixConn, path string) (*os.File, error) {
	said, oob := make([]byte, 16), make([]byte, unix.CmsgSpace(4))
	n, rights, _, _, err := conn.ReadMsgUnix(said, oob)
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", path, err)
	}
	if n == 0 {
		return nil, fmt.Errorf("open %s: %w", path, io.ErrUnexpectedEOF)
	}
	if number, err := strconv.Atoi(string(said[:n])); err == nil && number != 0 {
		return nil, &fs.PathError{Op: "open", Path: path, Err: syscall.Errno(number)}
	}
	messages, err := unix.ParseSocketControlMessage(oob[:rights])
	if err != nil || len(messages) != 1 {
		return nil, fmt.Errorf("open %s: no file came back", path)
	}
	fds, err := unix.ParseUnixRights(&messages[0])
	if err != nil || len(fds) != 1 {
		return nil, fmt.Errorf("open %s: no file came back", path)
	}
	unix.CloseOnExec(fds[0])
	return os.NewFile(uintptr(fds[0]), path), nil
}

// OpenMain is the process that opens: it is the user already.
func OpenMain(args []string) int {
	const fdOut = 3
	if len(args) != 1 || !filepath.IsAbs(args[0]) {
		return 2
	}
	fd, err := openRegular(args[0])
	if err != nil {
		number := syscall.EIO
		errors.As(err, &number)
		_ = unix.Sendmsg(fdOut, []byte(strconv.Itoa(int(number))), nil, nil, 0) // nobody is left to tell
		return 1
	}
	if err := unix.Sendmsg(fdOut, []byte("0"), unix.UnixRights(fd), nil, 0); err != nil {
		return 1
	}
	return 0
}

func openRegular(path string) (int, error) {
	fd, err := syscall.Open(path, syscall.O_RDONLY|syscall.O_CLOEXEC|syscall.O_NOFOLLOW|syscall.O_NONBLOCK|syscall.O_NOCTTY, 0)
	if err != nil {
		return -1, err
	}
	var stat syscall.Stat_t
	if err := syscall.Fstat(fd, &stat); err != nil {
		return -1, err
	}
	if stat.Mode&syscall.S_IFMT != syscall.S_IFREG {
		return -1, syscall.EINVAL
	}
	return fd, nil
}
