package queue

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"berth/internal/job"
	"berth/internal/machine/run"
)

// Origin is where a job comes from: what its paths are relative to, and what its
// environment will be.
type Origin struct {
	Dir  string   // of a relative directory and virtual environment, and of a job that names none
	Home string   // ~
	Env  []string // that the job inherits; nil: not known
}

// Unusable lists the places of a job that cannot work: its directory, virtual
// environment, conda and output. It looks with the rights of this process, which
// must be those of the job's user. Nothing is said about a job that waits for
// others, because they may make what is missing.
func Unusable(spec *job.Spec, from Origin) []error {
	if len(spec.After) > 0 {
		return nil
	}
	var bad []error
	add := func(key string, err error) {
		if err != nil {
			bad = append(bad, fmt.Errorf("%s: %w", key, err))
		}
	}
	dir, there := from.whole(spec.Dir, from.Dir), true
	if spec.Dir != "" {
		err := enterable(dir)
		there = err == nil
		add("dir", err)
	}
	if spec.Venv != "" {
		add("venv", activatable(from.whole(spec.Venv, from.Dir)))
	}
	if spec.Conda != "" {
		add("conda", from.conda(spec, dir))
	}
	if spec.Output != "" && there { // a bad directory is reported once
		add("output", writable(from.whole(spec.Output, dir)))
	}
	return bad
}

// whole is a path from the root on.
func (o Origin) whole(path, base string) string {
	switch {
	case path == "~" || strings.HasPrefix(path, "~/"):
		return filepath.Join(o.Home, path[1:])
	case filepath.IsAbs(path):
		return filepath.Clean(path)
	}
	return filepath.Join(base, path)
}

// may reports whether this process, with its effective rights, may do that.
func may(path string, mode uint32) bool {
	return unix.Faccessat(unix.AT_FDCWD, path, mode, unix.AT_EACCESS) == nil
}

func enterable(dir string) error {
	switch info, err := os.Stat(dir); {
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("there is no directory %s", dir)
	case err != nil:
		return reasonOf(dir, err)
	case !info.IsDir():
		return fmt.Errorf("expected a directory, found the file %s", dir)
	case !may(dir, unix.X_OK):
		return fmt.Errorf("you may not enter %s", dir)
	}
	return nil
}

func activatable(venv string) error {
	if err := enterable(venv); err != nil {
		return err
	}
	switch activate := filepath.Join(venv, "bin", "activate"); {
	case !may(activate, unix.F_OK):
		return fmt.Errorf("expected a virtual environment, found no bin/activate in %s", venv)
	case !may(activate, unix.R_OK):
		return fmt.Errorf("you may not read %s", activate)
	}
	return nil
}

// writable checks the part of an output pattern before its first placeholder.
// Missing directories are made, so the last one that exists counts.
func writable(path string) error {
	var fixed string
	if at := strings.IndexByte(path, '%'); at >= 0 {
		fixed = filepath.Dir(path[:at] + "x")
	} else if info, err := os.Stat(path); err == nil {
		switch {
		case info.IsDir():
			return fmt.Errorf("expected a file, found the directory %s", path)
		case !may(path, unix.W_OK):
			return fmt.Errorf("you may not write to %s", path)
		}
		return nil
	} else {
		fixed = filepath.Dir(path)
	}
	for {
		info, err := os.Stat(fixed)
		switch {
		case err == nil && !info.IsDir():
			return fmt.Errorf("expected a directory, found the file %s", fixed)
		case err == nil && !may(fixed, unix.W_OK|unix.X_OK):
			return fmt.Errorf("you may not write to %s", fixed)
		case err == nil:
			return nil
		case !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, unix.ENOTDIR):
			return reasonOf(fixed, err)
		}
		if fixed == filepath.Dir(fixed) {
			return nil
		}
		fixed = filepath.Dir(fixed)
	}
}

// conda checks that conda is installed, if the job's environment is known, and that
// an environment given as a directory exists. Named ones may be anywhere.
func (o Origin) conda(spec *job.Spec, dir string) error {
	if strings.Contains(spec.Conda, "/") {
		return enterable(o.whole(spec.Conda, dir))
	}
	if o.Env == nil || spec.Export != "" && spec.Export != "all" || slices.ContainsFunc(spec.Env, changesConda) {
		return nil
	}
	for _, base := range run.CondaBases(o.Home) {
		if may(filepath.Join(base, "etc/profile.d/conda.sh"), unix.R_OK) {
			return nil
		}
	}
	if slices.ContainsFunc(o.Env, func(v string) bool { return strings.HasPrefix(v, "CONDA_EXE=") }) {
		return nil
	}
	if _, err := exec.LookPath("conda"); err != nil {
		return errors.New("conda is neither in PATH nor in a usual place; CONDA_EXE can name it")
	}
	return nil
}

// changesConda reports whether a variable decides where conda is found.
func changesConda(v job.EnvVar) bool {
	return v.Key == "PATH" || v.Key == "HOME" || v.Key == "CONDA_EXE"
}

// reasonOf names the path and the reason, without the system call.
func reasonOf(path string, err error) error {
	if failed, ok := errors.AsType[*fs.PathError](err); ok {
		err = failed.Err
	}
	return fmt.Errorf("%s: %w", path, err)
}
