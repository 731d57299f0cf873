package problem_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"testing"

	"berth/internal/text/problem"
)

func TestTheCauseIsFound(t *testing.T) {
	tests := []struct {
		name string
		err  *problem.Problem
		what string
		is   bool
	}{
		{"formatted with %w", problem.Newf(problem.Unable, "h", "open it: %w", fs.ErrNotExist), "open it: file does not exist", true},
		{"formatted with %v", problem.Newf(problem.Unable, "h", "open it: %v", fs.ErrNotExist), "open it: file does not exist", false},
		{"wrapped", problem.Wrap(problem.Unable, "h", fs.ErrNotExist), "file does not exist", true},
		{"a mere sentence", problem.Newf(problem.Unable, "h", "100%% full"), "100% full", false},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			if test.err.Error() != test.what || errors.Is(test.err, fs.ErrNotExist) != test.is {
				t.Errorf("says %q, is the cause: %v", test.err, !test.is)
			}
			found, ok := errors.AsType[*problem.Problem](fmt.Errorf("start: %w", test.err))
			if !ok || found != test.err || found.Hint != "h" {
				t.Errorf("found %v %v below another error", found, ok)
			}
		})
	}
}

func TestExitStatusFollowsFromKind(t *testing.T) {
	want := map[problem.Kind]int{
		problem.Invalid: 2, problem.Interrupted: 130,
		problem.Refused: 1, problem.NotFound: 1, problem.Forbidden: 1, problem.TooMuch: 1, problem.Unable: 1, "unheard of": 1,
	}
	for kind, status := range want {
		if kind.ExitStatus() != status {
			t.Errorf("%s exits with %d, want %d", kind, kind.ExitStatus(), status)
		}
	}
}

// TestWireFormat: the api sends problems as they are.
func TestWireFormat(t *testing.T) {
	data, err := json.Marshal(problem.Wrap(problem.NotFound, "look", errors.New("gone")))
	if want := `{"kind":"not_found","problem":"gone","hint":"look"}`; err != nil || string(data) != want {
		t.Errorf("sent as %s (%v), want %s", data, err, want)
	}
}
