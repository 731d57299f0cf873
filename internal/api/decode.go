package api

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"berth/internal/problem"
	"berth/internal/text"
)

// maxEnvironBytes bounds what of a submission is not its jobs: above all the
// caller's environment. The kernel itself takes no more for a process.
const maxEnvironBytes = 6 << 20

// decode reads one JSON value from a body that holds nothing else. Keys that
// do not exist are refused: a misspelt wish must not be dropped in silence.
func decode(body io.Reader, to any) error {
	d := json.NewDecoder(body)
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
		return problem.Newf(problem.Invalid, "", "the body holds more than one JSON value")
	}
	return nil
}

// decodeSubmit reads a submission job by job, so that a big one is never in
// memory twice and one job cannot be bigger than its limit. It is the one
// request whose size matters: ten thousand jobs take some tens of
// milliseconds.
func decodeSubmit(body io.Reader, l Limits) (SubmitRequest, error) {
	var r SubmitRequest
	gate := &gate{from: body}
	d := json.NewDecoder(gate)
	d.DisallowUnknownFields()
	gate.allow(d, l.SpecBytes, "the request")
	if err := opening(d, '{'); err != nil {
		return r, err
	}
	for d.More() {
		gate.allow(d, l.SpecBytes, "a key")
		token, err := d.Token()
		if err != nil {
			return r, decodeError("", err, nil)
		}
		key, _ := token.(string) // the decoder takes nothing else for a key
		if key == "jobs" && r.Jobs != nil {
			err = problem.Newf(problem.Invalid, "", "jobs is there twice")
		} else if key == "jobs" {
			r.Jobs, err = decodeSpecs(d, gate, l)
		} else {
			gate.allow(d, maxEnvironBytes, key)
			err = decodeMember(d, &r, key)
		}
		if err != nil {
			return r, err
		}
		gate.allow(d, l.SpecBytes, "the request")
	}
	if _, err := d.Token(); err != nil {
		return r, decodeError("", err, nil)
	}
	if len(r.Jobs) == 0 {
		return r, problem.Newf(problem.Invalid, `send {"jobs": [{"command": "…"}]}`, "the request has no jobs")
	}
	return r, atEnd(d)
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
			specs = slices.Grow(specs, max(64, len(specs))) // a spec is large to copy: seldom
		}
		specs = append(specs, Spec{})
		if err := d.Decode(&specs[len(specs)-1]); err != nil {
			return nil, decodeError(fmt.Sprintf("jobs[%d]: ", len(specs)-1), err, reflect.TypeFor[Spec]())
		}
	}
	if _, err := d.Token(); err != nil {
		return nil, decodeError("", err, nil)
	}
	return specs, nil
}

// decodeMember reads one key of a submission other than its jobs.
func decodeMember(d *json.Decoder, r *SubmitRequest, key string) error {
	fields := map[string]any{
		"dir": &r.Dir, "environ": &r.Environ, "umask": &r.Umask, "dry_run": &r.DryRun,
		"interactive": &r.Interactive, "term": &r.Term,
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

// gate lets a decoder read only so far ahead of where it stands, so that what
// is too big is refused before it is in memory: decoded JSON can take many
// times the room of its text.
type gate struct {
	from    io.Reader
	what    string
	job     int // where what is empty: it is the job of this number
	most    int64
	read    int64
	allowed int64
}

// allow opens the gate for the next value.
func (g *gate) allow(d *json.Decoder, most int64, what string) {
	g.what, g.most = what, most
	g.allowed = d.InputOffset() + most
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
		return problem.Newf(problem.Invalid, "", "the request is no JSON of the right shape: %s is wanted", kind)
	}
	return nil
}

// decodeError turns a decoder's error into words for whoever wrote the JSON.
func decodeError(where string, err error, t reflect.Type) error {
	if p := transportProblem(err); p != nil {
		return p
	}
	var wrongType *json.UnmarshalTypeError
	if errors.As(err, &wrongType) {
		if wrongType.Field != "" {
			where += wrongType.Field + ": "
		}
		return problem.Newf(problem.Invalid, "", "%sa JSON %s does not belong there", where, text.Escape(wrongType.Value))
	}
	if key, found := unknownKey(err); found {
		return problem.Newf(problem.Invalid, suggest(key, keysOf(t)), "%sthere is no key %s", where, quoted(key))
	}
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return problem.Newf(problem.Invalid, "", "%sthe JSON ends too early", where)
	}
	return problem.Newf(problem.Invalid, "", "%s%s", where, strings.TrimPrefix(err.Error(), "json: "))
}

// transportProblem is the problem of a body that could not be read at all:
// too large, or too slow. Nil for anything that is the JSON's own fault.
func transportProblem(err error) *problem.Problem {
	p, _ := errors.AsType[*problem.Problem](err)
	return p
}

// unknownKey picks the key out of the decoder's refusal, which has no type of
// its own.
func unknownKey(err error) (string, bool) {
	text, found := strings.CutPrefix(err.Error(), "json: unknown field ")
	if !found {
		return "", false
	}
	key, err := strconv.Unquote(text)
	return key, err == nil
}

// keysOf lists the JSON keys of a struct, those of its struct fields too:
// the decoder does not say how deep a key stood.
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

// suggest is the hint that goes with an unknown key: the nearest known one if
// it is near, and all of them.
func suggest(key string, known []string) string {
	if len(known) == 0 {
		return ""
	}
	known = slices.Sorted(slices.Values(known))
	if near := text.Nearest(key, known); near != "" {
		return "did you mean " + near + "?"
	}
	return "known: " + strings.Join(slices.Compact(known), ", ")
}

func contains(list []string, word string) bool { return slices.Contains(list, word) }

// quoted shows what a caller wrote, shortened and harmless.
func quoted(written string) string { return text.Quote(written, 80) }
