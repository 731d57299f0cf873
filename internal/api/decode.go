package api

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"berth/internal/text"
	"berth/internal/text/problem"
)

// maxEnvironBytes bounds a submission without its jobs: mostly the caller's
// environment. The kernel accepts no more for a process.
const maxEnvironBytes = 6 << 20

// decode reads one JSON value from a body with nothing else. Unknown keys are
// refused: a misspelt option must not be ignored.
func decode(body io.Reader, to any) error {
	d := json.NewDecoder(&strictJSON{from: body})
	d.DisallowUnknownFields()
	if err := d.Decode(to); err != nil {
		return decodeError("", err, reflect.TypeOf(to).Elem())
	}
	return atEnd(d)
}

func atEnd(d *json.Decoder) error {
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		if p := transportProblem(err); p != nil {
			return p
		}
		return problem.Newf(problem.Invalid, "", "expected one JSON value, found more")
	}
	return nil
}

// decodeSubmit reads a submission job by job, so that a big one is never in
// memory twice and one job cannot exceed its limit. Speed matters here: ten
// thousand jobs take some tens of milliseconds. size is that of the body; -1: not known.
func decodeSubmit(body io.Reader, size int64, r *SubmitRequest, l Limits) error {
	gate := &gate{from: &strictJSON{from: body}, size: size}
	d := json.NewDecoder(gate)
	d.DisallowUnknownFields()
	gate.allow(d, l.SpecBytes, "the request")
	if err := opening(d, '{'); err != nil {
		return err
	}
	for d.More() {
		gate.allow(d, l.SpecBytes, "a key")
		token, err := d.Token()
		if err != nil {
			return decodeError("", err, nil)
		}
		key, _ := token.(string) // the decoder accepts only strings as keys
		if key == "jobs" {
			r.Jobs, err = decodeSpecs(d, gate, l)
		} else {
			gate.allow(d, maxEnvironBytes, key)
			err = decodeMember(d, r, key)
		}
		if err != nil {
			return err
		}
		gate.allow(d, l.SpecBytes, "the request")
	}
	if _, err := d.Token(); err != nil {
		return decodeError("", err, nil)
	}
	if len(r.Jobs) == 0 && r.Batch == nil { // a jobs file may be empty
		return problem.Newf(problem.Invalid, `send {"jobs": [{"command": "…"}]}`, "the request has no jobs")
	}
	return atEnd(d)
}

func decodeSpecs(d *json.Decoder, gate *gate, l Limits) ([]Spec, error) {
	if err := opening(d, '['); err != nil {
		return nil, err
	}
	specs := []Spec{}
	for d.More() {
		gate.allow(d, l.SpecBytes, "")
		gate.job = len(specs)
		if len(specs) == l.Specs {
			return nil, &problem.Problem{Kind: problem.TooMuch, What: fmt.Sprintf("more than %d jobs in one request", l.Specs),
				Hint: "send them in several requests", Err: errTooLarge}
		}
		if len(specs) == cap(specs) {
			specs = slices.Grow(specs, min(l.Specs, gate.more(d, len(specs))))
		}
		specs = append(specs, Spec{})
		if err := d.Decode((*sentSpec)(&specs[len(specs)-1])); err != nil {
			return nil, decodeError(fmt.Sprintf("jobs[%d]: ", len(specs)-1), err, reflect.TypeFor[Spec]())
		}
	}
	if _, err := d.Token(); err != nil {
		return nil, decodeError("", err, nil)
	}
	return specs, nil
}

// sentSpec is a spec as it was sent. If it has only what appendSpec writes, in any
// order, it is read without reflection, otherwise by encoding/json.
type sentSpec Spec

func (s *sentSpec) UnmarshalJSON(data []byte) error {
	r := reader{rest: data}
	if r.spec((*Spec)(s)); !r.odd && len(r.rest) == 0 {
		return nil
	}
	*s = sentSpec{}
	d := json.NewDecoder(bytes.NewReader(data))
	d.DisallowUnknownFields()
	return d.Decode((*Spec)(s))
}

// decodeMember reads one key of a submission other than its jobs.
func decodeMember(d *json.Decoder, r *SubmitRequest, key string) error {
	fields := map[string]any{
		"dir": &r.Dir, "environ": &r.Environ, "environ_bytes": &r.EnvironBytes, "umask": &r.Umask, "dry_run": &r.DryRun,
		"interactive": &r.Interactive, "term": &r.Term, "snapshots": &r.Snapshots, "batch": &r.Batch,
	}
	to, known := fields[key]
	if !known {
		return problem.Newf(problem.Invalid, suggest(key, keysOf(reflect.TypeFor[SubmitRequest]())), "there is no key %s", quoted(key))
	}
	if err := d.Decode(to); err != nil {
		return decodeError(key+": ", err, nil)
	}
	return nil
}

