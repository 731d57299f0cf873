package people

import (
	"strings"
	"sync"

	"berth/internal/queue/store"
)

// environsKept bounds the cache; the store has all environments.
const environsKept = 64

// environs caches recently used captured environments.
type environs struct {
	mu   sync.Mutex
	kept map[string][]string
}

// PackEnviron encodes an environment as it is stored.
func PackEnviron(environ []string) []byte { return []byte(strings.Join(environ, "\x00")) }

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
