package mcp

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"sync"
	"time"

	"berth/internal/text"
)

// Bounds on what an agent sends.
const (
	maxMessage  = 4 << 20 // bytes of one message
	mostWaiting = 64      // calls; more are not read until one has ended
)

// Versions of the protocol, newest first. From modern on each request names its
// version and nothing is initialised; until batching ended, a line could hold
// several messages.
const (
	modern        = "2026-07-28"
	batchingEnded = "2025-06-18"
)

var versions = []string{modern, "2025-11-25", batchingEnded, "2025-03-26", "2024-11-05"}

// Codes of errors, from JSON-RPC and the Model Context Protocol.
const (
	notJSON        = -32700
	notARequest    = -32600
	noSuchMethod   = -32601
	badParameters  = -32602
	unknownVersion = -32022
)

// message is a request (with an ID), a notification, or an answer, which is ignored.
type message struct {
	Version string          `json:"jsonrpc"`
	ID      json.RawMessage `json:"id"`
	Method  string          `json:"method"`
	Params  json.RawMessage `json:"params"`
	Result  json.RawMessage `json:"result"`
	Error   json.RawMessage `json:"error"`
}

// parameters are those of all methods.
type parameters struct {
	Meta struct {
		Version string `json:"io.modelcontextprotocol/protocolVersion"`
	} `json:"_meta"`
	ProtocolVersion string          `json:"protocolVersion"` // initialize
	Cursor          string          `json:"cursor"`          // tools/list
	Name            string          `json:"name"`            // tools/call
	Arguments       any             `json:"arguments"`
	RequestID       json.RawMessage `json:"requestId"` // notifications/cancelled
}

// reply answers a request.
type reply struct {
	Version string          `json:"jsonrpc"`
	ID      json.RawMessage `json:"id"`
	Result  any             `json:"result,omitempty"`
	Error   *refusal        `json:"error,omitempty"`
}

type refusal struct {
	Code    int    `json:"code"`
	Message string `json:"message"`
	Data    any    `json:"data,omitempty"`
}

func refuse(code int, format string, args ...any) *refusal {
	return &refusal{Code: code, Message: fmt.Sprintf(format, args...)}
}

// conversation is JSON-RPC 2.0 with one agent, a message a line. Calls are carried
// out one after another; everything else is answered meanwhile.
type conversation struct {
	*server
	version string      // that was agreed on; empty before that
	calls   chan func() // in the order in which they came

	mu   sync.Mutex // of what follows, and of writing
	out  io.Writer
	open map[string]context.CancelFunc // calls without an answer, by ID
}

// listen answers what comes until the input ends, and then what is left, for as long
// as one call may take.
func (c *conversation) listen(ctx context.Context, in io.Reader) error {
	done := make(chan struct{})
	go func() {
		defer close(done)
		for call := range c.calls {
			call()
		}
	}()
	lines := bufio.NewScanner(in)
	lines.Buffer(nil, maxMessage)
	for lines.Scan() {
		c.answerLine(ctx, bytes.TrimSpace(lines.Bytes()))
	}
	close(c.calls)
	select {
	case <-done:
	case <-time.After(callTime + time.Second): // its refusal is written too
	}
	return lines.Err()
}

// answerLine answers a line. One that is not JSON does not end the conversation.
func (c *conversation) answerLine(ctx context.Context, line []byte) {
	switch {
	case len(line) == 0:
	case !json.Valid(line):
		c.write(answerTo(nil, nil, refuse(notJSON, "expected one JSON message a line, found something else")))
	case line[0] == '[':
		c.answerBatch(ctx, line)
	default:
		c.handle(ctx, line, func(r *reply) {
			if r != nil {
				c.write(r)
			}
		})
	}
}

// answerBatch answers several messages with one line.
func (c *conversation) answerBatch(ctx context.Context, line []byte) {
	var batch []json.RawMessage
	_ = json.Unmarshal(line, &batch) // it is valid
	if len(batch) == 0 || c.version >= batchingEnded {
		c.write(answerTo(nil, nil, refuse(notARequest, "expected one message a line, found a batch of %d", len(batch))))
		return
	}
	var mu sync.Mutex
	var replies []*reply
	left := len(batch)
	for _, one := range batch {
		c.handle(ctx, one, func(r *reply) {
			mu.Lock()
			defer mu.Unlock()
			if r != nil {
				replies = append(replies, r)
			}
			if left--; left == 0 && len(replies) > 0 {
				c.write(replies)
			}
		})
	}
}

