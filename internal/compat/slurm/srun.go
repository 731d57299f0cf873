package slurm

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"berth/internal/compat/frontend"
	"berth/internal/job/jobfile"
	"berth/internal/text"
)

// srun runs a command as a step. With one task it becomes that command, so
// signals, output and exit status are the command's own.
var srun = frontend.Program{Name: "srun", Usage: srunUsage, Run: runSrun}

const srunUsage = `usage: srun [OPTION...] COMMAND [ARG...]

Inside a job with SLURM_ variables, run a command as a step of the job: as many
tasks as the job has (sbatch -n), each with its own SLURM_PROCID. Slurm's other
options for starting tasks are accepted and ignored.

Elsewhere, submit the command as a job of its own, pass on standard input unless it
is a terminal, show its output, and exit with its status; --pty gives it the
terminal. The options are those of sbatch.

  -n, --ntasks N            start N tasks, up to the job's tasks or CPUs
  -G, --gpus N, --gres gpu:N
                            only N of the job's GPUs; waits while other steps
                            that asked for some have them all
      --gpus-per-task N     N GPUs for each task, which no other task sees
  -c, --cpus-per-task N     set SLURM_CPUS_PER_TASK
  -D, --chdir DIR           working directory
  -o, --output FILE, -e, --error FILE, -i, --input FILE
                            instead of the job's; %j id, %x name, %u user, %N
                            machine, %a %A array, %t %n %s task, node and step
      --open-mode append    keep what is in these files
      --export LIST         ALL, NONE, or NAME,NAME=VALUE
  -l, --label               begin each line with the number of its task
  -K, --kill-on-bad-exit    end the other tasks when one fails
  -O, --overcommit          more tasks than the job has CPUs
      --jobid ID            this job; another is refused
  -N, --nodes 1             more than one is refused
  -h, --help                print this

Exit status: that of the command, the highest of several tasks; 2 it cannot be
found; 255 bad usage.

Example:
  srun python train.py
  srun --gres=gpu:1 --pty bash
  srun --gres=gpu:1 python a.py & srun --gres=gpu:1 python b.py & wait
`

// badUsage is srun's own status for options that it cannot read.
const badUsage = 255

// step is what the options of one srun ask for.
type step struct {
	gpus                       int // -1: all of the job's
	gpusPerTask                int // 0: each task has all of the step's
	tasks                      int // 0: as many as the job has
	cpus, dir, export          string
	input, output, errout      string
	label, endOnFailure, crowd bool
	openMode                   string
}

// count reads a number of tasks or GPUs for each.
func count(to *int) func(string) error {
	return func(value string) error {
		n, whole := text.Digits(value[strings.LastIndexByte(value, ':')+1:], 6)
		if !whole || n == 0 {
			return text.Mismatch(value, "a whole number above 0")
		}
		*to = n
		return nil
	}
}

// asJob reads an option that means of a step what the one of this name means of a
// job: how many nodes, of which berth has one, and how many GPUs.
func (s *step) asJob(name string) func(string) error {
	return func(value string) error {
		if value == "none" {
			value = "gpu:0" // of --gres
		}
		pairs, _, err := jobfile.TranslateSlurm([]jobfile.SlurmOption{{Name: name, Value: value}})
		if err != nil {
			return errors.New(strings.TrimPrefix(err.Error(), "--"+name+": "))
		}
		for _, pair := range pairs {
			if n, whole := text.Digits(pair.Value, 6); pair.Key == "gpus" && whole {
				s.gpus = n
			}
		}
		return nil
	}
}

const noContainer = "berth runs no containers of Slurm's; call apptainer, podman or docker in the job"

// ownJob accepts the job that srun runs in: there is no way into another one.
func ownJob(value string) error {
	if value != os.Getenv("SLURM_JOB_ID") && value != os.Getenv("BERTH_JOB_ID") {
		return fmt.Errorf("expected this job, %s, found %s; berth attach reaches the terminal of another", os.Getenv("SLURM_JOB_ID"), text.Found(value))
	}
	return nil
}

