package modelfiles

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"berth/internal/job/modelsize"
	"berth/internal/text"
)

// The files of a model, as Hugging Face names them.
const (
	configFile = "config.json"
	indexFile  = "model.safetensors.index.json"
	singleFile = "model.safetensors"
)

// Read reads what the files of a model say: a directory, its config.json, its
// index, one safetensors file, or a GGUF file. ~/ is the home directory.
func Read(path string) (modelsize.Model, error) {
	path = whole(path)
	info, err := os.Stat(path)
	switch {
	case err != nil:
		return modelsize.Model{}, failed(path, err)
	case info.IsDir():
		return readDir(path, "")
	case strings.HasSuffix(path, ".gguf"):
		return readGGUF(path)
	case filepath.Base(path) == configFile || filepath.Base(path) == indexFile:
		return readDir(filepath.Dir(path), "")
	case strings.HasSuffix(path, ".safetensors"):
		return readDir(filepath.Dir(path), filepath.Base(path))
	}
	return modelsize.Model{}, fmt.Errorf("%s: expected a directory with %s and safetensors files, or a GGUF file", path, configFile)
}

// whole puts the home directory in the place of ~.
func whole(path string) string {
	if rest, ok := strings.CutPrefix(path+"/", "~/"); ok {
		if home, err := os.UserHomeDir(); err == nil {
			return filepath.Join(home, rest)
		}
	}
	return path
}

// Exists reports whether there is such a file.
func Exists(path string) bool {
	_, err := os.Stat(whole(path))
	return err == nil
}

// readDir reads a model in safetensors files: that one, those of the index, the
// usual one, or the only one there is.
func readDir(dir, file string) (m modelsize.Model, err error) {
	content, err := readAll(filepath.Join(dir, configFile), modelsize.MaxConfig)
	switch {
	case err == nil:
		if m.Shape, err = modelsize.ParseConfig(content); err != nil {
			return m, fmt.Errorf("%s: %w", filepath.Join(dir, configFile), err)
		}
	case !errors.Is(err, fs.ErrNotExist):
		return m, err
	}
	files := []string{file}
	if file == "" {
		if files, err = weightFiles(dir); err != nil {
			return m, err
		}
	}
	for _, name := range files {
		if strings.HasSuffix(name, ".gguf") {
			return readGGUF(filepath.Join(dir, name))
		}
		path := filepath.Join(dir, name)
		err := with(path, func(file *os.File, size int64) error {
			w, err := modelsize.ReadSafetensors(file, size)
			if err != nil {
				return err
			}
			return m.Weights.Add(w)
		})
		if err != nil {
			return m, err
		}
	}
	return m, nil
}

// weightFiles are the files in a directory that have the weights.
func weightFiles(dir string) ([]string, error) {
	content, err := readAll(filepath.Join(dir, indexFile), modelsize.MaxIndex)
	if err == nil {
		files, err := modelsize.ParseIndex(content)
		if err != nil {
			err = fmt.Errorf("%s: %w", filepath.Join(dir, indexFile), err)
		}
		return files, err
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	if _, err := os.Stat(filepath.Join(dir, singleFile)); err == nil {
		return []string{singleFile}, nil
	}
	for _, ending := range []string{".safetensors", ".gguf"} {
		if found, _ := filepath.Glob(filepath.Join(globLiteral(dir), "*"+ending)); len(found) == 1 {
			return []string{filepath.Base(found[0])}, nil
		} else if len(found) > 1 {
			return nil, fmt.Errorf("%s: expected one model, found %s and others; name the file", dir, text.Found(filepath.Base(found[0])))
		}
	}
	return nil, fmt.Errorf("%s: expected %s, %s or a GGUF file, found none; berth reads no weights in pickle files (.bin, .pt)", dir, singleFile, indexFile)
}

// globLiteral keeps the characters of a directory from being a pattern.
func globLiteral(dir string) string {
	return strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`).Replace(dir)
}

// readGGUF reads a GGUF file, and the others of the same model.
func readGGUF(path string) (m modelsize.Model, err error) {
	m.GGUF = true
	read := func(path string) (g modelsize.GGUF, err error) {
		return g, with(path, func(file *os.File, size int64) error {
			g, err = modelsize.ReadGGUF(file, size)
			return err
		})
	}
	first, err := read(path)
	if err != nil {
		return m, err
	}
	m.Shape, m.Weights = first.Shape, first.Weights
	if first.Split < 2 {
		return m, nil
	}
	before, ok := strings.CutSuffix(path, fmt.Sprintf("-00001-of-%05d.gguf", first.Split))
	if !ok {
		return m, fmt.Errorf("%s: expected the first of %d files, which ends with -00001-of-%05d.gguf", path, first.Split, first.Split)
	}
	for i := 2; i <= first.Split; i++ {
		part, err := read(fmt.Sprintf("%s-%05d-of-%05d.gguf", before, i, first.Split))
		if err == nil {
			err = m.Weights.Add(part.Weights)
		}
		if err != nil {
			return m, err
		}
	}
	return m, nil
}

func readAll(path string, most int64) (content []byte, err error) {
	return content, with(path, func(file *os.File, size int64) error {
		if size > most {
			return fmt.Errorf("expected at most %d MiB, found %d", most>>20, size>>20)
		}
		content, err = io.ReadAll(io.LimitReader(file, most))
		return err
	})
}

// with opens a regular file. Opening anything else may wait for ever, or do
// something to a device.
func with(path string, read func(file *os.File, size int64) error) error {
	info, err := os.Stat(path)
	if err != nil {
		return failed(path, err)
	}
	if !info.Mode().IsRegular() {
		return fmt.Errorf("%s: expected a file, found a %s", path, kindOf(info.Mode()))
	}
	file, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return failed(path, err)
	}
	defer file.Close()
	if info, err = file.Stat(); err == nil && !info.Mode().IsRegular() {
		err = fmt.Errorf("expected a file, found a %s", kindOf(info.Mode()))
	}
	if err == nil {
		err = read(file, info.Size())
	}
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	return nil
}

func kindOf(mode fs.FileMode) string {
	switch {
	case mode.IsDir():
		return "directory"
	case mode&fs.ModeNamedPipe != 0:
		return "pipe"
	case mode&fs.ModeDevice != 0:
		return "device"
	}
	return "special file"
}

// failed names a file once.
func failed(path string, err error) error {
	if reason, ok := errors.AsType[*fs.PathError](err); ok {
		err = reason.Err
	}
	return fmt.Errorf("%s: %w", path, err)
}
