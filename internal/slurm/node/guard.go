package node

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"strconv"
	"syscall"

	"berth/internal/job"
	"berth/internal/machine/run"
	"berth/internal/queue/store"
	"berth/internal/slurm/handover"
)

// guard is a process that only waits for the death of the wrapper. If that is
// killed, its supervisor and the job would go on, and nobody would write the
// record: the guard then stops the job and writes it.
type guard struct {
	pipe io.WriteCloser
	done chan struct{}
}

// allWell is what a guard reads if it is not needed.
const allWell = "done"

func (n *node) startGuard() (*guard, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("start the guard: %w", err)
	}
	cmd := exec.Command(self, Word, guardWord, n.dir, strconv.Itoa(n.index), n.state)
	cmd.Env, cmd.Stderr = append(n.environ, "GOGC=25", "GOMAXPROCS=1"), os.Stderr
	pipe, err := cmd.StdinPipe()
	var wait func() error
	if err == nil {
		wait, err = run.StartApart(cmd)
	}
	if err != nil {
		return nil, fmt.Errorf("start the guard: %w", err)
	}
	g := &guard{pipe: pipe, done: make(chan struct{})}
	go func() {
		_ = wait() // it has nothing to say
		close(g.done)
	}()
	return g, nil
}

// dismiss ends the guard.
func (g *guard) dismiss() {
	if g == nil {
		return
	}
	_, _ = io.WriteString(g.pipe, allWell) // one that is gone needs no word
	_ = g.pipe.Close()
	<-g.done
}

// guardJob is the guard's process.
func guardJob(dir string, index int, state string, in io.Reader, errs io.Writer) int {
	signal.Ignore(syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP)
	if last, _ := io.ReadAll(in); string(last) == allWell {
		return 0
	}
	n, err := load(dir, index, os.Environ(), errs)
	if err == nil {
		n.state = state
		err = n.takeOver()
	}
	if err != nil {
		fmt.Fprintln(errs, "berth:", err)
		return 1
	}
	return 0
}

// errWrapperKilled is why a job ended whose wrapper was killed.
var errWrapperKilled = errors.New("berth's process on the node was killed, and the job with it")

// takeOver ends what a killed wrapper left.
func (n *node) takeOver() error {
	begun, err := handover.ReadBegun(n.dir, n.index)
	if err != nil {
		return err
	}
	if begun == nil || begun.Dir != n.state {
		return os.RemoveAll(n.state) // nothing has begun
	}
	if r, err := handover.ReadRecord(n.dir, n.index); r != nil || err != nil {
		return errors.Join(err, os.RemoveAll(n.state))
	}
	n.began = begun.At
	n.stop.request(syscall.SIGKILL)
	if err := n.open(context.Background()); err != nil {
		n.gaveUp = fmt.Errorf("%w: %w", errWrapperKilled, err)
	} else if err := n.endJob(); err != nil {
		n.gaveUp = fmt.Errorf("%w: %w", errWrapperKilled, err)
	}
	r := n.record()
	if r.Stopped != job.NoStop && n.gaveUp == nil {
		r.Detail = errWrapperKilled.Error()
	}
	n.leave(r)
	n.close()
	return nil
}

// endJob stops the job that the wrapper left, unless it has ended.
func (n *node) endJob() error {
	found, err := n.queue.Runner.Scan()
	if err != nil {
		return err
	}
	j, err := n.queue.Store.Job(n.order.Job.ID)
	switch {
	case errors.Is(err, store.ErrNotFound):
		return errors.New("it had not started")
	case err != nil:
		return err
	case j.State.Terminal():
		n.ended = j
		return nil
	}
	n.token = j.Keep
	n.newEngine(j.Seq)
	if err := n.queue.TakeOver(found); err != nil {
		return err
	}
	n.loop(func(ctx context.Context) { go n.halt(ctx) })
	return n.gaveUp
}