// options are those of a step.
func (s *step) options() options {
	known := options{
		"ntasks": {'n', valued, count(&s.tasks)}, "nodes": {'N', valued, s.asJob("nodes")}, "ntasks-per-gpu": {0, valued, s.asJob("ntasks-per-gpu")},
		"ntasks-per-node": {0, valued, func(value string) error {
			if s.tasks > 0 {
				return nil // --ntasks says how many
			}
			return count(&s.tasks)(value)
		}},
		"gpus": {'G', valued, s.asJob("gpus")}, "gpus-per-task": {0, valued, count(&s.gpusPerTask)}, "gpus-per-node": {0, valued, s.asJob("gpus")}, "gres": {0, valued, s.asJob("gres")},
		"cpus-per-task": kept('c', &s.cpus), "chdir": kept('D', &s.dir),
		"input": kept('i', &s.input), "output": kept('o', &s.output),
		"error": kept('e', &s.errout), "export": kept(0, &s.export),

		"label": on('l', &s.label), "overcommit": on('O', &s.crowd), "open-mode": kept(0, &s.openMode), "jobid": {0, valued, ownJob},
		"kill-on-bad-exit": {'K', optional, func(value string) error { s.endOnFailure = value != "0"; return nil }},

		"multi-prog": refused(0, bare, "berth starts one command; start the others with separate srun commands in the background"),
		"time":       refused('t', valued, "a step has no time limit of its own; use timeout, or the job's"),
		"het-group":  refused(0, valued, "a berth job has one part"), "container": refused(0, valued, noContainer),
	}
	known.ignore(bare, "exact overlap oversubscribe:s unbuffered:u quiet:Q verbose:v whole disable-status:X preserve-env:E contiguous")
	known.ignore(optional, "pty exclusive no-kill:k immediate:I propagate")
	return known.ignore(valued, "account:A partition:p qos:q constraint:C nodelist:w exclude:x licenses:L relative:r wait:W job-name:J comment deadline mail-type mail-user "+
		"cpu-bind mem-bind gpu-bind mpi distribution:m hint mem mem-per-cpu mem-per-gpu cpus-per-gpu cpu-freq threads-per-core threads:T "+
		"gres-flags tres-per-task profile acctg-freq prolog epilog task-prolog task-epilog sockets-per-node cores-per-socket extra-node-info:B")
}

func runSrun(c *frontend.Call) int {
	if os.Getenv("BERTH_JOB_ID") == "" || os.Getenv("SLURM_JOB_ID") == "" {
		w := &wishes{}
		return w.run(c, w.srunOptions(), "")
	}
	s := step{gpus: -1}
	command, err := s.options().parse(c.Args, false)
	if err == nil && len(command) == 0 {
		err = errors.New("expected a command, found none")
	}
	if err != nil {
		return c.Misuse(err.Error(), badUsage)
	}
	env := environment(os.Environ())
	if err := s.prepare(c, env); err != nil {
		c.Complain(err.Error(), "")
		return frontend.Failed
	}
	if s.tasks > 1 || s.label {
		return s.start(c, command, env)
	}
	s.task(env, 0)
	if err := s.redirect(env); err != nil {
		c.Complain(err.Error(), "")
		return frontend.Failed
	}
	env.set("SLURM_TASK_PID", strconv.Itoa(os.Getpid()))
	return become(c, command, env)
}

// find is the path of a command.
func find(c *frontend.Call, command string, env *variables) (path string, status int) {
	_ = os.Setenv("PATH", env.get("PATH")) // LookPath reads berth's own
	path, err := exec.LookPath(command)
	if err == nil || errors.Is(err, exec.ErrDot) {
		return path, 0
	}
	return "", unable(c, command, err)
}

func unable(c *frontend.Call, command string, err error) (status int) {
	errno := syscall.ENOENT
	if !errors.As(err, &errno) && errors.Is(err, os.ErrPermission) {
		errno = syscall.EACCES
	}
	c.Complain(fmt.Sprintf("%s cannot be executed: %s", text.Found(command), errno.Error()), "")
	return int(errno)
}

