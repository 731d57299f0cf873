package cli

import (
	"net"
	"path/filepath"
	"testing"

	"berth/internal/api"
	"berth/internal/cli/session"
)

// Whoever connects to a daemon in its last moments is accepted by the kernel
// and by nobody else: another one has to be started.
func TestWhoHangsUpDoesNotAnswer(t *testing.T) {
	rows := []struct {
		name string
		with string // what is sent before it hangs up
		want bool
	}{
		{"without a word", "", false},
		{"in the middle of one", "HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{", false},
		{"having refused", "HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\n\r\n", true},
	}
	for _, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			socket := filepath.Join(t.TempDir(), "sock")
			listener, err := net.Listen("unix", socket)
			if err != nil {
				t.Fatal(err)
			}
			defer listener.Close()
			go func() {
				for {
					c, err := listener.Accept()
					if err != nil {
						return
					}
					if row.with != "" {
						_, _ = c.Read(make([]byte, 4096))
						_, _ = c.Write([]byte(row.with))
					}
					c.Close()
				}
			}()
			client := api.Dial(socket)
			defer client.Close()
			if got := session.Answers(t.Context(), client); got != row.want {
				t.Errorf("got %v", got)
			}
		})
	}
}
