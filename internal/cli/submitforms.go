package cli

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/pflag"

	"berth/internal/api"
	"berth/internal/cli/session"
	"berth/internal/job"
	"berth/internal/job/jobfile"
	"berth/internal/slurm"
	"berth/internal/text/problem"
)

const (
	maxSpecFile    = 64 << 20
	maxScriptHead  = 1 << 20 // only the leading comments of a script are read
	maxInterpreter = 4096
)

// fromFile reads a file of jobs. Flags are defaults for all of them.
func (o *submitOptions) fromFile(stdin io.Reader) ([]api.Spec, error) {
	name, content, err := readSpecFile(o.file, stdin)
	if err != nil {
		return nil, problem.Wrap(problem.Invalid, "-f takes a YAML or JSON file, or - for standard input", err)
	}
	rareCollections()
	items, err := jobfile.ParseSpecs(name, content)
	if err != nil {
		return nil, problem.Wrap(problem.Invalid, "berth help jobspec lists every key with an example", err)
	}
	if len(items) == 0 {
		return nil, &problem.Problem{Kind: problem.Invalid, What: fmt.Sprintf("%s: expected at least one job, found none", name), Hint: "a job is a mapping with at least a command"}
	}
	var defaults api.Spec
	if err := o.apply(&defaults); err != nil {
		return nil, err
	}
	specs := make([]api.Spec, len(items))
	o.source, o.lines = name, make([]int, len(items))
	var bad jobfile.Errors
	for i, item := range items {
		o.lines[i] = item.Line
		specs[i] = defaults
		specs[i].Env = maps.Clone(defaults.Env)
		specs[i].Command = api.Command{Shell: item.Shell, Argv: item.Argv}
		if item.Axes != nil {
			specs[i].Sweep = &api.Sweep{Axes: item.Axes, Metrics: item.Metrics}
		}
		for _, pair := range item.Pairs {
			if err := setPair(&specs[i], pair); err != nil {
				bad.Add(name, item.Line, err.Error())
			}
		}
	}
	if len(bad.Problems) > 0 {
		return nil, problem.Wrap(problem.Invalid, "berth help jobspec lists every key with an example", &bad)
	}
	return specs, nil
}

func readSpecFile(path string, stdin io.Reader) (name string, content []byte, err error) {
	name, from := path, stdin
	if path == "-" {
		name = "standard input"
	} else {
		file, err := os.Open(path)
		if err != nil {
			return name, nil, unopened(path, err)
		}
		defer file.Close()
		from = file
	}
	content, err = io.ReadAll(io.LimitReader(from, maxSpecFile+1))
	if err != nil {
		return name, nil, fmt.Errorf("read %s: %w", name, err)
	}
	if len(content) > maxSpecFile {
		return name, nil, fmt.Errorf("%s is larger than %d MiB", name, maxSpecFile>>20)
	}
	return name, content, nil
}

// fromScript reads the directives of a script; flags win over them.
func (o *submitOptions) fromScript(s *session.Session, args []string) ([]api.Spec, error) {
	head, mode, err := readScript(args[0])
	if errors.Is(err, fs.ErrNotExist) {
		return nil, problem.Wrap(problem.Invalid, o.scriptHint(args), err)
	}
	if err != nil {
		return nil, err
	}
	if jobfile.GuessKind(args[0], head).Kind == jobfile.SpecFile {
		if o.file = args[0]; len(args) > 1 {
			return nil, refuse("berth submit -f "+job.Quote(args[0]), "expected only the spec file %s, found %q after it", args[0], args[1])
		}
		return o.fromFile(os.Stdin)
	}
	if jobfile.GuessKind(args[0], head).Kind == jobfile.JobLines {
		if len(args) > 1 {
			return nil, refuse("flags go before it: berth submit --dry-run "+job.Quote(args[0]), "expected only the jobs file %s, found %q after it", args[0], args[1])
		}
		return o.fromLines(args[0])
	}
	if err := notAScript(args, head, mode); err != nil {
		return nil, err
	}
	path, err := filepath.Abs(args[0])
	if err != nil {
		return nil, fmt.Errorf("working directory: %w", err)
	}
	o.script, o.source = path, args[0]
	spec := api.Spec{Command: scriptCommand(path, mode, head, args[1:])}
	var forSlurm []string
	if bytes.IndexByte(head, 0) < 0 { // a program has no directives
		script, err := jobfile.ParseScript(args[0], head)
		if err != nil {
			return nil, problem.Wrap(problem.Invalid, "a directive is a flag of berth submit: #BERTH --gpus 2", err)
		}
		for _, pair := range script.Pairs {
			if err := setPair(&spec, pair); err != nil {
				return nil, problem.Newf(problem.Invalid, "see berth submit --help", "%s: %v", args[0], err)
			}
		}
		if spec.Slurm != "" {
			forSlurm, spec.Slurm = append(forSlurm, string(spec.Slurm)), ""
		}
		for _, ignored := range script.Ignored {
			// Only the daemon knows for certain whether the job goes to Slurm.
			if _, err := slurm.Words(ignored.Text); err == nil {
				forSlurm = append(forSlurm, ignored.Text)
				continue
			}
			s.Say("%s:%d: ignored, no equivalent in berth: %s", args[0], ignored.Line, ignored.Text)
		}
	}
	written := spec.Setup
	if err := o.apply(&spec); err != nil {
		return nil, err
	}
	spec.Setup = api.Text(jobfile.JoinSetup(string(written), string(spec.Setup)))
	if spec.Slurm != "" {
		forSlurm = append(forSlurm, string(spec.Slurm)) // the last of an option counts
	}
	spec.Slurm = api.Text(strings.Join(forSlurm, " "))
	return []api.Spec{spec}, nil
}

