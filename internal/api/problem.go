package api

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"berth/internal/problem"
	"berth/internal/text"
)

// problemType is the media type of an error.
const problemType = "application/problem+json"

// maxProblemBytes bounds what of a problem travels: it may quote its request.
const maxProblemBytes = 4096

// errTooLarge marks problems about the size of one message, so that they are
// told apart from those about how many there are.
var errTooLarge = errors.New("too large")

// errNoToken marks a caller that nobody vouches for.
var errNoToken = errors.New("no valid token")

// errNoMethod marks a path that exists for other methods only.
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

// kindOf is the kind that most likely goes with a status, for answers that
// did not come from a berth.
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

// encodeProblem is the problem as it travels.
func encodeProblem(p *problem.Problem) []byte {
	safe := problem.Problem{Kind: p.Kind, What: bounded(p.What), Hint: bounded(p.Hint)}
	data, err := json.Marshal(safe)
	if err != nil {
		panic("bug: a problem of strings cannot be encoded: " + err.Error())
	}
	return append(data, '\n')
}

// decodeProblem reads an answer that is no success. What did not come from a
// berth, a proxy's page for one, is told by its status alone.
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

// bounded is text that is safe for a terminal, and cut where it is too long.
func bounded(written string) string {
	if len(written) <= maxProblemBytes {
		return text.Escape(written)
	}
	return text.Escape(text.Clip(written, maxProblemBytes-1)) + "…"
}