// become replaces srun by the command.
func become(c *frontend.Call, command []string, env *variables) int {
	path, status := find(c, command[0], env)
	if status != 0 {
		return status
	}
	return unable(c, command[0], syscall.Exec(path, command, env.list))
}

// prepare sets up the step in this process and its environment.
func (s *step) prepare(c *frontend.Call, env *variables) error {
	number, err := nextStep(stepsDir(), env.get("BERTH_TOKEN"))
	if err != nil {
		c.Complain("the steps of this job cannot be counted: "+err.Error(), "")
	}
	env.set("SLURM_STEP_ID", strconv.Itoa(number))
	env.set("SLURM_STEPID", strconv.Itoa(number))
	if s.dir != "" {
		if err := os.Chdir(s.dir); err != nil {
			return fmt.Errorf("--chdir: %w", err)
		}
		env.set("PWD", s.dir)
	}
	if err := s.redirect(env); err != nil {
		return err
	}
	if err := s.count(env); err != nil {
		return err
	}
	if s.gpus >= 0 {
		if err := s.takeGPUs(c, env); err != nil {
			return err
		}
	}
	if s.cpus != "" {
		env.set("SLURM_CPUS_PER_TASK", s.cpus)
	}
	env.set("SLURM_STEP_GPUS", env.get("BERTH_GPUS"))
	env.set("SLURM_STEP_NODELIST", env.get("SLURM_JOB_NODELIST"))
	env.set("SLURM_STEP_NUM_NODES", "1")
	env.set("SLURM_NODEID", "0")
	for _, name := range []string{"SLURM_STEP_NUM_TASKS", "SLURM_STEP_TASKS_PER_NODE", "SLURM_NTASKS", "SLURM_NPROCS", "SLURM_TASKS_PER_NODE"} {
		env.set(name, strconv.Itoa(s.tasks))
	}
	return env.only(s.export)
}

// count settles how many tasks and GPUs the step has. Without options they are
// those of the job.
func (s *step) count(env *variables) error {
	most, _ := text.Digits(env.get("SLURM_NTASKS"), 6)
	cpus, _ := text.Digits(env.get("SLURM_CPUS_ON_NODE"), 6)
	s.tasks = cmp.Or(s.tasks, max(1, most))
	if most = max(1, most, cpus); s.tasks > most && !s.crowd {
		return fmt.Errorf("--ntasks: expected at most the %s of the job, found %d; --overcommit starts more", text.Count(most, "CPU"), s.tasks)
	}
	if s.gpusPerTask == 0 && s.gpus < 0 {
		s.gpusPerTask, _ = text.Digits(env.get("SLURM_GPUS_PER_TASK"), 6)
	}
	if s.gpusPerTask > 0 {
		s.gpus = s.gpusPerTask * s.tasks
	}
	return nil
}

// redirect opens the files of a step with one task in place of the job's.
func (s *step) redirect(env *variables) error {
	files, err := s.files(env, map[string]*os.File{})
	for fd, file := range files {
		if file != nil && err == nil {
			err = unix.Dup3(int(file.Fd()), fd, 0)
		}
	}
	return err
}

