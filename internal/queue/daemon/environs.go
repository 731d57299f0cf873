package daemon

import (
	"strings"
	"sync"

	"berth/internal/queue/store"
	"berth/internal/text/problem"
)

// environsKept bounds the cache; the store has all environments.
const environsKept = 64

// environs caches recently used captured environments.
type environs struct {
	mu   sync.Mutex
	kept map[string][]string
}

// packEnviron encodes an environment as it is stored.
func packEnviron(environ []string) []byte { return []byte(strings.Join(environ, "\x00")) }

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

// get reads the environment of that name; the empty name is the empty
// environment.
func (e *environs) get(s *store.Store, name string) ([]string, error) {
	if name == "" {
		return nil, nil
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if environ, ok := e.kept[name]; ok {
		return environ, nil
	}
	data, err := s.Blob(name)
	if err != nil {
		return nil, err
	}
	var environ []string
	if len(data) > 0 {
		environ = strings.Split(string(data), "\x00")
	}
	if e.kept == nil || len(e.kept) >= environsKept {
		e.kept = map[string][]string{}
	}
	e.kept[name] = environ
	return environ, nil
}
