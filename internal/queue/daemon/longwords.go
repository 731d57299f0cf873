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