// gate limits how far a decoder reads ahead, so that a value that is too big is
// refused before it is in memory: decoded JSON can take many times the size of
// its text.
type gate struct {
	from    io.Reader
	size    int64 // of the body; -1: not known
	what    string
	job     int // if what is empty: the number of the job
	most    int64
	read    int64
	allowed int64
}

// allow permits the next value.
func (g *gate) allow(d *json.Decoder, most int64, what string) {
	g.what, g.most = what, most
	g.allowed = d.InputOffset() + most
}

// more says how many more jobs to make room for, because a spec is expensive to copy:
// slightly more than the rest of the body holds if they are as long as these. The size
// is only what the caller claims, so room grows no faster than what has arrived.
func (g *gate) more(d *json.Decoder, jobs int) int {
	const first, factor = 64, 16
	read := max(d.InputOffset(), 1)
	rest := max(g.size-read, 0) * int64(jobs) / read * 9 / 8
	return int(min(max(rest, int64(jobs))+first, int64(max(first, factor*jobs))))
}

func (g *gate) Read(p []byte) (int, error) {
	room := g.allowed - g.read
	if room <= 0 {
		what := g.what
		if what == "" {
			what = fmt.Sprintf("jobs[%d]", g.job)
		}
		return 0, &problem.Problem{Kind: problem.TooMuch, What: fmt.Sprintf("%s takes more than %d bytes", what, g.most), Err: errTooLarge}
	}
	n, err := g.from.Read(p[:min(int64(len(p)), room)])
	g.read += int64(n)
	return n, err
}

func opening(d *json.Decoder, want json.Delim) error {
	token, err := d.Token()
	if err != nil {
		return decodeError("", err, nil)
	}
	if token != want {
		kind := "an object"
		if want == '[' {
			kind = "an array"
		}
		return problem.Newf(problem.Invalid, "", "expected the request to be JSON with %s here", kind)
	}
	return nil
}

// decodeError turns a decoder's error into a message for the author of the JSON.
func decodeError(where string, err error, t reflect.Type) error {
	if p := transportProblem(err); p != nil {
		return p
	}
	var wrongType *json.UnmarshalTypeError
	if errors.As(err, &wrongType) {
		if wrongType.Field != "" {
			where += wrongType.Field + ": "
		}
		return problem.Newf(problem.Invalid, "", "%sa JSON %s is not allowed there", where, text.Escape(wrongType.Value))
	}
	if key, found := unknownKey(err); found {
		return problem.Newf(problem.Invalid, suggest(key, keysOf(t)), "%sthere is no key %s", where, quoted(key))
	}
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return problem.Newf(problem.Invalid, "", "%sthe JSON ends too early", where)
	}
	return problem.Newf(problem.Invalid, "", "%s%s", where, strings.TrimPrefix(err.Error(), "json: "))
}

// transportProblem is the problem of a body that was too large or too slow; nil
// if the JSON itself is wrong.
func transportProblem(err error) *problem.Problem {
	p, _ := errors.AsType[*problem.Problem](err)
	return p
}

// unknownKey extracts the key from the decoder's error, which has no type of its
// own.
func unknownKey(err error) (string, bool) {
	text, found := strings.CutPrefix(err.Error(), "json: unknown field ")
	if !found {
		return "", false
	}
	key, err := strconv.Unquote(text)
	return key, err == nil
}

// keysOf lists the JSON keys of a struct and of its struct fields: the decoder
// does not say how deep a key was.
func keysOf(t reflect.Type) []string {
	var keys []string
	if t == nil || t.Kind() != reflect.Struct {
		return nil
	}
	for i := range t.NumField() {
		key, _, _ := strings.Cut(t.Field(i).Tag.Get("json"), ",")
		if key != "" && key != "-" {
			keys = append(keys, key)
		}
		if t.Field(i).Type.PkgPath() == t.PkgPath() {
			keys = append(keys, keysOf(t.Field(i).Type)...)
		}
	}
	return keys
}

// suggest is the hint for an unknown key: the nearest known one if there is one,
// or all of them.
func suggest(key string, known []string) string {
	if len(known) == 0 {
		return ""
	}
	known = slices.Sorted(slices.Values(known))
	if near := text.Nearest(key, known); near != "" {
		return "did you mean " + near + "?"
	}
	return "the keys are " + strings.Join(slices.Compact(known), ", ")
}
