package api

import (
	"context"
	"testing"

	"berth/internal/text/problem"
)

func (f *fake) Strays(context.Context, Caller) ([]Stray, error) { return []Stray{exampleStray}, nil }

func (f *fake) AdoptStrays(_ context.Context, _ Caller, r AdoptStraysRequest) (adopted []AdoptedStray, err error) {
	for _, token := range r.Tokens {
		adopted = append(adopted, AdoptedStray{Token: token, Job: exampleStray.Job})
	}
	return adopted, nil
}

func TestStraysAreListedAndAdopted(t *testing.T) {
	s := serve(t, newFake(), Limits{})
	strays, err := Call(background(t), s.client, ListStrays, None{})
	if err != nil || len(strays) != 1 || strays[0].Token != exampleStray.Token {
		t.Errorf("strays %+v, %v", strays, err)
	}
	adopted, err := Call(background(t), s.client, AdoptStrays, AdoptStraysRequest{Tokens: []string{"a", "b"}})
	if err != nil || len(adopted) != 2 || adopted[1].Token != "b" {
		t.Errorf("adopted %+v, %v", adopted, err)
	}
	if adopted, err = Call(background(t), s.client, AdoptStrays, AdoptStraysRequest{}); err != nil || adopted == nil || len(adopted) != 0 {
		t.Errorf("none adopted: %+v, %v", adopted, err)
	}
	_, err = Call(background(t), s.client, AdoptStrays, AdoptStraysRequest{Tokens: make([]string, maxStrays+1)})
	wantProblem(t, err, problem.TooMuch, "too many strays")
}
