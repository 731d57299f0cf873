package cluster

import (
	"bytes"
	"context"
	"encoding/gob"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"reflect"
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

// requests is what answers each type of request. It also names the types for gob;
// most starts of berth need neither.
var requests = sync.OnceValue(func() map[reflect.Type]answerer {
	all := map[reflect.Type]answerer{}
	know[submitRequest](all)
	know[takeRequest](all)
	know[stopRequest](all)
	know[cancelRequest](all)
	know[holdRequest](all)
	know[listRequest](all)
	know[accountRequest](all)
	know[memoryRequest](all)
	know[lookRequest](all)
	know[removeRequest](all)
	know[sweepRequest](all)
	return all
})

// answerer carries out a request, and returns what the process prints.
type answerer func(ctx context.Context, s client.Client, request any) any

func know[Q request[R], R any](all map[reflect.Type]answerer) {
	gob.Register(*new(Q))
	all[reflect.TypeFor[Q]()] = func(ctx context.Context, s client.Client, q any) any {
		reply, err := q.(Q).do(ctx, s)
		if err != nil {
			return answer[R]{reply, err.Error()}
		}
		return answer[R]{Reply: reply}
	}
}

func encode(environ []string, q any) ([]byte, error) {
	requests()
	var encoded bytes.Buffer
	if err := gob.NewEncoder(&encoded).Encode(message{environ, q}); err != nil {
		return nil, fmt.Errorf("encode a request: %w", err)
	}
	return encoded.Bytes(), nil
}

func decode(in io.Reader) (m message, err error) {
	requests()
	err = gob.NewDecoder(io.LimitReader(in, maxRequest)).Decode(&m)
	return m, err
}

// serve carries out the request on its input. It returns the exit status.
func serve(in io.Reader, out io.Writer) int {
	m, err := decode(in)
	carryOut := requests()[reflect.TypeOf(m.Request)]
	if err != nil || carryOut == nil {
		return 2
	}
	if err := json.NewEncoder(out).Encode(carryOut(context.Background(), client.Client{Environ: m.Environ}, m.Request)); err != nil {
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
