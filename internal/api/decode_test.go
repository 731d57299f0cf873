package api

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"berth/internal/tests/testkit"
	"berth/internal/text"
	"berth/internal/text/problem"
)

func TestSubmissionsThatAreRefused(t *testing.T) {
	limits := Limits{SpecBytes: 1000, Specs: 3}.withDefaults()
	long := strings.Repeat("x", 2000)
	for _, test := range []struct {
		name, body string
		kind       problem.Kind
		says, hint string
	}{
		{"a misspelt key names the nearest", `{"jobs":[{"command":"a"},{"command":"b","gpu":1}]}`, problem.Invalid, `jobs[1]: there is no key "gpu"`, "did you mean gpus?"},
		{"a key like nothing known gets the list", `{"jobs":[{"comand_line_of_the_job":"b"}]}`, problem.Invalid, `jobs[0]: there is no key "comand_line_of_the_job"`, "the keys are after, allow"},
		{"control bytes of a key come escaped", "{\"jobs\":[{\"\\u001b[31m\":1}]}", problem.Invalid, `jobs[0]: there is no key "\x1b[31m"`, "the keys are"},
		{"an unknown key beside the jobs", `{"jobs":[{"command":"a"}],"dryrun":true}`, problem.Invalid, `there is no key "dryrun"`, "did you mean dry_run?"},
		{"nothing", ``, problem.Invalid, "the JSON ends too early", ""},
		{"half of it", `{"jobs":[{"command":"a"`, problem.Invalid, "jobs[0]: the JSON ends too early", ""},
		{"no jobs", `{}`, problem.Invalid, "the request has no jobs", "send"},
		{"an empty list", `{"jobs":[]}`, problem.Invalid, "the request has no jobs", "send"},
		{"two lists", `{"jobs":[{"command":"a"}],"jobs":[{"command":"b"}]}`, problem.Invalid, "expected the key \"jobs\" once, found it twice", ""},
		{"a list instead", `[]`, problem.Invalid, "expected the request to be JSON with an object here", ""},
		{"jobs that are no list", `{"jobs":{}}`, problem.Invalid, "expected the request to be JSON with an array here", ""},
		{"a list for a text", `{"jobs":[{"command":"a","gpus":[1]}]}`, problem.Invalid, "jobs[0]: gpus: a JSON array is not allowed there", ""},
		{"null for a text", `{"jobs":[{"command":"a","gpus":null}]}`, problem.Invalid, "jobs[0]: gpus: a JSON null is not allowed there", ""},
		{"a number for a command", `{"jobs":[{"command":7}]}`, problem.Invalid, "jobs[0]: command: a JSON number is not allowed there", ""},
		{"a number in a command", `{"jobs":[{"command":["a",7]}]}`, problem.Invalid, "jobs[0]: command: a JSON number is not allowed there", ""},
		{"text for a flag", `{"jobs":[{"command":"a"}],"dry_run":"yes"}`, problem.Invalid, "dry_run: a JSON string is not allowed there", ""},
		{"something after it", `{"jobs":[{"command":"a"}]}{}`, problem.Invalid, "expected one JSON value, found more", ""},
		{"a job too large", `{"jobs":[{"command":"a"},{"command":"` + long + `"}]}`, problem.TooMuch, "jobs[1] takes more than 1000 bytes", ""},
		{"too many jobs", `{"jobs":[{},{},{},{}]}`, problem.TooMuch, "more than 3 jobs in one request", "send them in several"},
		{"an environment too large", `{"environ":["` + strings.Repeat("x", maxEnvironBytes) + `"]}`, problem.TooMuch, "environ takes more than", ""},
		{"endless blanks", strings.Repeat(" ", 5000), problem.TooMuch, "the request takes more than 1000 bytes", ""},
		{"a key without end", `{"` + long, problem.TooMuch, "a key takes more than 1000 bytes", ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			for _, body := range []io.Reader{strings.NewReader(test.body), iotest.HalfReader(strings.NewReader(test.body))} {
				err := decodeSubmit(body, -1, &SubmitRequest{}, limits)
				p, ok := errors.AsType[*problem.Problem](err)
				if !ok || p.Kind != test.kind || !strings.HasPrefix(p.What, test.says) || !strings.HasPrefix(p.Hint, test.hint) {
					t.Errorf("got %+v\nwant %s: %s (%s)", p, test.kind, test.says, test.hint)
				}
				if test.kind == problem.TooMuch && statusOf(p) != 413 {
					t.Errorf("status %d", statusOf(p))
				}
			}
		})
	}
}

