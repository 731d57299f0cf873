// Package ports is where a daemon can be reached: its socket, the address of the page
// and that of the metrics. It opens them again when they are lost, and has the page's
// address held while no daemon is there.
//
// It serves no request itself and lets nobody in: the server does. A port that is
// taken must not keep jobs from running, so it is reported and tried again.
//
// Read ports.go first, then port.go, keep.go, id.go and socket.go.
package ports
