package mcp

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"berth/internal/api"
	"berth/internal/text"
	"berth/internal/text/problem"
)

// How much of a log one call returns.
const (
	usualLines = 100
	mostLines  = 2000
	usualBytes = 16 << 10
	mostBytes  = maxAnswer
	growth     = 3 // of a byte that cannot be shown
)

type logsInput struct {
	Job     word   `json:"job" jsonschema:"the job: an id (17, 17_0), a name, or @ for the last one"`
	Attempt int    `json:"attempt,omitempty" jsonschema:"which attempt, from 1; default the latest"`
	Lines   int    `json:"lines,omitempty" jsonschema:"the last this many lines, up to 2000; default 100"`
	Offset  *int64 `json:"offset,omitempty" jsonschema:"instead of lines: from this byte of the log on, as the answer before said; negative: from that many bytes before the end"`
	Bytes   int    `json:"bytes,omitempty" jsonschema:"at most this many bytes, up to 65536; default 16384"`
}

func (in *logsInput) check() error {
	switch {
	case in.Lines != 0 && in.Offset != nil:
		return problem.Newf(problem.Invalid, "", "expected lines or offset, found both")
	case in.Lines < 0 || in.Lines > mostLines:
		return problem.Newf(problem.Invalid, "", "lines: expected 1 to %d, found %d", mostLines, in.Lines)
	case in.Bytes < 0 || in.Bytes > mostBytes:
		return problem.Newf(problem.Invalid, "", "bytes: expected 1 to %d, found %d", mostBytes, in.Bytes)
	case in.Attempt < 0:
		return problem.Newf(problem.Invalid, "", "attempt: expected 1 or more, found %d", in.Attempt)
	}
	return nil
}

// logs reads a part of a log. What is not read is not sent either, so the size of
// a log does not matter.
func (s *server) logs(ctx context.Context, in logsInput) (*result, error) {
	if err := in.check(); err != nil {
		return nil, err
	}
	most := in.Bytes
	most = cmp.Or(most, usualBytes)
	query := api.LogQuery{ID: string(in.Job), Attempt: in.Attempt, Lines: in.Lines}
	query.Lines = cmp.Or(query.Lines, usualLines)
	if in.Offset != nil {
		query.Lines, query.Offset = 0, *in.Offset
	}
	part, err := s.part(ctx, query, most)
	if err == nil && part.more && in.Offset == nil {
		// The last lines are long. Their end is what counts.
		query.Lines, query.Offset = 0, -int64(most)
		part, err = s.part(ctx, query, most)
	}
	if err == nil && len(part.shown()) > maxAnswer {
		// Each byte may become a character of three.
		query.Lines, query.Offset = 0, part.from
		part, err = s.part(ctx, query, most/growth)
	}
	if err != nil {
		return nil, err
	}
	return &result{texts: []string{part.heading(string(in.Job)), part.shown()}}, nil
}

// part is a part of a log.
type part struct {
	attempt    int
	from, next int64
	raw        []byte
	more       bool // there was more
}

func (s *server) part(ctx context.Context, q api.LogQuery, most int) (part, error) {
	log, err := s.Client.Log(ctx, q)
	if err != nil {
		return part{}, err
	}
	defer log.Close()
	p := part{attempt: log.Attempt(), from: log.Offset(), raw: make([]byte, most)}
	n, err := io.ReadFull(log, p.raw)
	p.raw, p.next = p.raw[:n], log.Offset()
	switch {
	case errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF):
		return p, nil
	case err != nil:
		return part{}, err
	}
	extra, _ := log.Read(make([]byte, 1)) // an error is found by the next call
	p.more = extra > 0
	return p, nil
}

func (p part) heading(id string) string {
	head := fmt.Sprintf("job %s, attempt %d, bytes %d to %d of its log", text.Line(text.Clip(id, maxCell)), p.attempt, p.from, p.next)
	switch {
	case len(p.raw) == 0:
		return head + "; nothing was printed there so far"
	case p.more:
		return fmt.Sprintf("%s; there is more: go on with offset %d", head, p.next)
	}
	return head + ", its end so far"
}

// shown is the text without what is for a terminal: colours, control characters,
// and the earlier states of a line that was overwritten.
func (p part) shown() string {
	var lines []string
	for line := range bytes.Lines(p.raw) {
		line = bytes.TrimRight(line, "\r\n")
		if at := bytes.LastIndexByte(line, '\r'); at >= 0 {
			line = line[at+1:]
		}
		var clean strings.Builder
		w := text.LogWriter{Out: &clean, Plain: true}
		_, _ = w.Write(line) // neither fails
		_ = w.Close()
		lines = append(lines, clean.String())
	}
	return strings.Join(lines, "\n")
}
