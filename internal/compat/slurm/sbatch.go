package slurm

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"berth/internal/api"
	"berth/internal/compat/frontend"
	"berth/internal/job"
	"berth/internal/job/jobfile"
	"berth/internal/slurm"
	"berth/internal/text"
)

var sbatch = frontend.Program{Name: "sbatch", Usage: sbatchUsage, Run: runSbatch}

const sbatchUsage = `usage: sbatch [OPTION...] SCRIPT [ARG...]
       sbatch [OPTION...] --wrap COMMAND
       sbatch [OPTION...] <SCRIPT

Submit a script as a berth job. The script and its #SBATCH lines are read now:
editing the file later changes nothing. Options take precedence over those lines.
They are the ones that berth help jobspec lists, and:

      --wrap COMMAND   a shell command instead of a script
      --parsable       print only the job's id
  -W, --wait           wait for its end, with its exit status
      --test-only      say what would happen, and submit nothing
  -Q, --quiet          print nothing
  -h, --help           print this

As in Slurm, a job that asks for no GPU gets none, its output goes to
slurm-ID.out, and it gets the SLURM_ variables. Partitions, accounts and the like
are passed on where the daemon hands its jobs over to Slurm (engine = "slurm"). On
this machine they are ignored, and said on stderr unless --parsable or --quiet is
given; --exclusive is refused. Several nodes and --container are refused everywhere.

Exit status: 0 submitted; 1 refused; 255 bad usage; with --wait that of the job, and
1 if a signal ended it.

Example:
  sbatch --gres=gpu:1 --time=2:00:00 train.sh
  sbatch --array=0-9 --wrap 'python train.py --seed $SLURM_ARRAY_TASK_ID'
`

// wishes are what the options of a program ask berth for.
type wishes struct {
	job                                  []jobfile.SlurmOption
	slurm                                []string // options for Slurm itself, where it gets the job
	wrap                                 string
	step                                 []string // options of the step that srun makes of a job
	ignored                              []string // without an equivalent in berth
	parsable, wait, quiet, dry, terminal bool
}

// meaningful are the options that berth has no equivalent for and cannot ignore:
// the job would not run as its author meant it.
func meaningful() map[string]string {
	return map[string]string{
		"container": noContainer,
		"uid":       "berth runs a job as the user who submits it", "gid": "berth runs a job with its user's own groups",
	}
}

// chosen are the options that say when a job may run and that nobody gets. berth
// mentions them; others without an equivalent change nothing on one machine.
const chosen = "batch clusters deadline nice priority time-min"

// options are those that all programs which make jobs know.
func (w *wishes) options() options {
	known := options{}
	for name, o := range (&step{}).options() { // what Slurm knows and one machine has no use for
		if o.set == nil {
			known[name] = option{short: o.short, kind: o.kind}
		}
	}
	known.ignore(valued, "time-min reservation cpu-freq power switches priority kill-on-invalid-dep batch bb bbf clusters:M")
	known.ignore(optional, "nice get-user-env")
	known.ignore(bare, "ignore-pbs spread-job use-min-nodes reboot no-shell bell no-bell")
	known["quiet"] = on('Q', &w.quiet)
	for name := range strings.FieldsSeq(chosen) {
		o := known[name]
		o.set = func(value string) error {
			w.ignored = append(w.ignored, strings.TrimSuffix("--"+name+"="+value, "="))
			return nil
		}
		known[name] = o
	}
	// What chooses nodes, and on whose account. Only the daemon knows who runs the job.
	for name := range strings.FieldsSeq("account constraint contiguous exclude exclusive licenses nodelist partition qos reservation switches") {
		o := known[name]
		o.set = func(value string) error {
			if value != "" {
				value = "=" + value
			}
			w.slurm = append(w.slurm, job.Quote("--"+name+value))
			return nil
		}
		known[name] = o
	}
	for name, why := range meaningful() {
		known[name] = refused(0, optional, why)
	}
	for _, f := range jobfile.SlurmFlags() {
		kind := valued
		if f.Bare != "" {
			kind = bare
		}
		known[f.Name] = option{f.Short, kind, func(value string) error {
			if f.Bare != "" {
				value = f.Bare
			}
			w.job = append(w.job, jobfile.SlurmOption{Name: f.Name, Value: value})
			return nil
		}}
	}
	return known
}

