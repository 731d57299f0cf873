package api

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
)

// Call asks a daemon. Unknown keys of the reply are ignored: the daemon may be newer.
func Call[Q, R any](ctx context.Context, c *Client, e *Endpoint[Q, R], q Q) (R, error) {
	var reply R
	data, err := c.ask(ctx, &e.Operation, &q)
	if err != nil || e.Status != 0 {
		return reply, err
	}
	if page, is := any(&reply).(*JobPage); is {
		err = decodePage(data, page)
	} else {
		err = json.Unmarshal(data, &reply)
	}
	if err != nil {
		return reply, c.unexpected(err)
	}
	return reply, nil
}

// Do is Call for a reply without a body.
func Do[Q any](ctx context.Context, c *Client, e *Endpoint[Q, None], q Q) error {
	_, err := Call(ctx, c, e, q)
	return err
}

// ask sends a request and reads the whole reply.
func (c *Client) ask(ctx context.Context, op *Operation, q any) ([]byte, error) {
	reply, err := c.send(ctx, op, q, nil)
	if err != nil {
		return nil, err
	}
	defer reply.Body.Close()
	data, err := readReply(reply)
	if err != nil {
		return nil, c.explain(ctx, err)
	}
	return data, nil
}

// send sends a request. The caller closes the body of the reply.
func (c *Client) send(ctx context.Context, op *Operation, q any, header http.Header) (*http.Response, error) {
	if q, is := q.(prepared); is {
		if err := q.prepare(); err != nil {
			return nil, err
		}
	}
	if q, is := q.(lasting); is {
		ctx = taking(ctx, q.takes())
	}
	if q, is := q.(headed); is {
		header = q.header()
	}
	path, query := writeURL(op.Path, q)
	var body []byte
	if op.Body != noBody {
		var err error
		if r, is := q.(*SubmitRequest); is {
			body, err = r.body()
		} else {
			body, err = json.Marshal(q)
		}
		if err != nil {
			return nil, fmt.Errorf("write request: %w", err)
		}
	}
	return c.start(ctx, op.Method, path, query, body, header)
}
