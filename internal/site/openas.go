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

// OpenWord is the hidden command under which berth opens a file as another
// user; main calls OpenMain for it.
const OpenWord = "__open"

// HoldWord is the hidden command under which berth keeps a scope alive; main
// calls Hold for it.
const HoldWord = "__hold"

// openTime bounds opening a file, which may be on a server that does not
// answer.
const openTime = 10 * time.Second

// maxPath is the kernel's limit on the length of a path.
const maxPath = 4096

// OpenAs opens a regular file for reading with the permissions of a user, in a
// process that runs as that user: root never touches a path that a user
// controls. A symbolic link as the last element is refused.
//
// The user may trace that process and make it answer anything. So the path is
// sent in a message, not in the arguments, which everybody can read, and the
// answer gives the user nothing they could not open themselves.
func OpenAs(ctx context.Context, u User, path string) (*os.File, error) {
	if len(path) > maxPath {
		return nil, &fs.PathError{Op: "open", Path: path[:40] + "…", Err: syscall.ENAMETOOLONG}
	}
	ctx, cancel := context.WithTimeout(ctx, openTime)
	defer cancel()
	conn, theirs, err := openerPair()
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	defer theirs.Close()
	cmd := exec.CommandContext(ctx, "/proc/self/exe", OpenWord)
	cmd.Dir, cmd.Env, cmd.ExtraFiles = "/", []string{}, []*os.File{theirs}
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: credential(u)}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("open %s as %s: %w", path, u.Name, err)
	}
	theirs.Close()
	// Another process may still hold its end of the socket when it is gone.
	defer context.AfterFunc(ctx, func() { conn.SetDeadline(time.Unix(0, 0)) })() //nolint:errcheck // fails only once conn is closed
	file, receiveErr := ask(conn, path)
	if err := cmd.Wait(); err != nil && receiveErr == nil && file == nil {
		receiveErr = err
	}
	return file, receiveErr
}

// openerPair is a pair of connected sockets.
func openerPair() (ours *net.UnixConn, theirs *os.File, err error) {
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, nil, os.NewSyscallError("socketpair", err)
	}
	theirs = os.NewFile(uintptr(pair[1]), "opener")
	file := os.NewFile(uintptr(pair[0]), "opened")
	defer file.Close()
	conn, err := net.FileConn(file)
	if err != nil {
		theirs.Close()
		return nil, nil, err
	}
	return conn.(*net.UnixConn), theirs, nil
}

func credential(u User) *syscall.Credential {
	groups := make([]uint32, len(u.Groups))
	for i, gid := range u.Groups {
		groups[i] = uint32(gid)
	}
	return &syscall.Credential{Uid: uint32(u.UID), Gid: uint32(u.GID), Groups: groups}
}

// ask receives the file, or the errno of opening it.
func ask(conn *net.UnixConn, path string) (*os.File, error) {
	if _, err := conn.Write([]byte(path)); err != nil {
		return nil, fmt.Errorf("open %s: %w", path, err)
	}
	said, oob := make([]byte, 16), make([]byte, unix.CmsgSpace(4))
	n, rights, _, _, err := conn.ReadMsgUnix(said, oob)
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", path, err)
	}
	files := received(oob[:rights], path)
	if n == 0 && len(files) == 0 {
		return nil, fmt.Errorf("open %s: %w", path, io.ErrUnexpectedEOF)
	}
	if number, err := strconv.Atoi(string(said[:n])); err == nil && number == 0 && len(files) == 1 && isRegular(files[0]) {
		return files[0], nil
	} else if err == nil && number > 0 {
		err = syscall.Errno(number)
		closeAll(files)
		return nil, &fs.PathError{Op: "open", Path: path, Err: err}
	}
	closeAll(files)
	return nil, fmt.Errorf("open %s: no file was returned", path)
}

// received are the descriptors in a message, however many its sender put in.
func received(oob []byte, path string) (files []*os.File) {
	messages, err := unix.ParseSocketControlMessage(oob)
	if err != nil {
		return nil
	}
	for i := range messages {
		fds, err := unix.ParseUnixRights(&messages[i])
		if err != nil {
			continue
		}
		for _, fd := range fds {
			unix.CloseOnExec(fd)
			files = append(files, os.NewFile(uintptr(fd), path))
		}
	}
	return files
}

func isRegular(file *os.File) bool {
	info, err := file.Stat()
	return err == nil && info.Mode().IsRegular()
}

func closeAll(files []*os.File) {
	for _, file := range files {
		file.Close()
	}
}

// OpenMain is the process that opens the file; it already runs as the user.
func OpenMain(args []string) int {
	const fdOut = 3
	path := make([]byte, maxPath+1)
	n, err := unix.Read(fdOut, path)
	if len(args) != 0 || err != nil || !filepath.IsAbs(string(path[:n])) {
		return 2
	}
	fd, err := openRegular(string(path[:n]))
	if err != nil {
		number := syscall.EIO
		errors.As(err, &number)
		_ = unix.Sendmsg(fdOut, []byte(strconv.Itoa(int(number))), nil, nil, 0) // berth is gone if this fails
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