func TestOtherRequestsThatAreRefused(t *testing.T) {
	for _, test := range []struct{ name, body, says, hint string }{
		{"a misspelt key", `{"action":"cancel","selects":{}}`, `there is no key "selects"`, "did you mean select?"},
		{"a misspelt key further in", `{"action":"cancel","select":{"id":["1"]}}`, `there is no key "id"`, "did you mean ids?"},
		{"two values", `{} {}`, "expected one JSON value, found more", ""},
		{"no JSON", `cancel`, "invalid character 'c' looking for beginning of value", ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			var r ActRequest
			err := decode(strings.NewReader(test.body), &r)
			p, ok := errors.AsType[*problem.Problem](err)
			if !ok || p.What != test.says || p.Hint != test.hint {
				t.Errorf("got %+v", p)
			}
		})
	}
}

func TestValuesAsPeopleWriteThem(t *testing.T) {
	var got SubmitRequest
	err := decodeSubmit(strings.NewReader(`{"jobs":[{"command":["a","b"],"gpus":0.5,"vram":18432,"exclusive":true,"timeout":"2h"}]}`), -1, &got, Limits{}.withDefaults())
	testkit.Must(t, err)
	want := Spec{Command: Command{Argv: []string{"a", "b"}}, GPUs: "0.5", VRAM: "18432", Exclusive: "true", Timeout: "2h"}
	if diff := cmp.Diff([]Spec{want}, got.Jobs); diff != "" {
		t.Error(diff)
	}
}

// TestSubmissionsComeBackAsTheyWere holds the hand-written reading of a
// submission to encoding/json's writing of it.
func TestSubmissionsComeBackAsTheyWere(t *testing.T) {
	word := rapid.StringMatching(`[a-zA-Z0-9 <&"\\é\n]{1,8}`)
	rapid.Check(t, func(t *rapid.T) {
		var r SubmitRequest
		for range rapid.IntRange(1, 5).Draw(t, "jobs") {
			var s Spec
			if rapid.Bool().Draw(t, "argv") {
				s.Command.Argv = rapid.SliceOfN(word, 1, 4).Draw(t, "words")
			} else {
				s.Command.Shell = word.Draw(t, "shell")
			}
			for _, key := range textKeys {
				if rapid.IntRange(0, 9).Draw(t, key) == 0 {
					s.Set(key, word.Draw(t, "value"))
				}
			}
			if rapid.Bool().Draw(t, "env") {
				s.Set("env."+word.Draw(t, "name"), word.Draw(t, "value"))
			}
			if rapid.Bool().Draw(t, "others") {
				s.Bytes, s.Sweep = rapid.SliceOfN(rapid.Byte(), 1, 4).Draw(t, "bytes"), &Sweep{}
			}
			r.Jobs = append(r.Jobs, s)
		}
		r.Environ = rapid.SliceOfN(word, 0, 3).Draw(t, "environ")
		if len(r.Environ) == 0 {
			r.Environ = nil
		}
		r.DryRun = rapid.Bool().Draw(t, "dry")
		data, err := json.Marshal(r)
		if err != nil {
			t.Fatal(err)
		}
		if sent, err := r.body(); err != nil || string(sent) != string(data) {
			t.Fatalf("%v: sent %s, encoding/json writes %s", err, sent, data)
		}
		var got SubmitRequest
		err = decodeSubmit(bytes.NewReader(data), int64(len(data)), &got, Limits{}.withDefaults())
		if err != nil {
			t.Fatalf("%v: %s", err, data)
		}
		if diff := cmp.Diff(r, got); diff != "" {
			t.Fatal(diff)
		}
		// In another order, with blanks, and beside what is seldom sent.
		for i := range r.Jobs {
			members := map[string]json.RawMessage{}
			if err := json.Unmarshal(appendSpec(nil, &r.Jobs[i]), &members); err != nil {
				t.Fatal(err)
			}
			inOrder, _ := json.Marshal(members)
			blanks, _ := json.MarshalIndent(members, "", " ")
			for _, written := range [][]byte{inOrder, blanks} {
				var back sentSpec
				err := back.UnmarshalJSON(written)
				if diff := cmp.Diff(r.Jobs[i], Spec(back)); diff != "" || err != nil {
					t.Fatal(err, diff)
				}
			}
		}
	})
}

