package slurm

import (
	"cmp"
	"errors"
	"os"
	"os/exec"
	"slices"
	"syscall"

	"berth/internal/compat/frontend"
	"berth/internal/job/jobfile"
	"berth/internal/text"
)

var salloc = frontend.Program{Name: "salloc", Usage: sallocUsage, Run: runSalloc}

const sallocUsage = `usage: salloc [OPTION...] [COMMAND [ARG...]]

Run a shell or a command as a berth job, in your terminal. Whatever it starts uses
the job's GPUs. The job ends when it does. The options are those of sbatch.

  -h, --help  print this

Exit status: that of the command; 1 refused; 255 bad usage.

Example:
  salloc --gres=gpu:1 --time=1:00:00
`

func runSalloc(c *frontend.Call) int {
	w := &wishes{}
	return w.run(c, w.options(), cmp.Or(os.Getenv("SHELL"), "/bin/sh"))
}

// srunOptions are those of an srun that makes a job.
func (w *wishes) srunOptions() options {
	known := w.options()
	known["pty"] = option{kind: optional, set: on(0, &w.terminal).set}
	for _, name := range []string{"multi-prog", "het-group", "jobid"} {
		known[name] = refused(0, optional, "a berth job has one command")
	}
	for name, flag := range map[string]string{"label": "-l", "kill-on-bad-exit": "-K"} { // of its step
		o := (&step{}).options()[name]
		known[name] = option{o.short, o.kind, func(string) error { w.step = append(w.step, flag); return nil }}
	}
	return known
}

// run runs a command as a job in the foreground. Without one it runs the shell,
// in a terminal.
func (w *wishes) run(c *frontend.Call, known options, shell string) int {
	command, err := known.parse(c.Args, false)
	if err == nil && len(command) == 0 {
		if command, w.terminal = []string{shell}, true; shell == "" {
			err = errors.New("expected a command, found none")
		}
	}
	asked, ignored, wrong := jobfile.TranslateSlurm(w.job)
	if err = cmp.Or(err, wrong); err != nil {
		return c.Misuse(err.Error(), badUsage)
	}
	w.ignored = append(w.ignored, ignored...)
	w.mention(c)
	defaults := []jobfile.Pair{{Key: "name", Value: text.Clip(command[0], 60)}}
	if w.terminal || shell != "" {
		defaults = append(defaults, jobfile.Pair{Key: "pty", Value: "yes"})
	}
	flags, err := w.berthFlags(slices.Concat(defaults, asked))
	if err != nil {
		return fail(c, err)
	}
	several := slices.ContainsFunc(asked, func(p jobfile.Pair) bool { return p.Key == "env.SLURM_NTASKS" })
	if _, err := exec.LookPath(command[0]); shell == "" && errors.Is(err, exec.ErrNotFound) {
		c.Complain(text.Found(command[0])+" cannot be executed: "+syscall.ENOENT.Error(), "")
		return int(syscall.ENOENT)
	}
	if shell == "" && (several || len(w.step) > 0) {
		command = slices.Concat([]string{"srun"}, w.step, []string{"--"}, command)
	}
	if in, ok := hasInput(c); ok && shell == "" && !w.terminal {
		pipe, done, err := feed(in)
		if err != nil {
			return fail(c, err)
		}
		defer done()
		command = fed(pipe, os.Getpid(), command)
	}
	return c.Verb(c.Out, slices.Concat([]string{"submit", "--interactive"}, flags, []string{"--"}, command))
}