// files opens those that a task reads and writes instead of the job's; nil: it has
// the job's. Tasks share a file of one name.
func (s *step) files(env *variables, opened map[string]*os.File) (files [3]*os.File, err error) {
	pattern := strings.NewReplacer("%%", "%", "%j", env.get("SLURM_JOB_ID"), "%J", env.get("SLURM_JOB_ID")+"."+env.get("SLURM_STEP_ID"), "%x", env.get("SLURM_JOB_NAME"), "%u", env.get("SLURM_JOB_USER"),
		"%N", env.get("SLURMD_NODENAME"), "%a", env.get("SLURM_ARRAY_TASK_ID"), "%A", cmp.Or(env.get("SLURM_ARRAY_JOB_ID"), env.get("SLURM_JOB_ID")), "%t", env.get("SLURM_PROCID"), "%n", "0", "%s", env.get("SLURM_STEP_ID"))
	write := os.O_WRONLY | os.O_CREATE | os.O_TRUNC
	if strings.HasPrefix(s.openMode, "a") {
		write = os.O_WRONLY | os.O_CREATE | os.O_APPEND
	}
	for fd, name := range []string{s.input, s.output, cmp.Or(s.errout, s.output)} { // errors go with the output, as in Slurm
		flags := write
		if fd == 0 {
			flags = os.O_RDONLY
		}
		switch name = pattern.Replace(name); name {
		case "", "all":
			continue
		case "none":
			name = os.DevNull
		}
		key := fmt.Sprint(flags, name)
		if opened[key] == nil {
			if opened[key], err = os.OpenFile(name, flags, 0o666); err != nil {
				return files, err
			}
		}
		files[fd] = opened[key]
	}
	return files, nil
}

// gpuPoll is how often a step that waits for GPUs tries again.
const gpuPoll = 200 * time.Millisecond

// perGPU are the variables with an entry for each of the job's GPUs.
var perGPU = []string{
	"CUDA_VISIBLE_DEVICES", "NVIDIA_VISIBLE_DEVICES", "APPTAINERENV_CUDA_VISIBLE_DEVICES", "APPTAINERENV_NVIDIA_VISIBLE_DEVICES", "BERTH_GPUS", "BERTH_GPU_UUIDS",
}

// takeGPUs leaves the step only as many of the job's GPUs as it asked for, and
// not those of another step that did.
func (s *step) takeGPUs(c *frontend.Call, env *variables) error {
	all := entries(env.get("BERTH_GPUS"))
	if s.gpus > len(all) {
		return fmt.Errorf("--gpus: expected at most the %s of the job, found %d", text.Count(len(all), "GPU"), s.gpus)
	}
	mine, enough := claimSome(env.get("BERTH_TOKEN"), all, s.gpus)
	if !enough {
		c.Complain("waiting for GPUs of the job that other steps use", "")
	}
	for !enough {
		time.Sleep(gpuPoll)
		mine, enough = claimSome(env.get("BERTH_TOKEN"), all, s.gpus)
	}
	for _, name := range perGPU {
		switch list := entries(env.get(name)); {
		case len(list) != len(all):
		case s.gpus == 0 && strings.HasSuffix(name, "NVIDIA_VISIBLE_DEVICES"):
			env.set(name, "void") // as berth sets it for a job without GPUs
		default:
			env.set(name, pick(list, mine))
		}
	}
	env.set("SLURM_GPUS_ON_NODE", strconv.Itoa(s.gpus))
	return nil
}

// claimSome takes as many of the cards as are wanted, or none.
func claimSome(token string, cards []string, want int) (indices []int, enough bool) {
	var held []int
	for i, card := range cards {
		if len(held) == want {
			break
		}
		if fd, ok := claim(token, card); ok {
			indices, held = append(indices, i), append(held, fd)
		}
	}
	if len(held) == want {
		return indices, true
	}
	for _, fd := range held {
		unix.Close(fd)
	}
	return nil, false
}

// claim takes a card for as long as the command and what it starts live: they
// inherit a socket whose name only one can have.
func claim(token, card string) (fd int, ok bool) {
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_DGRAM, 0) // stays open when srun becomes the command
	if err != nil {
		return -1, false
	}
	if unix.Bind(fd, &unix.SockaddrUnix{Name: "@berth-step-" + token + "-" + card}) != nil {
		unix.Close(fd)
		return -1, false
	}
	return fd, true
}

func entries(list string) []string {
	if list == "" {
		return nil
	}
	return strings.Split(list, ",")
}

func pick(list []string, indices []int) string {
	var picked []string
	for _, i := range indices {
		picked = append(picked, list[i])
	}
	return strings.Join(picked, ",")
}
