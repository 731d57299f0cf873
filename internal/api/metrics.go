package api

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/netip"

	"berth/internal/text/problem"
)

const (
	metricsPath = "/metrics"
	metricsType = "text/plain; version=0.0.4; charset=utf-8"
)

func (x *exchange) getMetrics() error {
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
