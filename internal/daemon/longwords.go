package daemon

import (
	"strings"

	"berth/internal/job"
	"berth/internal/problem"
	"berth/internal/run"
)

// wrapped is room for what a job is told of its cards, where a set-up and its
// command make one word.
const wrapped = 8 << 10

// checkWords refuses what the kernel would only refuse at the start: it takes
// no word and no variable of a process that is longer than maxWord.
func checkWords(s *job.Spec) error {
	for _, v := range s.Env {
		if err := checkVariable(v.Key, len(v.Key)+1+len(v.Value)); err != nil {
			return err
		}
	}
	// Quoting, twice at worst, makes a word a few times longer.
	if s.Venv == "" && s.Conda == "" && s.Setup == "" || specBytes(s) < maxWord/64 {
		return nil
	}
	argv, _ := run.Wrap(*s, nil)
	for _, word := range argv {
		if len(word) > maxWord-wrapped {
			return problem.Newf(problem.TooMuch, "put it into a script", "the set-up and the command have %d bytes together, the system takes at most %d", len(word), maxWord-wrapped)
		}
	}
	return nil
}

func checkVariable(name string, bytes int) error {
	if bytes <= maxWord {
		return nil
	}
	return problem.Newf(problem.TooMuch, "put it into a file", "the variable %.60s has %d bytes, the system takes at most %d", strings.ToValidUTF8(name, "?"), bytes, maxWord)
}