// handle calls answer once: at once, or at the end of a call; with nil where the
// agent expects nothing.
func (c *conversation) handle(ctx context.Context, data []byte, answer func(*reply)) {
	var m message
	var p parameters
	err := json.Unmarshal(data, &m)
	named := len(m.ID) > 0 && (m.ID[0] == '"' || m.ID[0] == '-' || m.ID[0] >= '0' && m.ID[0] <= '9')
	isAnswer := m.Method == "" && (m.Result != nil || m.Error != nil)
	switch {
	case err != nil || m.Version != "2.0" || m.Method == "" && !isAnswer || len(m.ID) > 0 && !named:
		if !named {
			m.ID = nil
		}
		answer(answerTo(m.ID, nil, refuse(notARequest, "expected a message of JSON-RPC 2.0 with a method, and an id that is a string or a number")))
		return
	case isAnswer:
		answer(nil)
		return
	}
	if len(m.Params) > 0 {
		err = json.Unmarshal(m.Params, &p)
	}
	switch {
	case !named:
		if m.Method == "notifications/cancelled" && err == nil {
			c.cancel(p.RequestID)
		}
		answer(nil)
	case err != nil:
		answer(answerTo(m.ID, nil, refuse(badParameters, "expected the parameters of %s: %v", m.Method, err)))
	default:
		result, refused := c.respond(m.Method, &p)
		if call, is := result.(*tool); is {
			c.start(ctx, m.ID, call, &p, answer)
			return
		}
		answer(answerTo(m.ID, result, refused))
	}
}

// respond is the result of a request. That of a call is its tool.
func (c *conversation) respond(method string, p *parameters) (any, *refusal) {
	isModern := p.Meta.Version >= modern
	if isModern && !slices.Contains(versions, p.Meta.Version) {
		return nil, &refusal{unknownVersion, "unsupported protocol version", map[string]any{"supported": versions, "requested": p.Meta.Version}}
	}
	switch {
	case method == "initialize" && !isModern:
		if c.version != "" {
			return nil, refuse(notARequest, "expected initialize once, found it again")
		}
		if c.version = p.ProtocolVersion; !slices.Contains(versions[1:], c.version) {
			c.version = versions[1] // the agent knows it, or leaves
		}
		return map[string]any{"protocolVersion": c.version, "capabilities": capabilities, "serverInfo": c.info(), "instructions": instructions}, nil
	case method == "ping" && !isModern:
		return map[string]any{}, nil
	case method == "server/discover" && isModern:
		return c.complete(p, map[string]any{"supportedVersions": versions, "capabilities": capabilities, "instructions": instructions, "ttlMs": 0, "cacheScope": "public"}), nil
	case method != "tools/list" && method != "tools/call":
		return nil, refuse(noSuchMethod, "method not found: %q", method)
	case c.version == "" && !isModern:
		return nil, refuse(notARequest, "expected initialize first, found %s", method)
	case method == "tools/list" && p.Cursor != "":
		return nil, refuse(badParameters, "expected no cursor: there is one page")
	case method == "tools/list":
		return c.complete(p, map[string]any{"tools": c.tools, "ttlMs": 0, "cacheScope": "public"}), nil
	}
	for _, t := range c.tools {
		if t.Name == p.Name {
			return t, nil
		}
	}
	return nil, refuse(badParameters, "unknown tool %q", p.Name)
}

var capabilities = map[string]any{"tools": struct{}{}}

func (c *conversation) info() map[string]string {
	return map[string]string{"name": "berth", "title": "berth, a GPU job scheduler", "version": c.Version}
}

// complete adds what the modern protocol has in every result.
func (c *conversation) complete(p *parameters, result map[string]any) map[string]any {
	if p.Meta.Version >= modern {
		result["resultType"] = "complete"
		result["_meta"] = map[string]any{"io.modelcontextprotocol/serverInfo": c.info()}
	}
	return result
}

// start lines a call up. One that is cancelled has no answer.
func (c *conversation) start(ctx context.Context, id json.RawMessage, t *tool, p *parameters, answer func(*reply)) {
	ctx, cancel := context.WithCancel(ctx)
	c.mu.Lock()
	twice := c.open[string(id)] != nil
	if !twice {
		c.open[string(id)] = cancel
	}
	c.mu.Unlock()
	if twice {
		cancel()
		answer(answerTo(id, nil, refuse(notARequest, "expected an id of its own, found that of a call without an answer")))
		return
	}
	c.calls <- func() {
		defer cancel()
		var r *reply
		if ctx.Err() == nil {
			r = answerTo(id, c.complete(p, t.call(ctx, p.Arguments).fields()), nil)
		}
		if !c.closed(ctx, id) {
			r = nil
		}
		answer(r)
	}
}

// closed takes a call off the open ones, unless it was cancelled.
func (c *conversation) closed(ctx context.Context, id json.RawMessage) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if ctx.Err() != nil {
		return false
	}
	delete(c.open, string(id))
	return true
}

// cancel ends a call.
func (c *conversation) cancel(id json.RawMessage) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if cancel := c.open[string(id)]; cancel != nil {
		cancel()
		delete(c.open, string(id))
	}
}

// answerTo makes a reply; without an ID, to what has none that can be read.
func answerTo(id json.RawMessage, result any, refused *refusal) *reply {
	if id == nil {
		id = json.RawMessage("null")
	}
	return &reply{"2.0", id, result, refused}
}

func (c *conversation) write(value any) {
	data := text.MustJSON(value)
	c.mu.Lock()
	defer c.mu.Unlock()
	_, _ = c.out.Write(append(data, '\n')) // nobody may be left to read it
}
