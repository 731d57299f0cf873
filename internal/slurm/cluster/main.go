package cluster

import (
	"bytes"
	"context"
	"encoding/gob"
	"encoding/json"
	"fmt"
	"io"
)

// maxRequest bounds what the process reads.
const maxRequest = 512 << 20

// Encode is a request as the process reads it. JSON would change bytes that are not
// UTF-8, which a command, a variable or a path may have.
func Encode(r Request) ([]byte, error) {
	var encoded bytes.Buffer
	if err := gob.NewEncoder(&encoded).Encode(&r); err != nil {
		return nil, fmt.Errorf("encode a request: %w", err)
	}
	return encoded.Bytes(), nil
}

// serve carries out the request on its input. It returns the exit status.
func serve(in io.Reader, out io.Writer) int {
	var r Request
	if err := gob.NewDecoder(io.LimitReader(in, maxRequest)).Decode(&r); err != nil {
		return 2
	}
	// The answer may be the user's own invention, and JSON is made to read such.
	if err := json.NewEncoder(out).Encode(Do(context.Background(), r)); err != nil {
		return 1
	}
	return 0
}