func (w *wishes) sbatchOptions() options {
	known := w.options()
	known["wrap"] = kept(0, &w.wrap)
	known["parsable"] = on(0, &w.parsable)
	known["wait"] = on('W', &w.wait)
	known["test-only"] = on(0, &w.dry)
	return known
}

// maxScript bounds a script: it is an argument of its interpreter.
const maxScript = 100 << 10

func runSbatch(c *frontend.Call) int {
	var w wishes
	words, err := w.sbatchOptions().parse(c.Args, false)
	if err != nil {
		return c.Misuse(err.Error(), badUsage)
	}
	s, err := w.script(c.In, words)
	if err != nil {
		return c.Misuse(err.Error(), frontend.Failed)
	}
	flags, err := w.flags(c, s)
	if err != nil {
		c.Complain(err.Error(), "")
		return badUsage
	}
	if w.dry {
		return c.Verb(c.Out, slices.Concat([]string{"submit", "--dry-run"}, flags, []string{"--"}, s.command))
	}
	var id, notes bytes.Buffer
	quiet := *c
	quiet.Err = &notes
	status := quiet.Verb(&id, slices.Concat([]string{"submit", "--quiet"}, flags, []string{"--"}, s.command))
	if !w.quiet && !w.parsable || status != 0 { // a program reads what is parsable, perhaps stderr too
		_, _ = notes.WriteTo(c.Err)
	}
	if status != 0 {
		return min(status, frontend.Failed)
	}
	number := strings.TrimSpace(id.String())
	switch {
	case w.quiet:
	case w.parsable:
		fmt.Fprintln(c.Out, number)
	default:
		fmt.Fprintln(c.Out, "Submitted batch job "+number)
	}
	if w.wait {
		status := c.Verb(io.Discard, []string{"wait", number})
		return waited(c, number, status)
	}
	return 0
}

// waited is the status of sbatch --wait: that of the job if it exited, and 1 if a
// signal ended it, for which berth has other statuses.
func waited(c *frontend.Call, id string, status int) int {
	if status == 0 || status == frontend.Interrupted {
		return status
	}
	if asked := ask(c, func(a *asker) error {
		d, err := api.Call(a.ctx, a.client, api.GetJob, api.JobID{ID: id})
		if err == nil && d.Tasks == nil && d.State.Terminal() && (d.Signal != nil || d.ExitCode == nil) {
			status = frontend.Failed
		}
		return err
	}); asked != 0 {
		return asked
	}
	return status
}

// script is what a job runs.
type script struct {
	name    string // empty: it has none of its own
	content []byte
	command []string
}

// script reads the script now: people change and submit the same file again.
func (w *wishes) script(in io.Reader, words []string) (s script, err error) {
	switch {
	case w.wrap != "" && len(words) > 0:
		return s, fmt.Errorf("expected no script with --wrap, found %s", text.Found(words[0]))
	case w.wrap != "":
		s.name, s.content = "wrap", []byte("#!/bin/sh\n"+w.wrap+"\n")
	case len(words) > 0:
		s.name = words[0]
		if s.content, err = os.ReadFile(words[0]); err != nil {
			return s, fmt.Errorf("unable to open file %s", words[0])
		}
		words = words[1:]
	default:
		s.name = "sbatch"
		if s.content, err = io.ReadAll(io.LimitReader(in, maxScript+1)); err != nil {
			return s, err
		}
	}
	first, _, _ := bytes.Cut(s.content, []byte{'\n'})
	interpreter := strings.Fields(strings.TrimPrefix(strings.TrimRight(string(first), "\r"), "#!"))
	switch {
	case !bytes.HasPrefix(first, []byte("#!")) || len(interpreter) == 0:
		return s, errors.New("this does not look like a batch script: the first line must start with #! followed by the path to an interpreter, such as #!/bin/sh")
	case len(s.content) > maxScript:
		return s, fmt.Errorf("expected a script of at most %d KiB", maxScript>>10)
	case bytes.IndexByte(s.content, 0) >= 0:
		return s, errors.New("expected a script, found a NUL byte")
	}
	program := filepath.Base(interpreter[len(interpreter)-1])
	if len(interpreter) > 1 && strings.HasPrefix(program, "-") {
		program = filepath.Base(interpreter[len(interpreter)-2])
	}
	switch {
	case slices.Contains([]string{"sh", "bash", "dash", "ksh", "zsh"}, program):
		path, err := filepath.Abs(s.name)
		if err != nil {
			return s, err
		}
		s.command = slices.Concat(interpreter, []string{"-c", string(s.content), path}, words)
	case strings.HasPrefix(program, "python"):
		s.command = slices.Concat(interpreter, []string{"-c", string(s.content)}, words)
	default:
		return s, fmt.Errorf("expected a script for a shell or Python, found one for %s; berth submit can run it", text.Found(program))
	}
	return s, nil
}

