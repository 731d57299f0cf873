package api

import (
	"net/http"

	"berth/internal/text/problem"
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

// sendStore streams. If it fails half way, the reply is cut off, and the client
// notices.
func sendStore(x *exchange) error {
	if err := x.read(&None{}); err != nil {
		return err
	}
	x.w.Header().Set("Content-Type", "application/octet-stream")
	return x.options.Streams.Backup(x.r.Context(), x.caller, x.w)
}
