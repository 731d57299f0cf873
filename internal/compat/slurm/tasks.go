package slurm

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"berth/internal/compat/frontend"
)

// task makes the environment of a step that of one of its tasks.
func (s *step) task(env *variables, number int) {
	var all []string
	for i := range s.tasks {
		all = append(all, strconv.Itoa(i))
	}
	env.set("SLURM_GTIDS", strings.Join(all, ","))
	env.set("SLURM_PROCID", all[number])
	env.set("SLURM_LOCALID", all[number])
	if s.gpusPerTask == 0 || s.tasks == 1 {
		return
	}
	var mine []int
	for i := range s.gpusPerTask {
		mine = append(mine, number*s.gpusPerTask+i)
	}
	for _, name := range perGPU {
		if list := entries(env.get(name)); len(list) == s.gpus {
			env.set(name, pick(list, mine))
		}
	}
}

// asTask runs a command that knows its own number.
const asTask = `export SLURM_TASK_PID=$$; exec "$@"`

// start runs the tasks of a step and waits for them. The status is the highest, as
// in Slurm.
func (s *step) start(c *frontend.Call, command []string, env *variables) (status int) {
	if _, missing := find(c, command[0], env); missing != 0 {
		return missing
	}
	tasks, opened := make([]*exec.Cmd, s.tasks), map[string]*os.File{}
	var feeds []io.Writer
	var terminal sync.Mutex
	_, reads := hasInput(c)
	for i := range tasks {
		own := environment(env.list)
		s.task(own, i)
		files, err := s.files(own, opened)
		if err != nil {
			c.Complain(err.Error(), "")
			return frontend.Failed // no task has started
		}
		cmd := exec.Command("/bin/sh", append([]string{"-c", asTask, "srun"}, command...)...)
		cmd.Env, cmd.Stdout, cmd.Stderr = own.list, os.Stdout, os.Stderr
		if s.label {
			prefix := fmt.Sprintf("%*d: ", len(strconv.Itoa(s.tasks-1)), i)
			cmd.Stdout, cmd.Stderr = labelled(os.Stdout, prefix, &terminal), labelled(os.Stderr, prefix, &terminal)
		}
		if files[1] != nil {
			cmd.Stdout = files[1]
		}
		if files[2] != nil {
			cmd.Stderr = files[2]
		}
		switch {
		case files[0] != nil:
			cmd.Stdin = files[0]
		case reads: // each task reads all of it
			pipe, err := cmd.StdinPipe()
			if err != nil {
				return fail(c, err)
			}
			feeds = append(feeds, pipe)
		}
		tasks[i] = cmd
	}
	return s.attend(c, tasks, feeds)
}

// attend starts the tasks and waits for the last.
func (s *step) attend(c *frontend.Call, tasks []*exec.Cmd, feeds []io.Writer) (status int) {
	signals := make(chan os.Signal, 4)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	defer signal.Stop(signals)
	end := func(with os.Signal) {
		for _, task := range tasks {
			if task.Process != nil {
				_ = task.Process.Signal(with) // it may have ended
			}
		}
	}
	ended := make(chan int)
	running := 0
	for i, task := range tasks {
		if err := task.Start(); err != nil {
			c.Complain(fmt.Sprintf("task %d: %v", i, err), "")
			status = frontend.Failed
			end(os.Kill)
			break
		}
		running++
		go func() {
			_ = task.Wait() // its state says how it ended
			for _, out := range []io.Writer{task.Stdout, task.Stderr} {
				if lines, ok := out.(*frontend.Lines); ok {
					lines.Flush("")
				}
			}
			ended <- i
		}()
	}
	if len(feeds) > 0 {
		go broadcast(c.In, feeds)
	}
	var grace <-chan time.Time
	for running > 0 {
		select {
		case with := <-signals:
			end(with)
		case <-grace:
			end(os.Kill)
		case i := <-ended:
			running--
			one, how := outcome(tasks[i].ProcessState)
			if status = max(status, one); one != 0 {
				c.Complain(fmt.Sprintf("error: %s: task %d: %s", os.Getenv("SLURMD_NODENAME"), i, how), "")
			}
			if one != 0 && s.endOnFailure && grace == nil {
				end(syscall.SIGTERM)
				grace = time.After(stepGrace)
			}
		}
	}
	return status
}

// stepGrace is how long tasks have after TERM when another has failed: Slurm's
// KillWait.
const stepGrace = 30 * time.Second

// outcome is the status of a task and Slurm's words for it.
func outcome(state *os.ProcessState) (status int, how string) {
	if by, isUnix := state.Sys().(syscall.WaitStatus); isUnix && by.Signaled() {
		how := by.Signal().String()
		return 128 + int(by.Signal()), strings.ToUpper(how[:1]) + how[1:]
	}
	return state.ExitCode(), fmt.Sprintf("Exited with exit code %d", state.ExitCode())
}

// broadcast copies the input to every task. One that has ended or closed its input
// does not keep it from the others.
func broadcast(in io.Reader, to []io.Writer) {
	buffer := make([]byte, 32<<10)
	for {
		n, err := in.Read(buffer)
		for i, w := range to {
			if _, failed := w.Write(buffer[:n]); failed != nil {
				to[i] = io.Discard
			}
		}
		if err != nil {
			break
		}
	}
	for _, w := range to {
		if closer, ok := w.(io.Closer); ok {
			_ = closer.Close() // its task may have ended
		}
	}
}

// maxLabelled bounds a line that is kept until its end.
const maxLabelled = 64 << 10

// labelled begins each line with the number of a task.
func labelled(out io.Writer, prefix string, lock *sync.Mutex) io.Writer {
	return &frontend.Lines{Most: maxLabelled, Each: func(line []byte) error {
		lock.Lock()
		defer lock.Unlock()
		_, err := io.WriteString(out, prefix+string(bytes.TrimSuffix(line, []byte{'\n'}))+"\n")
		return err
	}}
}
