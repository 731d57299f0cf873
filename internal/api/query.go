package api

import (
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"berth/internal/text/problem"
)

// The queries as they are in a URL. Both ends are here so that they cannot drift
// apart: what values writes, the reader of the same name reads.

// Bounds on what a query may carry.
const (
	maxQueryValues = 1000 // ids or states in one query
	maxValueBytes  = 256  // of one value
	maxPathBytes   = 4096 // of the path of a file
	maxPageLimit   = 10000
)

func (q Query) values() url.Values {
	v := url.Values{}
	putList(v, "id", q.Words)
	putBool(v, "all", q.All)
	putText(v, "name", q.Name)
	putText(v, "user", q.User)
	putText(v, "group", q.Group)
	putText(v, "batch", q.Batch)
	putList(v, "state", q.States)
	putBool(v, "over", q.Over)
	putBool(v, "newest", q.Newest)
	putTime(v, "since", q.Since)
	putInt(v, "limit", int64(q.Limit))
	putText(v, "after", q.After)
	putBool(v, "reasons", q.Reasons)
	putBool(v, "order", q.Order)
	putBool(v, "idle", q.Idle)
	putBool(v, "queue", q.Queue)
	putBool(v, "arrays", q.Arrays)
	putBool(v, "batches", q.Batches)
	return v
}

func readQuery(p *params) Query {
	q := Query{
		Select: Select{
			Words: p.list("id"), All: p.bool("all"), Name: p.text("name"),
			User: p.text("user"), Group: p.text("group"), Batch: p.path("batch"), States: p.list("state"),
		},
		Over: p.bool("over"), Newest: p.bool("newest"), Since: p.time("since"),
		Limit: int(p.int("limit", 0, maxPageLimit)), After: p.text("after"), Reasons: p.bool("reasons"),
		Order: p.bool("order"), Idle: p.bool("idle"), Queue: p.bool("queue"), Arrays: p.bool("arrays"), Batches: p.bool("batches"),
	}
	return q
}

func (q BatchQuery) values() url.Values {
	v := url.Values{}
	putText(v, "file", q.File)
	putText(v, "user", q.User)
	return v
}

func readBatchQuery(p *params) BatchQuery {
	return BatchQuery{File: p.path("file"), User: p.text("user")}
}

func (q LogQuery) values() url.Values {
	v := url.Values{}
	putInt(v, "attempt", int64(q.Attempt))
	putInt(v, "offset", q.Offset)
	putInt(v, "lines", int64(q.Lines))
	putBool(v, "follow", q.Follow)
	putBool(v, "pieces", q.pieces)
	return v
}

func readLogQuery(p *params) LogQuery {
	return LogQuery{
		Attempt: int(p.int("attempt", 0, 1<<31-1)),
		Offset:  p.int("offset", -1<<62, 1<<62),
		Lines:   int(p.int("lines", 0, 1<<31-1)),
		Follow:  p.bool("follow"),
		pieces:  p.bool("pieces"),
	}
}

func (q EventQuery) values() url.Values {
	v := url.Values{}
	putInt(v, "since", q.Since)
	putText(v, "user", q.User)
	putText(v, "job", q.Job)
	putBool(v, "gpus", q.GPUs)
	return v
}

func readEventQuery(p *params) EventQuery {
	return EventQuery{Since: p.int("since", -1, 1<<62), User: p.text("user"), Job: p.text("job"), GPUs: p.bool("gpus")}
}

func (q StatsQuery) values() url.Values {
	v := url.Values{}
	putTime(v, "since", q.Since)
	putTime(v, "until", q.Until)
	putText(v, "user", q.User)
	return v
}

func readStatsQuery(p *params) StatsQuery {
	return StatsQuery{Since: p.time("since"), Until: p.time("until"), User: p.text("user")}
}

func (q CardQuery) values() url.Values {
	v := url.Values{}
	if q.GPU != nil {
		v.Set("gpu", strconv.Itoa(*q.GPU))
	}
	putTime(v, "since", q.Since)
	putInt(v, "limit", int64(q.Limit))
	return v
}

