package mcp

import (
	"bufio"
	"encoding/json"
	"io"
	"sync"
	"time"
)

// maxMessage bounds one message.
const maxMessage = 4 << 20

// stream is between the agent and the protocol, one message a line. A line that
// is not JSON is answered with an error instead of ending the server, and the end of
// the input reaches the protocol once every request before it has been answered.
type stream struct {
	end  func() error // of the reading, once
	from *bufio.Scanner
	rest []byte // of the line that is being read

	mu       sync.Mutex // of what follows, and of writing
	out      io.Writer
	open     int           // requests without an answer
	answered chan struct{} // something was written
}

func newStream(in io.ReadCloser, out io.Writer) *stream {
	s := &stream{end: sync.OnceValue(in.Close), out: out, from: bufio.NewScanner(in), answered: make(chan struct{}, 1)}
	s.from.Buffer(nil, maxMessage)
	return s
}

// envelope tells requests, answers and notifications apart.
type envelope struct {
	ID     json.RawMessage `json:"id"`
	Method string          `json:"method"`
}

func (s *stream) Read(p []byte) (int, error) {
	for len(s.rest) == 0 {
		if !s.from.Scan() {
			s.drain()
			if err := s.from.Err(); err != nil {
				return 0, err
			}
			return 0, io.EOF
		}
		line := s.from.Bytes()
		if len(line) == 0 {
			continue
		}
		if !json.Valid(line) {
			s.refuse()
			continue
		}
		var e envelope
		if json.Unmarshal(line, &e) == nil && e.Method != "" && len(e.ID) > 0 {
			s.mu.Lock()
			s.open++
			s.mu.Unlock()
		}
		s.rest = append(append(s.rest[:0], line...), '\n')
	}
	n := copy(p, s.rest)
	s.rest = s.rest[n:]
	return n, nil
}

// drain waits until every request has been answered, for as long as one may take.
func (s *stream) drain() {
	late := time.After(callTime)
	for {
		s.mu.Lock()
		open := s.open
		s.mu.Unlock()
		if open <= 0 {
			return
		}
		select {
		case <-s.answered:
		case <-late:
			return
		}
	}
}

// refuse answers a line that is not JSON.
func (s *stream) refuse() {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, _ = io.WriteString(s.out, `{"jsonrpc":"2.0","id":null,"error":{"code":-32700,"message":"expected one JSON message a line, found something else"}}`+"\n") // nobody may be left to read it
}

func (s *stream) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	n, err := s.out.Write(p)
	var e envelope
	if json.Unmarshal(p, &e) == nil && e.Method == "" && len(e.ID) > 0 {
		s.open--
	}
	select {
	case s.answered <- struct{}{}:
	default:
	}
	return n, err
}

// Close ends the reading. The output stays open: it is the program's own.
func (s *stream) Close() error { return s.end() }
