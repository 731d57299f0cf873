package api

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"berth/internal/problem"
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
	safe := problem.Problem{Kind: p.Kind, What: printable(p.What), Hint: printable(p.Hint)}
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
		p.What, p.Hint = printable(p.What), printable(p.Hint)
		return &p
	}
	return &problem.Problem{
		Kind: kindOf(status),
		What: fmt.Sprintf("unexpected answer: HTTP %d %s", status, http.StatusText(status)),
		Hint: "check that a berth daemon listens at this address",
	}
}

// printable makes text safe for a terminal: what could move a cursor, change
// colours or turn the direction of writing is shown as an escape. Text that
// is too long is cut.
func printable(text string) string {
	cut := len(text) > maxProblemBytes
	if cut {
		text = text[:maxProblemBytes]
		for len(text) > 0 && !utf8.RuneStart(text[len(text)-1]) {
			text = text[:len(text)-1]
		}
		text = text[:max(len(text)-1, 0)]
	}
	if strings.IndexFunc(text, hostile) >= 0 {
		var b strings.Builder
		for _, r := range text {
			if hostile(r) {
				b.WriteString(strings.Trim(strconv.QuoteRuneToASCII(r), "'"))
			} else {
				b.WriteRune(r)
			}
		}
		text = b.String()
	}
	if cut {
		text += "…"
	}
	return text
}

func hostile(r rune) bool { return r != '\n' && r != ' ' && !unicode.IsPrint(r) }
