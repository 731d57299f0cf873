package ports

import (
	"net"
	"path/filepath"
	"testing"

	"berth/internal/api"
	"berth/internal/tests/testkit"
)

// TestAnInheritedSocketKeepsItsID, and another socket at the same address has
// another one: somebody else may have listened there in between.
func TestAnInheritedSocketKeepsItsID(t *testing.T) {
	t.Parallel()
	first, err := net.Listen("tcp", "127.0.0.1:0")
	testkit.Must(t, err)
	address, was := first.Addr().String(), ID(first, false)
	file, err := first.(*net.TCPListener).File()
	testkit.Must(t, err, first.Close())
	inherited, err := net.FileListener(file)
	testkit.Must(t, err)
	if is := ID(inherited, false); is != was {
		t.Errorf("the same socket is %s, and was %s", is, was)
	}
	testkit.Must(t, file.Close(), inherited.Close())
	other, err := net.Listen("tcp", address)
	testkit.Must(t, err)
	defer other.Close()
	if ID(other, false) == was {
		t.Errorf("another socket at %s has the same id", address)
	}
	if id := ID(other, true); id != "tcp "+address {
		t.Errorf("with TLS: %s", id)
	}
	path := filepath.Join(t.TempDir(), "http.sock")
	behind, err := api.Listen(path, 0o666)
	testkit.Must(t, err)
	defer behind.Close()
	if id := ID(behind, false); id != "unix "+path {
		t.Errorf("a Unix socket: %s", id)
	}
	// A listener whose socket cannot be asked is never taken for another.
	type wrapped struct{ net.Listener }
	if one, two := ID(wrapped{other}, false), ID(wrapped{other}, false); one == two {
		t.Error("two listeners without a socket have the same id")
	}
}
