package api

import (
	"context"
	"slices"
	"testing"

	"berth/internal/tests/testkit"
	"berth/internal/text/problem"
)

func (f *fake) Adopt(_ context.Context, _ Caller, r AdoptRequest) (Detail, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if r.PID == 1 {
		return Detail{}, problem.Newf(problem.Refused, "", "process 1 runs everything")
	}
	d := exampleAdopted
	d.Name, d.GPUIDs = r.Name, r.GPUs
	return d, nil
}

func TestAProcessIsAdoptedAsItWasAskedFor(t *testing.T) {
	s := serve(t, newFake(), Limits{})
	detail, err := Call(background(t), s.client, Adopt, AdoptRequest{PID: 4242, GPUs: []int{3, 1}, VRAM: "2G", Name: "mine"})
	testkit.Must(t, err)
	if detail.Name != "mine" || !slices.Equal(detail.GPUIDs, []int{3, 1}) {
		t.Errorf("it came back as %+v", detail)
	}
	_, err = Call(background(t), s.client, Adopt, AdoptRequest{PID: 1})
	wantProblem(t, err, problem.Refused, "process 1 runs everything")
	_, err = Call(background(t), s.client, Adopt, AdoptRequest{PID: -4})
	wantProblem(t, err, problem.Invalid, "expected a process id, found -4")
	_, err = Call(background(t), s.client, Adopt, AdoptRequest{PID: 4, GPUs: make([]int, maxAdoptGPUs+1)})
	wantProblem(t, err, problem.TooMuch, "too many GPUs")
}
