package ports

import (
	"errors"
	"net"
	"strings"
	"syscall"
	"testing"

	"berth/internal/tests/testkit"
)

func TestALoopbackPortHasTwoAddresses(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		address   string
		encrypted bool
		want      string
	}{
		{"127.0.0.1:7878", false, "127.0.0.1:7878 [::1]:7878"},
		{"localhost:7878", false, "127.0.0.1:7878 [::1]:7878"},
		{"[::1]:7878", false, "[::1]:7878 127.0.0.1:7878"},
		{"127.0.0.1:7878", true, "127.0.0.1:7878"}, // the certificate proves it
		{"127.0.0.2:7878", false, "127.0.0.2:7878"},
		{"0.0.0.0:7878", true, "0.0.0.0:7878"},
	} {
		if got := strings.Join(loopbacks(c.address, c.encrypted), " "); got != c.want {
			t.Errorf("%s: %s, want %s", c.address, got, c.want)
		}
	}
}

// hasIPv6 skips a test where nobody can listen on the second address.
func hasIPv6(t *testing.T) {
	t.Helper()
	l, err := net.Listen("tcp", "[::1]:0")
	if err != nil {
		t.Skip("this machine has no IPv6")
	}
	l.Close()
}

func TestAPortIsOursOnBothAddressesOrNot(t *testing.T) {
	t.Parallel()
	hasIPv6(t)
	all, err := listenAll(loopbacks("127.0.0.1:0", false))
	testkit.Must(t, err)
	defer closeAll(all)
	if len(all) != 2 {
		t.Fatalf("it listens on %d addresses", len(all))
	}
	_, port, _ := net.SplitHostPort(all[0].Addr().String())
	if all[1].Addr().String() != "[::1]:"+port {
		t.Errorf("it listens on %s and %s", all[0].Addr(), all[1].Addr())
	}
	all[0].Close()
	_, err = listenAll(loopbacks("127.0.0.1:"+port, false))
	if !errors.Is(err, syscall.EADDRINUSE) || takenAddress(err) != "[::1]:"+port {
		t.Errorf("with the second address taken: %v", err)
	}
	if l, err := net.Listen("tcp", "127.0.0.1:"+port); err != nil {
		t.Errorf("the first address was not closed: %v", err)
	} else {
		l.Close()
	}
}
