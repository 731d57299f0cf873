package site

import (
	"encoding/binary"
	"encoding/hex"
	"net/netip"
	"strconv"
	"strings"
)

// ListenerOwner is the user whose process listens on a TCP address, or on all
// addresses with its port.
func ListenerOwner(address string) (uid int, found bool) { return listenerOwner(here(), address) }

func listenerOwner(m machine, address string) (uid int, found bool) {
	wanted, err := netip.ParseAddrPort(address)
	if err != nil {
		return 0, false
	}
	for _, file := range []string{"/proc/net/tcp", "/proc/net/tcp6"} {
		for line := range strings.Lines(m.read(file)) {
			at, uid, ok := listenerLine(line)
			if ok && at.Port() == wanted.Port() && (at.Addr().Unmap() == wanted.Addr().Unmap() || at.Addr().IsUnspecified()) {
				return uid, true
			}
		}
	}
	return 0, false
}

// listenerLine reads a line of /proc/net/tcp about a listening socket.
func listenerLine(line string) (at netip.AddrPort, uid int, ok bool) {
	const local, state, owner, listens = 1, 3, 7, "0A"
	fields := strings.Fields(line)
	if len(fields) <= owner || fields[state] != listens {
		return at, 0, false
	}
	host, port, _ := strings.Cut(fields[local], ":")
	bytes, err := hex.DecodeString(host)
	if err != nil || len(bytes)%4 != 0 {
		return at, 0, false
	}
	for i := 0; i < len(bytes); i += 4 { // the kernel prints words in its own byte order
		word := binary.BigEndian.Uint32(bytes[i:])
		binary.NativeEndian.PutUint32(bytes[i:], word)
	}
	address, known := netip.AddrFromSlice(bytes)
	number, portErr := strconv.ParseUint(port, 16, 16)
	uid, uidErr := strconv.Atoi(fields[owner])
	return netip.AddrPortFrom(address, uint16(number)), uid, known && portErr == nil && uidErr == nil
}
