package handover

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
)

// Program is one of berth's own programs, and where the nodes find its copy.
type Program struct{ From, To string }

// Programs are berth, which is self, and those of its helpers that lie beside it, to
// be copied below a directory that the nodes see. berth is the path of its copy. The
// path changes with the program: what is in Slurm's queue keeps the one it began with.
func Programs(self, dir string, helpers ...string) (list []Program, berth string, err error) {
	info, err := os.Stat(self)
	if err != nil {
		return nil, "", err
	}
	dir = filepath.Join(dir, "bin", fmt.Sprintf("%x-%x", info.Size(), info.ModTime().UnixNano()))
	berth = filepath.Join(dir, "berth")
	list = append(list, Program{self, berth})
	for _, name := range helpers {
		if from := filepath.Join(filepath.Dir(self), name); exists(from) { // berth does without
			list = append(list, Program{from, filepath.Join(dir, name)})
		}
	}
	return list, berth, nil
}

// Install copies programs, unless they are there.
func Install(list []Program) error {
	for _, p := range list {
		if err := p.install(); err != nil {
			return err
		}
	}
	return nil
}

func (p Program) install() error {
	if exists(p.To) {
		return nil
	}
	if err := os.MkdirAll(filepath.Dir(p.To), 0o755); err != nil {
		return err
	}
	from, err := os.Open(p.From)
	if err != nil {
		return err
	}
	defer from.Close()
	to, err := os.CreateTemp(filepath.Dir(p.To), ".new-*")
	if err != nil {
		return err
	}
	_, err = io.Copy(to, from)
	if err = errors.Join(err, to.Chmod(0o755), to.Sync(), to.Close()); err == nil {
		err = os.Rename(to.Name(), p.To)
	}
	if err != nil {
		return errors.Join(fmt.Errorf("copy %s to the cluster: %w", p.From, err), os.Remove(to.Name()))
	}
	return nil
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}
