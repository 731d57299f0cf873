package ports

import (
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"syscall"

	"golang.org/x/sys/unix"

	"berth/internal/machine/keep"
)

// ID names a listener for as long as nobody else can answer in its
// place. A server with TLS, or at a path that others cannot replace, proves
// itself, so its address is enough. A plain port belongs to whoever binds it
// first, so there the id is that of the socket itself: it stays the same only
// while some process keeps this very socket open.
func ID(l net.Listener, tls bool) string {
	if address := l.Addr(); tls || address.Network() == "unix" {
		return address.Network() + " " + address.String()
	}
	cookie, err := socketCookie(l)
	boot := keep.BootID()
	if err != nil || boot == "" {
		return rand.Text() // no daemon after this one will know it
	}
	return fmt.Sprintf("socket %s %d", boot, cookie)
}

// socketCookie is the kernel's number of a socket, which no other socket gets
// until the machine is started again.
func socketCookie(l net.Listener) (cookie uint64, err error) {
	socket, ok := l.(syscall.Conn)
	if !ok {
		return 0, errors.New("expected a listener with a descriptor")
	}
	raw, err := socket.SyscallConn()
	if err != nil {
		return 0, err
	}
	var asked error
	err = raw.Control(func(fd uintptr) {
		cookie, asked = unix.GetsockoptUint64(int(fd), unix.SOL_SOCKET, unix.SO_COOKIE)
	})
	return cookie, errors.Join(err, asked)
}