// scriptHint is for a script that does not exist: a command without --, or the
// value of a flag that takes one only after =.
func (o *submitOptions) scriptHint(args []string) string {
	hint := "to run a command, put it after --: berth submit -- " + job.QuoteArgv(args)
	o.flags.Visit(func(f *pflag.Flag) {
		if _, ok := f.Value.(*jobValue); ok && f.NoOptDefVal == f.Value.String() && checkPair(jobfile.Pair{Key: f.Name, Value: args[0]}) == nil {
			hint = fmt.Sprintf("a value of --%s follows =: --%[1]s=%s", f.Name, args[0])
		}
	})
	return hint
}

func readScript(path string) (head []byte, mode fs.FileMode, err error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, 0, problem.Wrap(problem.Invalid, "", unopened(path, err))
	}
	defer file.Close()
	info, err := file.Stat()
	if err == nil && !info.Mode().IsRegular() {
		found, hint := "special file", "to run a command, put it after --"
		if info.IsDir() {
			found, hint = "directory", fmt.Sprintf("to run a command there: berth submit -C %s -- COMMAND", job.Quote(path))
		}
		return nil, 0, problem.Newf(problem.Invalid, hint, "expected a script, found the %s %s", found, path)
	}
	if err == nil {
		mode = info.Mode()
		head, err = io.ReadAll(io.LimitReader(file, maxScriptHead))
	}
	if err != nil {
		return nil, 0, problem.Newf(problem.Invalid, "", "read %s: %w", path, err)
	}
	return head, mode, nil
}

// unopened says why a file could not be opened, and names it once.
func unopened(path string, err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return &missing{path}
	}
	if reason, ok := errors.AsType[*fs.PathError](err); ok {
		err = reason.Err
	}
	return fmt.Errorf("%s: %w", path, err)
}

// missing is a file that does not exist.
type missing struct{ path string }

func (m *missing) Error() string { return "there is no file " + m.path }
func (m *missing) Unwrap() error { return fs.ErrNotExist }

// scriptCommand is how the kernel would run the script if it were executable.
func scriptCommand(path string, mode fs.FileMode, head []byte, args []string) api.Command {
	argv := append([]string{path}, args...)
	runnable := bytes.HasPrefix(head, []byte("#!")) || bytes.IndexByte(head, 0) >= 0
	if mode&0o111 != 0 && runnable {
		return api.Command{Argv: argv}
	}
	return api.Command{Argv: append(interpreter(head), argv...)}
}

// interpreter parses a #! line as the kernel does: a path and at most one
// argument. A script without one is run by /bin/sh.
func interpreter(head []byte) []string {
	line, found := bytes.CutPrefix(head, []byte("#!"))
	if !found {
		return []string{"/bin/sh"}
	}
	if end := bytes.IndexByte(line, '\n'); end >= 0 {
		line = line[:end]
	}
	line = bytes.TrimSpace(line[:min(len(line), maxInterpreter)])
	if len(line) == 0 {
		return []string{"/bin/sh"}
	}
	at := bytes.IndexAny(line, " \t")
	if at < 0 {
		return []string{string(line)}
	}
	return []string{string(line[:at]), string(bytes.TrimSpace(line[at:]))}
}

// environFor is the part of the caller's environment that the jobs asked for.
func environFor(specs []api.Spec, environ []string) []string {
	// A token for another machine must not be stored with the job.
	environ = slices.DeleteFunc(slices.Clone(environ), func(v string) bool { return strings.HasPrefix(v, "BERTH_HOST_TOKEN=") })
	names := map[string]bool{}
	for _, spec := range specs {
		switch export := strings.ToLower(string(spec.Export)); export {
		case "", "all":
			return environ
		case "none":
		default:
			for name := range strings.SplitSeq(string(spec.Export), ",") {
				names[strings.TrimSpace(name)] = true
			}
		}
	}
	var some []string
	for _, variable := range environ {
		if name, _, _ := strings.Cut(variable, "="); names[name] {
			some = append(some, variable)
		}
	}
	return some
}
