package cluster

import (
	"bytes"
	"context"
	"encoding/gob"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"sync"
	"syscall"

	"berth/internal/slurm/client"
)

// Word is the first argument of the process that carries out a request for a user.
const Word = "__slurm"

// maxRequest bounds what the process reads.
const maxRequest = 512 << 20

// message is a request on its way to the process. JSON would change bytes that are
// not UTF-8, which a command, a variable or a path may have.
type message struct {
	Environ []string // of Slurm's programs
	Request any
}

// answer is what the process prints. A user can invent it, and JSON is made to read
// such.
type answer[R any] struct {
	Reply R
	Error string
}

// register names the types of requests for gob. Most starts of berth need none.
var register = sync.OnceFunc(func() {
	for _, q := range []any{submitRequest{}, takeRequest{}, stopRequest{}, cancelRequest{}, holdRequest{}, listRequest{}, accountRequest{}, memoryRequest{}, lookRequest{}, removeRequest{}, sweepRequest{}} {
		gob.Register(q)
	}
})

func encode(environ []string, q any) ([]byte, error) {
	register()
	var encoded bytes.Buffer
	if err := gob.NewEncoder(&encoded).Encode(message{environ, q}); err != nil {
		return nil, fmt.Errorf("encode a request: %w", err)
	}
	return encoded.Bytes(), nil
}

func decode(in io.Reader) (m message, err error) {
	register()
	err = gob.NewDecoder(io.LimitReader(in, maxRequest)).Decode(&m)
	return m, err
}

// answerTo is what the process prints for a request.
func answerTo(ctx context.Context, s client.Client, request any) any {
	switch q := request.(type) {
	case submitRequest:
		return answered(ctx, s, q)
	case takeRequest:
		return answered(ctx, s, q)
	case stopRequest:
		return answered(ctx, s, q)
	case cancelRequest:
		return answered(ctx, s, q)
	case holdRequest:
		return answered(ctx, s, q)
	case listRequest:
		return answered(ctx, s, q)
	case accountRequest:
		return answered(ctx, s, q)
	case memoryRequest:
		return answered(ctx, s, q)
	case lookRequest:
		return answered(ctx, s, q)
	case removeRequest:
		return answered(ctx, s, q)
	case sweepRequest:
		return answered(ctx, s, q)
	}
	return answer[none]{Error: fmt.Sprintf("bug: no request %T", request)}
}

func answered[R any](ctx context.Context, s client.Client, q request[R]) any {
	reply, err := q.do(ctx, s)
	if err != nil {
		return answer[R]{reply, err.Error()}
	}
	return answer[R]{Reply: reply}
}

// serve carries out the request on its input. It returns the exit status.
func serve(in io.Reader, out io.Writer) int {
	m, err := decode(in)
	if err != nil {
		return 2
	}
	if err := json.NewEncoder(out).Encode(answerTo(context.Background(), client.Client{Environ: m.Environ}, m.Request)); err != nil {
		return 1
	}
	return 0
}

// Main carries out the request on its input with the rights it has, or connects to
// a job. It returns the exit status.
func Main(args []string) int {
	if len(args) > 0 && args[0] == attachWord {
		fmt.Fprintln(os.Stderr, "berth:", attachMain(args[1:], os.Environ()))
		return 1
	}
	syscall.Umask(0o077)
	return serve(os.Stdin, os.Stdout)
}