// flags are berth's for what the script and the options ask for.
func (w *wishes) flags(c *frontend.Call, s script) ([]string, error) {
	written, err := jobfile.ParseScript(s.name, s.content)
	if err != nil {
		return nil, err
	}
	asked, ignored, err := jobfile.TranslateSlurm(w.job)
	if err != nil {
		return nil, err
	}
	var passed []string
	for _, one := range written.Ignored {
		name, _, _ := strings.Cut(strings.TrimPrefix(strings.Fields(one.Text + " -")[0], "--"), "=")
		if why := meaningful()[name]; why != "" {
			return nil, fmt.Errorf("%s:%d: --%s: %s", s.name, one.Line, name, why)
		}
		if one.Text == "--wait" || one.Text == "-W" {
			w.wait = true
			continue
		}
		if _, err := slurm.Words(one.Text); err == nil {
			passed = append(passed, one.Text)
			continue
		}
		ignored = append(ignored, fmt.Sprintf("%s:%d: %s", s.name, one.Line, one.Text))
	}
	if !w.quiet {
		for _, one := range ignored {
			c.Complain("ignored, no equivalent in berth: "+one, "")
		}
	}
	if !w.parsable { // a program reads it, perhaps stderr too
		w.mention(c)
	}
	defaults := []jobfile.Pair{{Key: "name", Value: filepath.Base(s.name)}, {Key: "output", Value: "slurm-%j.out"}}
	w.slurm = append(passed, w.slurm...) // the last of an option counts
	return w.berthFlags(slices.Concat(defaults, written.Pairs, asked))
}

// mention says which options of the command line are ignored.
func (w *wishes) mention(c *frontend.Call) {
	if len(w.ignored) > 0 && !w.quiet {
		c.Complain("ignored, no equivalent in berth: "+strings.Join(w.ignored, " "), "")
	}
}

// berthFlags are pairs as flags of berth submit. Of a key that is there more than
// once the last counts, and a job that asks for no GPU gets none, as in Slurm.
func (w *wishes) berthFlags(pairs []jobfile.Pair) (flags []string, err error) {
	var own []string
	for _, pair := range pairs {
		if pair.Key == "slurm" {
			own = append(own, pair.Value)
		}
	}
	if len(w.slurm) > 0 {
		pairs = append(pairs, jobfile.Pair{Key: "slurm", Value: strings.Join(append(own, w.slurm...), " ")})
	}
	last := map[string]int{}
	for i, pair := range jobfile.JoinSetups(pairs) {
		last[pair.Key] = i
	}
	asks := func(key string) bool { _, given := last[key]; return given }
	delete(last, "slurm_env")
	flags = []string{"--slurm-env"}
	if !asks("gpus") && !asks("ids") && !asks("vram") {
		flags = append(flags, "--gpus=0")
	}
	for _, i := range slices.Sorted(maps.Values(last)) {
		pair := pairs[i]
		if name, isVariable := strings.CutPrefix(pair.Key, "env."); isVariable {
			flags = append(flags, "--env="+name+"="+pair.Value)
			continue
		}
		f, err := jobfile.Lookup(pair.Key)
		if err != nil {
			return nil, err
		}
		flags = append(flags, "--"+f.FlagName()+"="+pair.Value)
	}
	return flags, nil
}
