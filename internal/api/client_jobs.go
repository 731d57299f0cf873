package api

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"berth/internal/job"
	"berth/internal/text/problem"
)

// Status asks about the daemon itself.
func (c *Client) Status(ctx context.Context) (Status, error) {
	return call[Status](ctx, c, http.MethodGet, "/v1/status", nil, nil)
}

// Submit submits jobs. JSON cannot hold text that is not UTF-8: commands and
// variables go as bytes then, and any other text of a job is refused.
func (c *Client) Submit(ctx context.Context, r SubmitRequest) (SubmitReply, error) {
	for i := range r.Jobs {
		if c := &r.Jobs[i].Command; !utf8.ValidString(c.Shell) {
			r.Jobs[i].Bytes, c.Shell = []byte(c.Shell), ""
		}
		if err := checkText(&r.Jobs[i]); err != nil {
			return SubmitReply{}, err
		}
	}
	if !utf8.ValidString(r.Dir) {
		return SubmitReply{}, problem.Newf(problem.Invalid, "", "the directory %s is not UTF-8", strconv.QuoteToASCII(r.Dir))
	}
	r.Environ, r.EnvironBytes = splitEnviron(r.Environ)
	return call[SubmitReply](ctx, c, http.MethodPost, "/v1/jobs", nil, r)
}

func checkText(s *Spec) error {
	bad := ""
	for _, word := range s.Command.Argv {
		if !utf8.ValidString(word) {
			bad = "command"
		}
	}
	for _, pair := range s.Pairs() {
		if !utf8.ValidString(pair.Key + pair.Value) {
			bad, _, _ = strings.Cut(pair.Key, ".")
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

// Jobs returns one page of jobs.
func (c *Client) Jobs(ctx context.Context, q Query) (JobPage, error) {
	return call[JobPage](ctx, c, http.MethodGet, "/v1/jobs", q.values(), nil)
}

// Batches sums up jobs files and arrays.
func (c *Client) Batches(ctx context.Context, q BatchQuery) ([]BatchSum, error) {
	return call[[]BatchSum](ctx, c, http.MethodGet, "/v1/batches", q.values(), nil)
}

// JobsAll calls fn with every job of all pages, or the first q.Limit of them,
// and returns the last page without its jobs, and with the arrays and jobs files of
// all pages, some maybe more than once.
func (c *Client) JobsAll(ctx context.Context, q Query, fn func(job.View) error) (JobPage, error) {
	var last JobPage
	arrays := map[string]Tasks{}
	var batches []BatchSum
	_, err := c.pages(ctx, q, func(data []byte) (int, string, error) {
		var page JobPage
		if err := json.Unmarshal(data, &page); err != nil {
			return 0, "", fmt.Errorf("unexpected reply from the daemon at %s: %w", c.place, err)
		}
		for _, view := range page.Jobs {
			if err := fn(view); err != nil {
				return 0, "", err
			}
		}
		n := len(page.Jobs)
		maps.Copy(arrays, page.Arrays)
		batches = append(batches, page.Batches...)
		last = page
		last.Jobs, last.Arrays, last.Batches = nil, arrays, batches
		return n, page.Next, nil
	})
	return last, err
}

// JobsRaw writes all pages as one JSON array, each job as the daemon sent it, up
// to q.Limit.
func (c *Client) JobsRaw(ctx context.Context, q Query, w io.Writer) error {
	before := "[" // nothing is written before the daemon has replied
	_, err := c.pages(ctx, q, func(data []byte) (int, string, error) {
		page, err := splitPage(data)
		if err != nil {
			return 0, "", fmt.Errorf("unexpected reply from the daemon at %s: %w", c.place, err)
		}
		if page.count == 0 {
			return 0, page.next, nil
		}
		if _, err := io.WriteString(w, before); err != nil {
			return 0, "", err
		}
		before = ","
		_, err = w.Write(page.inside)
		return page.count, page.next, err
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

// pages fetches page after page. each returns the number of jobs and the next
// cursor. A page is read whole before it is shown, so that a slow reader does
// not hold up the daemon.
func (c *Client) pages(ctx context.Context, q Query, each func([]byte) (int, string, error)) (int, error) {
	left, seen := q.Limit, 0
	for {
		q.Limit = c.pageJobs
		if left > 0 {
			q.Limit = min(left-seen, c.pageJobs)
		}
		data, err := c.ask(ctx, http.MethodGet, "/v1/jobs", q.values(), nil)
		if err != nil {
			return seen, err
		}
		n, next, err := each(data)
		seen += n
		if err != nil || next == "" || left > 0 && seen >= left {
			return seen, err
		}
		if next == q.After {
			return seen, fmt.Errorf("the daemon at %s sends the same page again", c.place)
		}
		q.After = next
	}
}

// Job returns everything about one job.
func (c *Client) Job(ctx context.Context, id string) (Detail, error) {
	return call[Detail](ctx, c, http.MethodGet, jobPath(id), nil, nil)
}

// Snapshots lists the snapshots of code that the caller's jobs refer to.
func (c *Client) Snapshots(ctx context.Context) (SnapshotIDs, error) {
	return call[SnapshotIDs](ctx, c, http.MethodGet, "/v1/snapshots", nil, nil)
}

// Why says why a job waits.
func (c *Client) Why(ctx context.Context, id string) (Why, error) {
	return call[Why](ctx, c, http.MethodGet, jobPath(id, "why"), nil, nil)
}

// Act carries out an action on the selected jobs.
func (c *Client) Act(ctx context.Context, r ActRequest) (ActReply, error) {
	return call[ActReply](ctx, c, http.MethodPost, "/v1/jobs/act", nil, r)
}

// Edit changes a queued job.
func (c *Client) Edit(ctx context.Context, id string, r EditRequest) (Detail, error) {
	if err := checkText(&r.Set); err != nil {
		return Detail{}, err
	}
	return call[Detail](ctx, c, http.MethodPatch, jobPath(id), nil, r)
}

// Wait waits for at most a minute; to wait longer, call it again.
func (c *Client) Wait(ctx context.Context, r WaitRequest) (WaitReply, error) {
	ctx = taking(ctx, time.Duration(r.TimeoutS*float64(time.Second)))
	return call[WaitReply](ctx, c, http.MethodPost, "/v1/jobs/wait", nil, r)
}
