package daemon

import (
	"strings"

	"berth/internal/job"
	"berth/internal/machine/run"
	"berth/internal/text/problem"
)

// wrapped is room for the GPU settings, where the set-up and the command become
// one argument.
const wrapped = 8 << 10

// checkWords refuses at submission what the kernel would refuse at the start: an
// argument or variable longer than maxWord.
func checkWords(s *job.Spec) error {
	for _, v := range s.Env {
		if err := checkVariable(v.Key, len(v.Key)+1+len(v.Value)); err != nil {
			return err
		}
	}
	// Quoting, twice at worst, makes an argument a few times longer.
	if s.Venv == "" && s.Conda == "" && s.Setup == "" || s.TextBytes() < maxWord/64 {
		return nil
	}
	argv, _ := run.Wrap(*s, nil)
	for _, word := range argv {
		if len(word) > maxWord-wrapped {
			return problem.Newf(problem.TooMuch, "put it into a script", "the set-up and the command have %d bytes together; the system accepts at most %d", len(word), maxWord-wrapped)
		}
	}
	return nil
}

func checkVariable(name string, bytes int) error {
	if bytes <= maxWord {
		return nil
	}
	return problem.Newf(problem.TooMuch, "put it into a file", "the variable %.60s has %d bytes; the system accepts at most %d", strings.ToValidUTF8(name, "?"), bytes, maxWord)
}

// checkEnviron refuses an environment that no process could be given.
func checkEnviron(environ []string, most int) error {
	const hint = "submit with --export none, or name the variables"
	bytes := 0
	for _, pair := range environ {
		bytes += len(pair) + 1
		if strings.IndexByte(pair, 0) >= 0 {
			return problem.Newf(problem.Invalid, hint, "environ: a variable contains a NUL byte")
		}
		name, _, ok := strings.Cut(pair, "=")
		if !ok || name == "" {
			return problem.Newf(problem.Invalid, hint, "environ: expected NAME=value, found %.40q", pair)
		}
		if err := checkVariable(name, len(pair)); err != nil {
			return err
		}
	}
	if bytes > most {
		return problem.Newf(problem.TooMuch, hint, "the environment has %d bytes; at most %d are accepted", bytes, most)
	}
	return nil
}
