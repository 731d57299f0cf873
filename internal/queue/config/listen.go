package config

import (
	"fmt"
	"net/netip"
	"strconv"
	"strings"
)

// UnixListen begins the path of a Unix socket in http.listen.
const UnixListen = "unix:"

const allowedListen = "an address and a port: 127.0.0.1:7878, [::1]:7878, or with TLS any other; or unix:/path for a proxy"

const allowedMetrics = "a loopback address and a port: 127.0.0.1:9778, [::1]:9778"

// checkListen keeps what is served off the network unless TLS encrypts it.
func checkListen(listen, allowed string, encrypted bool, otherwise string) error {
	host, port, found := cutLast(listen, ":")
	if _, err := strconv.ParseUint(port, 10, 16); !found || err != nil {
		return mismatch(listen, allowed)
	}
	bare := strings.TrimSuffix(strings.TrimPrefix(host, "["), "]")
	address, err := netip.ParseAddr(bare)
	if err == nil && address.Is6() != (bare != host) {
		return mismatch(listen, allowed)
	}
	switch {
	case host == "localhost", err == nil && address.Unmap().IsLoopback():
		return nil
	case err != nil && host != "":
		return mismatch(listen, allowed)
	case !encrypted:
		return fmt.Errorf("expected a loopback address such as 127.0.0.1:%s, found %q; %s", port, listen, otherwise)
	}
	return nil
}

func cutLast(s, separator string) (before, after string, found bool) {
	if i := strings.LastIndex(s, separator); i >= 0 {
		return s[:i], s[i+len(separator):], true
	}
	return s, "", false
}