// TestSpecsHaveTheSameTermsUnlessAKeyDiffers, other than the name and the command.
func TestSpecsHaveTheSameTermsUnlessAKeyDiffers(t *testing.T) {
	t.Parallel()
	plain := Spec{Command: Command{Shell: "a"}}
	for _, key := range append(slices.Clone(textKeys), "env.A") {
		other := Spec{Command: Command{Argv: []string{"b"}}}
		other.Set(key, "1")
		if same := plain.SameTerms(&other); same != (key == "name") || same != other.SameTerms(&plain) {
			t.Errorf("%s: %v", key, same)
		}
	}
	if swept := (Spec{Sweep: &Sweep{}}); plain.SameTerms(&swept) || swept.SameTerms(&plain) {
		t.Error("a sweep is not like a job")
	}
}

// FuzzDecode holds that no body makes the decoder panic, that what it refuses
// is always a problem, and what it accepts is what encoding/json reads.
func FuzzDecode(f *testing.F) {
	example, _ := json.Marshal(exampleSubmit)
	for _, seed := range []string{string(example), `{"jobs":[{}]}`, `{"jobs":null}`, `{"jobs":[{"env":{"a":"b"}}],"umask":18}`, `{"action":"hold","select":{"ids":["1"]}}`, "{", "\x00"} {
		f.Add([]byte(seed))
	}
	limits := Limits{SpecBytes: 4096, Specs: 50}.withDefaults()
	f.Fuzz(func(t *testing.T, body []byte) {
		var refused *problem.Problem
		var got SubmitRequest
		err := decodeSubmit(bytes.NewReader(body), int64(len(body)), &got, limits)
		switch {
		case err != nil && !errors.As(err, &refused):
			t.Errorf("%T: %v", err, err)
		case err == nil:
			var want SubmitRequest
			if err := json.Unmarshal(body, &want); err != nil {
				t.Errorf("accepted what is no JSON: %v", err)
			} else if len(want.Jobs) != len(got.Jobs) {
				t.Errorf("%d jobs, want %d", len(got.Jobs), len(want.Jobs))
			}
		}
		for _, to := range []any{&ActRequest{}, &EditRequest{}, &WaitRequest{}, &TokenRequest{}} {
			if err := decode(bytes.NewReader(body), to); err != nil && !errors.As(err, &refused) {
				t.Errorf("%T: %v", err, err)
			}
		}
		if refused != nil && text.Escape(refused.What) != refused.What {
			t.Errorf("a control byte is echoed: %q", refused.What)
		}
		for _, q := range []any{&Query{}, &LogQuery{}, &EventQuery{}, &CardQuery{}} {
			r := &http.Request{URL: &url.URL{RawQuery: string(body)}}
			if err := readURL(r, q); err != nil && !errors.As(err, &refused) {
				t.Errorf("%T: %v", err, err)
			}
		}
	})
}

// manySpecs is a submission of n jobs as a sweep makes them.
func manySpecs(n int) SubmitRequest {
	var r SubmitRequest
	for range n {
		r.Jobs = append(r.Jobs, Spec{Command: Command{Argv: []string{"python", "train.py", "--lr", "0.001", "--seed", "17"}},
			Name: "sweep", GPUs: "1", VRAM: "18G", Timeout: "2h"})
	}
	r.Environ = []string{"PATH=/usr/bin", "HOME=/home/ann"}
	return r
}

func BenchmarkDecodeTenThousandJobs(b *testing.B) {
	data, _ := json.Marshal(manySpecs(10_000))
	b.SetBytes(int64(len(data)))
	for b.Loop() {
		if err := decodeSubmit(bytes.NewReader(data), int64(len(data)), &SubmitRequest{}, Limits{}.withDefaults()); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkSubmitTenThousandJobs(b *testing.B) {
	s := serve(b, newFake(), Limits{})
	r := manySpecs(10_000)
	for b.Loop() {
		if _, err := Call(background(b), s.client, Submit, r); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkListTenThousandJobs(b *testing.B) {
	f := newFake()
	for len(f.jobs) < 10_000 {
		f.jobs = append(f.jobs, Detail{View: exampleView})
	}
	s := serve(b, f, Limits{})
	for b.Loop() {
		if err := s.client.JobsRaw(background(b), Query{}, io.Discard); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkStatus(b *testing.B) {
	s := serve(b, newFake(), Limits{})
	for b.Loop() {
		if _, err := Call(background(b), s.client, GetStatus, None{}); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkEncodeTenThousandJobs(b *testing.B) {
	var page JobPage
	for range 10_000 {
		page.Jobs = append(page.Jobs, exampleView)
	}
	for b.Loop() {
		if _, err := json.Marshal(page); err != nil {
			b.Fatal(err)
		}
	}
}
