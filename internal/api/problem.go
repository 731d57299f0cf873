package api

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"berth/internal/text"
	"berth/internal/text/problem"
)

// problemType is the media type of an error.
const problemType = "application/problem+json"

// maxProblemBytes bounds a problem on the wire: it may quote its request.
const maxProblemBytes = 4096

// errTooLarge marks problems about the size of one message, as opposed to the
// number of messages.
var errTooLarge = errors.New("too large")

// errNoToken marks an unidentified caller.
var errNoToken = errors.New("no valid token")

// errNoMethod marks a path that exists only for other methods.
var errNoMethod = errors.New("no such method")

// statusOf is the HTTP status that goes with a problem.
func statusOf(p *problem.Problem) int {
	switch {
	case errors.Is(p.Err, errTooLarge):
		return http.StatusRequestEntityTooLarge
	case errors.Is(p.Err, errNoToken):
		return http.StatusUnauthorized
	case errors.Is(p.Err, errNoMethod):
		return http.StatusMethodNotAllowed
	}
	switch p.Kind {
	case problem.Invalid:
		return http.StatusBadRequest
	case problem.Refused:
		return http.StatusConflict
	case problem.NotFound:
		return http.StatusNotFound
	case problem.Forbidden:
		return http.StatusForbidden
	case problem.TooMuch:
		return http.StatusTooManyRequests
	}
	return http.StatusServiceUnavailable
}

// kindOf is the likely kind for a status, for replies that are not berth's.
func kindOf(status int) problem.Kind {
	switch status {
	case http.StatusBadRequest, http.StatusMethodNotAllowed:
		return problem.Invalid
	case http.StatusConflict:
		return problem.Refused
	case http.StatusNotFound:
		return problem.NotFound
	case http.StatusUnauthorized, http.StatusForbidden:
		return problem.Forbidden
	case http.StatusRequestEntityTooLarge, http.StatusTooManyRequests:
		return problem.TooMuch
	}
	return problem.Unable
}

// encodeProblem is the problem as it is sent.
func encodeProblem(p *problem.Problem) []byte {
	safe := problem.Problem{Kind: p.Kind, What: bounded(p.What), Hint: bounded(p.Hint)}
	data, err := json.Marshal(safe)
	if err != nil {
		panic("bug: a problem of strings cannot be encoded: " + err.Error())
	}
	return append(data, '\n')
}

// decodeProblem reads an error reply. One that is not berth's, such as a proxy's
// page, is described by its status alone.
func decodeProblem(status int, contentType string, body []byte) *problem.Problem {
	var p problem.Problem
	if strings.HasPrefix(contentType, problemType) && json.Unmarshal(body, &p) == nil && p.What != "" {
		p.What, p.Hint = bounded(p.What), bounded(p.Hint)
		return &p
	}
	return &problem.Problem{
		Kind: kindOf(status),
		What: fmt.Sprintf("unexpected answer: HTTP %d %s", status, http.StatusText(status)),
		Hint: "check that a berth daemon listens at this address",
	}
}

// bounded is text that is safe for a terminal, shortened if it is too long.
func bounded(written string) string {
	if len(written) <= maxProblemBytes {
		return text.Escape(written)
	}
	return text.Escape(text.Clip(written, maxProblemBytes-1)) + "…"
}

// quoted is a caller's text, shortened and safe to print.
func quoted(written string) string { return text.Quote(written, 80) }

// list makes an empty list of nil, so that JSON has no null.
func list[T any](values []T) []T {
	if values == nil {
		return []T{}
	}
	return values
}
