package api

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"strconv"
	"unicode/utf8"

	"berth/internal/job"
	"berth/internal/text/problem"
)

// prepare: JSON cannot hold text that is not UTF-8, so commands and variables go as
// bytes then, and any other text of a job is refused.
func (r *SubmitRequest) prepare() error {
	for i := range r.Jobs {
		if c := &r.Jobs[i].Command; !utf8.ValidString(c.Shell) {
			r.Jobs[i].Bytes, c.Shell = []byte(c.Shell), ""
		}
		if err := checkText(&r.Jobs[i]); err != nil {
			return err
		}
	}
	if !utf8.ValidString(r.Dir) {
		return problem.Newf(problem.Invalid, "", "the directory %s is not UTF-8", strconv.QuoteToASCII(r.Dir))
	}
	r.Environ, r.EnvironBytes = splitEnviron(r.Environ)
	return nil
}

// appendSpec writes a spec as encoding/json does, which a test holds: see texts.
func appendSpec(b []byte, s *Spec) []byte {
	start := len(b)
	member := func(key string) {
		first := byte(',')
		if len(b) == start {
			first = '{'
		}
		b = append(append(append(b, first, '"'), key...), `":`...)
	}
	if s.Command.Shell != "" || s.Command.Argv != nil {
		member("command")
		if len(s.Command.Argv) == 0 {
			b = appendText(b, s.Command.Shell)
		} else {
			b = appendAny(b, s.Command.Argv)
		}
	}
	if len(s.Bytes) > 0 {
		member("command_bytes")
		b = appendAny(b, s.Bytes)
	}
	if len(s.Env) > 0 {
		member("env")
		b = appendMap(b, s.Env, appendText)
	}
	for i, text := range s.texts() {
		if *text != "" {
			member(textKeys[i])
			b = appendText(b, *text)
		}
	}
	if s.Sweep != nil {
		member("sweep")
		b = appendAny(b, s.Sweep)
	}
	if len(b) == start {
		b = append(b, '{')
	}
	return append(b, '}')
}

// usualSpec is about how many bytes a spec has as JSON.
const usualSpec = 128

// body is the request as JSON, whose first member is its jobs.
func (r *SubmitRequest) body() ([]byte, error) {
	const begin = `{"jobs":[`
	others := *r
	others.Jobs = []Spec{}
	rest, err := json.Marshal(&others)
	b := append(make([]byte, 0, usualSpec*len(r.Jobs)+len(rest)), begin...)
	for i := range r.Jobs {
		if i > 0 {
			b = append(b, ',')
		}
		b = appendSpec(b, &r.Jobs[i])
	}
	return append(b, rest[min(len(rest), len(begin)):]...), err
}

func (r *EditRequest) prepare() error { return checkText(&r.Set) }

func checkText(s *Spec) error {
	bad := ""
	for _, word := range s.Command.Argv {
		if !utf8.ValidString(word) {
			bad = "command"
		}
	}
	for i, text := range s.texts() {
		if !utf8.ValidString(string(*text)) {
			bad = textKeys[i]
		}
	}
	for name, value := range s.Env {
		if !utf8.ValidString(name + value) {
			bad = "env"
		}
	}
	if bad != "" {
		return problem.Newf(problem.Invalid, "", "%s of a job is not UTF-8", bad)
	}
	return nil
}

func splitEnviron(environ []string) (kept []string, others [][]byte) {
	for i, entry := range environ {
		if utf8.ValidString(entry) {
			if others != nil {
				kept = append(kept, entry)
			}
			continue
		}
		if others == nil {
			kept = append([]string{}, environ[:i]...)
		}
		others = append(others, []byte(entry))
	}
	if others == nil {
		return environ, nil
	}
	return kept, others
}

// JobsAll calls fn with every job of all pages, or the first q.Limit of them,
// and returns the last page without its jobs, and with the arrays and jobs files of
// all pages, some maybe more than once.
func (c *Client) JobsAll(ctx context.Context, q Query, fn func(job.View) error) (JobPage, error) {
	var last JobPage
	arrays := map[string]Tasks{}
	var batches []BatchSum
	err := c.pages(ctx, q, func(data []byte) (string, error) {
		var page JobPage
		if err := decodePage(data, &page); err != nil {
			return "", c.unexpected(err)
		}
		for _, view := range page.Jobs {
			if err := fn(view); err != nil {
				return "", err
			}
		}
		maps.Copy(arrays, page.Arrays)
		batches = append(batches, page.Batches...)
		last = page
		last.Jobs, last.Arrays, last.Batches = nil, arrays, batches
		return page.Next, nil
	})
	return last, err
}

// JobsRaw writes all pages as one JSON array, each job as the daemon sent it, up
// to q.Limit.
func (c *Client) JobsRaw(ctx context.Context, q Query, w io.Writer) error {
	before := "[" // nothing is written before the daemon has replied
	err := c.pages(ctx, q, func(data []byte) (string, error) {
		inside, next, err := splitPage(data)
		if err != nil {
			return "", c.unexpected(err)
		}
		if len(inside) == 0 {
			return next, nil
		}
		if _, err := io.WriteString(w, before); err != nil {
			return "", err
		}
		before = ","
		_, err = w.Write(inside)
		return next, err
	})
	if err != nil {
		return err
	}
	after := "]\n"
	if before == "[" {
		after = "[]\n"
	}
	_, err = io.WriteString(w, after)
	return err
}

// pages fetches page after page. each returns the next cursor: a page that has one
// is full. A page is read whole before it is shown, so that a slow reader does not
// hold up the daemon.
func (c *Client) pages(ctx context.Context, q Query, each func([]byte) (next string, err error)) error {
	for left := q.Limit; ; left -= q.Limit {
		q.Limit = c.pageJobs
		if left > 0 {
			q.Limit = min(left, c.pageJobs)
		}
		data, err := c.ask(ctx, &ListJobs.Operation, &q)
		if err != nil {
			return err
		}
		next, err := each(data)
		if err != nil || next == "" || left == q.Limit {
			return err
		}
		if next == q.After {
			return fmt.Errorf("the daemon at %s sends the same page again", c.place)
		}
		q.After = next
	}
}