func readCardQuery(p *params) CardQuery {
	q := CardQuery{Since: p.time("since"), Limit: int(p.int("limit", 1, maxCardEvents))}
	if q.Limit == 0 {
		q.Limit = usualEvents
	}
	if index := int(p.int("gpu", 0, maxGPU)); p.values.Get("gpu") != "" {
		q.GPU = &index
	}
	return q
}

func putText(v url.Values, key, value string) {
	if value != "" {
		v.Set(key, value)
	}
}

func putList(v url.Values, key string, values []string) {
	if len(values) > 0 {
		v[key] = values
	}
}

func putBool(v url.Values, key string, value bool) {
	if value {
		v.Set(key, "true")
	}
}

func putInt(v url.Values, key string, value int64) {
	if value != 0 {
		v.Set(key, strconv.FormatInt(value, 10))
	}
}

func putTime(v url.Values, key string, value *time.Time) {
	if value != nil {
		v.Set(key, value.Format(time.RFC3339Nano))
	}
}

// params reads a URL's query and keeps its first error. An unknown key is an
// error too: a misspelt filter must not select everything.
type params struct {
	values url.Values
	asked  []string
	err    *problem.Problem
}

func newParams(rawQuery string) (*params, error) {
	values, err := url.ParseQuery(rawQuery)
	if err != nil {
		return nil, problem.Newf(problem.Invalid, "", "the query of the URL is malformed")
	}
	return &params{values: values}, nil
}

// done is the first error.
func (p *params) done() error {
	if p.err != nil {
		return p.err
	}
	for key := range p.values {
		if !slices.Contains(p.asked, key) {
			return problem.Newf(problem.Invalid, suggest(key, p.asked), "there is no parameter %s", quoted(key))
		}
	}
	return nil
}

func (p *params) wrong(key, value, want string) {
	if p.err == nil {
		p.err = problem.Newf(problem.Invalid, "", "%s: expected %s, found %s", key, want, quoted(value))
	}
}

func (p *params) text(key string) string { return p.within(key, maxValueBytes) }

func (p *params) path(key string) string { return p.within(key, maxPathBytes) }

func (p *params) within(key string, most int) string {
	p.asked = append(p.asked, key)
	value := p.values.Get(key)
	if len(value) > most {
		p.wrong(key, value, "at most "+strconv.Itoa(most)+" bytes")
	}
	return value
}

// list accepts a key several times, and commas within a value.
func (p *params) list(key string) []string {
	p.asked = append(p.asked, key)
	var all []string
	for _, value := range p.values[key] {
		for part := range strings.SplitSeq(value, ",") {
			if part == "" {
				continue
			}
			if len(part) > maxValueBytes || len(all) == maxQueryValues {
				p.wrong(key, part, "at most 1000 values of 256 bytes")
				return nil
			}
			all = append(all, part)
		}
	}
	return all
}

func (p *params) bool(key string) bool {
	switch value := p.text(key); {
	case !p.values.Has(key) || value == "false" || value == "0":
		return false
	case value == "true" || value == "1" || value == "":
		return true
	default:
		p.wrong(key, value, "true or false")
		return false
	}
}

func (p *params) int(key string, least, most int64) int64 {
	value := p.text(key)
	if value == "" {
		return 0
	}
	n, err := strconv.ParseInt(value, 10, 64)
	if err != nil || n < least || n > most {
		p.wrong(key, value, "a whole number from "+strconv.FormatInt(least, 10)+" to "+strconv.FormatInt(most, 10))
		return 0
	}
	return n
}

func (p *params) time(key string) *time.Time {
	value := p.text(key)
	if value == "" {
		return nil
	}
	t, err := time.Parse(time.RFC3339, value)
	if err != nil {
		p.wrong(key, value, "a time like 2026-03-01T16:00:00Z")
		return nil
	}
	return &t
}
