package api

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"time"

	"berth/internal/text/problem"
)

const (
	metricsPath = "/metrics"
	metricsType = "text/plain; version=0.0.4; charset=utf-8"
)

func sendMetrics(x *exchange) error {
	if err := x.read(&None{}); err != nil {
		return err
	}
	if x.options.Metrics == nil {
		return problem.Newf(problem.Refused, "ask a daemon", "a berth run has no metrics")
	}
	text, err := x.options.Metrics(x.r.Context())
	if err != nil {
		return err
	}
	x.send(http.StatusOK, metricsType, text)
	return nil
}

// scraper is the caller at the address for metrics, whom nobody vouches for.
var scraper = Caller{UID: -1, Name: "scraper"}

// ServeMetrics serves the metrics, and nothing else, to everyone on this machine
// until Shutdown. The address must be a loopback one.
func (s *Server) ServeMetrics(l net.Listener) error {
	address, err := netip.ParseAddrPort(l.Addr().String())
	if err != nil || !address.Addr().Unmap().IsLoopback() {
		return fmt.Errorf("listen on %s: expected a loopback address", l.Addr())
	}
	answersTo := hostCheck(address.Addr().Unmap(), nil)
	handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.serveAs(w, r, nil, func(*exchange, context.Context) (Caller, error) {
			if !answersTo(r.Host) {
				return Caller{}, wrongHost(r.Host, "use its address")
			}
			if r.URL.Path != metricsPath {
				return Caller{}, problem.Newf(problem.Forbidden, "the daemon's socket and http.listen serve the rest", "this address serves only GET %s", metricsPath)
			}
			return scraper, nil
		})
	})
	return s.serve(tcpListener{Listener: l, unproven: &s.scrapers}, handler)
}

// sendStore streams. If it fails half way, the reply is cut off, and the client
// notices.
func sendStore(x *exchange) error {
	if err := x.read(&None{}); err != nil {
		return err
	}
	x.w.Header().Set("Content-Type", "application/octet-stream")
	return x.options.Streams.Backup(x.r.Context(), x.caller, x.w)
}

// backupTakes is how long a daemon may need to copy its store.
const backupTakes = 10 * time.Minute

// Backup writes a copy of the daemon's store to w. An error means that the copy
// is incomplete.
func (c *Client) Backup(ctx context.Context, w io.Writer) error {
	reply, err := c.send(taking(ctx, backupTakes), &copyStore.Operation, &None{}, nil)
	if err != nil {
		return err
	}
	defer reply.Body.Close()
	if _, err := io.Copy(w, reply.Body); err != nil {
		return c.explain(ctx, err)
	}
	return nil
}
