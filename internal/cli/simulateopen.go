package cli

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"berth/internal/sched"
	"berth/internal/sched/sim"
	"berth/internal/text/problem"
)

// maxWorkloadBytes bounds the size of a trace or a snapshot.
const maxWorkloadBytes = 1 << 30

// openWorkload reads a trace or a snapshot; - is standard input. The first byte
// tells them apart: a trace begins with the name of a column.
func openWorkload(name string, stdin io.Reader) (*sim.Workload, error) {
	from, shown := stdin, standardInput
	if name != "-" {
		file, err := os.Open(name)
		if err != nil {
			return nil, problem.Newf(problem.Invalid, "berth simulate --help lists the columns of a trace", "%v", unopened(name, err))
		}
		defer file.Close()
		from, shown = file, name
	}
	r := bufio.NewReader(&bounded{from: from, left: maxWorkloadBytes})
	if !beginsAsJSON(r) {
		return sim.ReadTrace(shown, filepath.Base(shown), r)
	}
	data, err := io.ReadAll(r)
	if err != nil {
		return nil, problem.Newf(problem.Invalid, "berth debug snapshot writes one", "%s: %v", shown, err)
	}
	state, err := sched.UnmarshalState(data)
	if err != nil {
		return nil, badSnapshot(shown, err)
	}
	w, err := sim.FromSnapshot(filepath.Base(shown), &state)
	if err != nil {
		return nil, problem.Newf(problem.Invalid, "paused and quarantined GPUs take no jobs; take the snapshot again when one is in service", "%s: %v", filepath.Base(shown), err)
	}
	return w, nil
}

// beginsAsJSON reports whether the file begins like JSON.
func beginsAsJSON(r *bufio.Reader) bool {
	head, _ := r.Peek(64) // the reader reports the error
	head = bytes.TrimLeft(head, "\ufeff \t\r\n")
	return len(head) > 0 && (head[0] == '{' || head[0] == '[')
}

// standardInput is the name of - in messages.
const standardInput = "standard input"

func badSnapshot(name string, err error) error {
	if errors.Is(err, sched.ErrNoSnapshot) {
		return problem.Newf(problem.Invalid, "berth debug snapshot FILE writes a snapshot", "%s is neither a CSV trace nor a snapshot", name)
	}
	hint := "take it again with berth debug snapshot"
	if name != standardInput {
		hint += " " + name
	}
	return problem.Newf(problem.Invalid, hint, "%s: %v", name, err)
}

// bounded fails after a number of bytes, so that a cut file does not pass as
// complete.
type bounded struct {
	from io.Reader
	left int64
}

func (b *bounded) Read(p []byte) (int, error) {
	if b.left <= 0 {
		return 0, fmt.Errorf("larger than %d MiB", maxWorkloadBytes>>20)
	}
	n, err := b.from.Read(p[:min(int64(len(p)), b.left)])
	b.left -= int64(n)
	return n, err
}
