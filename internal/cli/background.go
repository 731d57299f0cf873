package cli

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"golang.org/x/sys/unix"

	"berth/internal/batch"
)

// outputName is the file in the log directory with what a berth run in the
// background prints.
const outputName = "run.out"

// What a berth in the background writes to progressFile.
const (
	progressFile  = 3
	progressReady = "ready"
	progressTaken = "taken"
)

// onlyOnce are flags that a berth which continues a run must not repeat, or that
// are about the terminal.
var onlyOnce = map[string]bool{"fresh": true, "retry": true, "retry-failed": true, "accept-empty-store": true, "no-color": true, "detached": true}

// background is a berth run without a terminal, started to continue this one.
type background struct {
	pid      int
	output   string
	from     int64 // where in the output it begins
	progress chan string
	over     chan error
}

func (b *background) PID() int       { return b.pid }
func (b *background) Output() string { return b.output }

// startBackground starts the same berth run again, without a terminal, and
// returns when it waits for the queue.
func (f *runFlags) startBackground(ctx context.Context, cmd *cobra.Command, file string) (*background, error) {
	self, err := selfProgram()
	if err != nil {
		return nil, fmt.Errorf("find this program: %w", err)
	}
	args := []string{"run", "--detached"}
	cmd.Flags().Visit(func(flag *pflag.Flag) {
		if !onlyOnce[flag.Name] {
			args = append(args, "--"+flag.Name+"="+flag.Value.String())
		}
	})
	b := &background{output: filepath.Join(f.opt.LogDir, outputName), progress: make(chan string, 4), over: make(chan error, 1)}
	out, err := os.OpenFile(b.output, os.O_CREATE|os.O_WRONLY|os.O_APPEND|unix.O_NOFOLLOW, 0o644)
	if err != nil {
		return nil, err
	}
	defer out.Close()
	if b.from, err = out.Seek(0, io.SeekEnd); err != nil {
		return nil, err
	}
	told, tells, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer tells.Close()
	child := exec.Command(self, append(args, "--", file)...)
	child.Stdout, child.Stderr, child.ExtraFiles = out, out, []*os.File{tells}
	wait, err := batch.StartApart(child)
	if err != nil {
		told.Close()
		return nil, err
	}
	b.pid = child.Process.Pid
	go func() { b.over <- wait() }()
	go func() {
		defer told.Close()
		defer close(b.progress)
		for lines := bufio.NewScanner(told); lines.Scan(); {
			b.progress <- lines.Text()
		}
	}()
	bounded, cancel := context.WithTimeout(ctx, startPatience)
	defer cancel()
	if err := b.await(bounded, progressReady); err != nil {
		_ = child.Process.Kill() // it must not take the queue later
		return nil, err
	}
	return b, nil
}

// await returns when the berth in the background has reached a step, or why it has
// not.
func (b *background) await(ctx context.Context, wanted string) error {
	for {
		select {
		case word, more := <-b.progress:
			switch {
			case word == wanted || word == progressTaken:
				return nil
			case !more:
				return fmt.Errorf("the berth in the background ended (%s)%s", exitOf(<-b.over), b.lastWords())
			}
		case <-ctx.Done():
			return fmt.Errorf("the berth in the background (pid %d) is not ready yet; see %s", b.pid, b.output)
		}
	}
}

// Took returns when the berth in the background has the queue.
func (b *background) Took(ctx context.Context) error { return b.await(ctx, progressTaken) }

// lastWords are what it printed, if that is little.
func (b *background) lastWords() string {
	text, err := os.ReadFile(b.output)
	if err != nil || int64(len(text)) <= b.from {
		return ""
	}
	const most = 2000
	words := strings.TrimSpace(string(text[b.from:]))
	return ": " + strings.ReplaceAll(words[max(0, len(words)-most):], "\n", "; ")
}

// inBackground is what this berth says to the one that started it.
func inBackground() *batch.Background {
	out := os.NewFile(progressFile, "progress")
	syscall.CloseOnExec(progressFile)
	say := func(word string) { _, _ = fmt.Fprintln(out, word) } // the other may be gone
	return &batch.Background{
		Ready: func() { say(progressReady) },
		Taken: func() { say(progressTaken); out.Close() },
	}
}
