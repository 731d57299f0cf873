package api

import (
	"net/http"
	"time"
)

// reply comes with what the session has to sign.
func (s *Session) reply(x *exchange) error {
	if x.door != nil {
		x.w.Header().Set(headerChallenge, x.door.challenges.current(time.Now()))
	}
	return x.sendJSON(s)
}

// visitor is a caller who has yet to log in, and reaches only endpoints for anyone.
var visitor = Caller{UID: -1, Name: "visitor"}

// isOpen reports whether a request needs no identity.
func (s *Server) isOpen(r *http.Request) bool {
	_, pattern := s.mux.Handler(r)
	return s.open[pattern]
}

func sendPage(x *exchange) error {
	if x.options.Page == nil {
		return noPath(x.r.URL.Path)
	}
	x.options.Page.ServeHTTP(x.w, x.r)
	return nil
}
