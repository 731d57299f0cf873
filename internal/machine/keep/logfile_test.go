package keep

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
)

// TestAnOldLogIsSetAsideAndKept: each in a name of its own, whatever is there.
func TestAnOldLogIsSetAsideAndKept(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "log")
	if err := os.Mkdir(path+".old.2", 0o755); err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{"first", "second", "third"} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		setAside(path)
		if _, err := os.Lstat(path); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("with the %s there: %v", text, err)
		}
	}
	for name, want := range map[string]string{"log.old": "first", "log.old.3": "second", "log.old.4": "third"} {
		if got, err := os.ReadFile(filepath.Join(filepath.Dir(path), name)); string(got) != want {
			t.Errorf("%s: %q, %v; want %q", name, got, err, want)
		}
	}
	setAside(path) // nothing there
	if err := os.Symlink("log.old", path); err != nil {
		t.Fatal(err)
	}
	setAside(path)
	if _, err := os.Readlink(path); err != nil {
		t.Errorf("a link is moved: %v", err)
	}
}

// TestAKeptLogIsNotFollowedAnywhere: neither the log nor its directory may lead to
// another file.
func TestAKeptLogIsNotFollowedAnywhere(t *testing.T) {
	t.Parallel()
	for name, prepare := range map[string]func(jobs, victim string) error{
		"a link in place of the log": func(jobs, victim string) error {
			return errors.Join(os.Mkdir(filepath.Join(jobs, "1"), 0o755), os.Symlink(victim, filepath.Join(jobs, "1", "1.log")))
		},
		"a second name of another file": func(jobs, victim string) error {
			return errors.Join(os.Mkdir(filepath.Join(jobs, "1"), 0o755), os.Link(victim, filepath.Join(jobs, "1", "1.log")))
		},
		"a link in place of the directory": func(jobs, victim string) error {
			return os.Symlink(filepath.Dir(victim), filepath.Join(jobs, "1"))
		},
		"a directory that all can write to": func(jobs, _ string) error {
			return errors.Join(os.Mkdir(filepath.Join(jobs, "1"), 0o755), os.Chmod(filepath.Join(jobs, "1"), 0o777))
		},
	} {
		t.Run(name, func(t *testing.T) {
			jobs, victim := t.TempDir(), filepath.Join(t.TempDir(), "1.log")
			if err := errors.Join(os.WriteFile(victim, nil, 0o644), prepare(jobs, victim)); err != nil {
				t.Fatal(err)
			}
			if log, err := (Order{Log: filepath.Join(jobs, "1", "1.log"), LogKept: true}).openLog(); err == nil {
				log.close()
				t.Error("it was opened")
			}
		})
	}
	log, err := (Order{Log: filepath.Join(t.TempDir(), "1", "1.log"), LogKept: true}).openLog()
	if err != nil {
		t.Fatal(err)
	}
	log.close()
}
