package allocation

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
)

// programs are berth's own, which lie beside each other.
var programs = []string{"berth", "berth-keep", "berth-gpu"}

// bring copies berth to a directory that the nodes see, and returns its path
// there. The copy also stays as it is when berth is upgraded.
func bring(program, dir string) (string, error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", err
	}
	for _, name := range programs {
		from := filepath.Join(filepath.Dir(program), name)
		if name == programs[0] {
			from = program
		}
		if err := copyProgram(from, filepath.Join(dir, name)); err != nil && !(name != programs[0] && errors.Is(err, fs.ErrNotExist)) {
			return "", err
		}
	}
	return filepath.Join(dir, programs[0]), nil
}

// copyProgram copies a program, unless it is there. A running copy is replaced,
// never changed.
func copyProgram(from, to string) error {
	source, err := os.Open(from)
	if err != nil {
		return err
	}
	defer source.Close()
	info, err := source.Stat()
	if err != nil {
		return err
	}
	if there, err := os.Stat(to); err == nil && there.Size() == info.Size() && there.ModTime().Equal(info.ModTime()) {
		return nil
	}
	fresh := to + ".new"
	target, err := os.OpenFile(fresh, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o755)
	if err != nil {
		return err
	}
	_, err = io.Copy(target, source)
	if err = errors.Join(err, target.Close()); err != nil {
		return err
	}
	if err := os.Chtimes(fresh, info.ModTime(), info.ModTime()); err != nil {
		return err
	}
	return os.Rename(fresh, to)
}
