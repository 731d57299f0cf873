package api

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"sync"
	"sync/atomic"
)

// DialSent is Dial with a connection on which the first request has been sent
// already, by the program that this one replaced. The daemon closes it after its reply.
func DialSent(socket string, fd int) *Client {
	client := Dial(socket)
	transport := client.http.Transport.(*http.Transport)
	again, taken := transport.DialContext, atomic.Bool{}
	transport.DialContext = func(ctx context.Context, network, address string) (net.Conn, error) {
		if !taken.CompareAndSwap(false, true) {
			return again(ctx, network, address)
		}
		file := os.NewFile(uintptr(fd), socket)
		defer file.Close() // the connection has a descriptor of its own
		conn, err := net.FileConn(file)
		if err != nil {
			return nil, fmt.Errorf("talk to the daemon at %s: %w", socket, err)
		}
		if peer, err := peerOf(conn); err == nil {
			client.peer.Store(int64(peer.PID))
		}
		return &sentConn{Conn: conn, asked: make(chan struct{})}, nil
	}
	return client
}

// sentConn does not send the request a second time. Its reply must not come before
// net/http believes that it has asked.
type sentConn struct {
	net.Conn
	once  sync.Once
	asked chan struct{}
}

func (c *sentConn) Write(request []byte) (int, error) {
	c.once.Do(func() { close(c.asked) })
	return len(request), nil
}

func (c *sentConn) Read(p []byte) (int, error) {
	<-c.asked
	return c.Conn.Read(p)
}

func (c *sentConn) Close() error {
	c.once.Do(func() { close(c.asked) })
	return c.Conn.Close()
}
