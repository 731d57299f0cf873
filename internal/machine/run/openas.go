package run

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"berth/internal/machine/keep"
)

// openTime bounds opening a file, which may be on a server that does not answer.
const openTime = 10 * time.Second

// maxPath is the kernel's limit on the length of a path.
const maxPath = 4096

// OpenAs opens a regular file for reading with the permissions of a user, in a
// process that has become that user: root never touches a path that a user
// controls. A symbolic link as the last element is refused.
func (d *Doors) OpenAs(ctx context.Context, as *keep.Credential, path string) (*os.File, error) {
	if len(path) > maxPath {
		return nil, &fs.PathError{Op: "open", Path: path[:40] + "…", Err: syscall.ENAMETOOLONG}
	}
	ctx, cancel := context.WithTimeout(ctx, openTime)
	defer cancel()
	cmd := d.door()
	conn, err := d.enter(cmd, keep.OpenFrame(as, path))
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", path, err)
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { conn.SetDeadline(time.Unix(0, 0)) })() //nolint:errcheck // fails only once conn is closed
	file, err := receiveFile(conn, path)
	// It has no child, so it is simply killed. A file server may keep it for longer.
	_ = cmd.Process.Kill()
	go func() { _ = cmd.Wait() }()
	return file, err
}

// receiveFile receives the file, or why it was not opened.
func receiveFile(conn *net.UnixConn, path string) (*os.File, error) {
	said, oob := make([]byte, 4096), make([]byte, unix.CmsgSpace(4))
	n, rights, _, _, err := conn.ReadMsgUnix(said, oob)
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", path, err)
	}
	files := received(oob[:rights], path)
	frame, err := keep.ReadFrame(bytes.NewReader(said[:n]))
	if err == nil && frame.Get("why") != "" {
		err = errors.New(frame.Get("why"))
	}
	number, _ := strconv.Atoi(frame.Get("errno"))
	switch {
	case err == nil && frame.Kind == keep.FrameOpened && len(frame.Fields) == 0 && len(files) == 1 && isRegular(files[0]):
		return files[0], nil
	case err == nil && number > 0:
		err = &fs.PathError{Op: "open", Path: path, Err: syscall.Errno(number)}
	case err == nil:
		err = fmt.Errorf("open %s: no file was returned", path)
	default:
		err = fmt.Errorf("open %s: %w", path, err)
	}
	for _, file := range files {
		file.Close()
	}
	return nil, err
}

// received are the descriptors in a message.
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
