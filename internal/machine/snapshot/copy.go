package snapshot

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
)

// The permissions in a snapshot: nobody writes to it.
const (
	fileMode = 0o444
	execMode = 0o555
	dirMode  = 0o555
)

// changedError is a file that changed while it was read.
type changedError struct{ path string }

func (e *changedError) Error() string { return e.path + " changed while it was being copied" }

// each does something with every entry, several at a time, and returns the first
// error.
func (l *listing) each(ctx context.Context, do func(*entry) error) error {
	var next atomic.Int64
	var group sync.WaitGroup
	var once sync.Once
	var failed error
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	for range max(16, runtime.GOMAXPROCS(0)) { // they mostly wait for the disk, and share its flushes
		group.Go(func() {
			for ctx.Err() == nil {
				at := int(next.Add(1)) - 1
				if at >= len(l.entries) {
					return
				}
				if err := do(&l.entries[at]); err != nil {
					once.Do(func() { failed = err })
					stop()
				}
			}
		})
	}
	group.Wait()
	if failed == nil && int(next.Load()) < len(l.entries) {
		return context.Cause(ctx)
	}
	return failed
}

// read fills in the content of every entry, and then looks again whether any of
// them changed meanwhile.
func (l *listing) read(ctx context.Context) error {
	for i := range l.entries { // a link is looked up among all entries
		if e := &l.entries[i]; e.mode.Type() == fs.ModeSymlink {
			if err := l.readLink(e); err != nil {
				return err
			}
		}
	}
	err := l.each(ctx, func(e *entry) (err error) {
		if e.mode.IsRegular() {
			e.sum, err = l.readFile(ctx, e, nil)
		}
		return err
	})
	if err != nil {
		return err
	}
	return l.each(ctx, func(e *entry) error {
		path := filepath.Join(l.root, e.name)
		info, err := os.Lstat(path)
		switch {
		case err != nil && !errors.Is(err, fs.ErrNotExist):
			return err
		case err != nil || !e.mode.IsDir() && stampOf(info) != e.stamp:
			return &changedError{path}
		}
		return nil
	})
}

// readFile is the checksum of a file's content, which is also written to a copy
// if there is one.
func (l *listing) readFile(ctx context.Context, e *entry, to io.Writer) (string, error) {
	path := filepath.Join(l.root, e.name)
	file, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ELOOP) {
		return "", &changedError{path}
	}
	if err != nil {
		return "", err
	}
	defer file.Close()
	if info, err := file.Stat(); err != nil || stampOf(info) != e.stamp {
		return "", errors.Join(err, &changedError{path})
	}
	sum := sha256.New()
	if to == nil {
		to = io.Discard
	}
	if _, err := io.Copy(io.MultiWriter(sum, to), io.LimitReader(untilDone{ctx, file}, e.bytes+1)); err != nil {
		return "", err
	}
	return hex.EncodeToString(sum.Sum(nil)), nil
}

// untilDone ends a read with its context: a sparse file may be longer than anybody
// waits for.
type untilDone struct {
	ctx  context.Context
	file io.Reader
}

func (r untilDone) Read(p []byte) (int, error) {
	if r.ctx.Err() != nil {
		return 0, context.Cause(r.ctx)
	}
	return r.file.Read(p)
}

// readLink decides where a link of the copy leads: to the copy if its target is
// part of it, and to the original place otherwise.
func (l *listing) readLink(e *entry) error {
	path := filepath.Join(l.root, e.name)
	target, err := os.Readlink(path)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.EINVAL) {
		return &changedError{path}
	}
	if err != nil {
		return err
	}
	whole := target
	if !filepath.IsAbs(target) {
		whole = filepath.Join(filepath.Dir(path), target)
	}
	inside := l.contains(whole)
	if !inside {
		if real, err := filepath.EvalSymlinks(whole); err == nil {
			inside = l.within(whole) && l.contains(real) // by way of another link
		}
	}
	switch {
	case !inside:
		e.link = whole
	case filepath.IsAbs(target):
		e.link, err = filepath.Rel(filepath.Dir(path), whole)
	default:
		e.link = target
	}
	return err
}

func (l *listing) within(path string) bool {
	return path == l.root || strings.HasPrefix(path, strings.TrimSuffix(l.root, "/")+"/")
}

func (l *listing) contains(path string) bool {
	if !l.within(path) {
		return false
	}
	name, err := filepath.Rel(l.root, path)
	return err == nil && l.has(name)
}

// id is the same for trees of the same name and content.
func (l *listing) id() string {
	sum := sha256.New()
	field(sum, "berth-snapshot-1", nameOf(l.root))
	for i := range l.entries {
		e := &l.entries[i]
		kind := "file"
		switch {
		case e.mode.IsDir():
			kind = "dir"
		case e.mode.Type() == fs.ModeSymlink:
			kind = "link"
		case e.mode&0o111 != 0:
			kind = "exec"
		}
		field(sum, kind, e.name, e.sum, e.link)
	}
	return hex.EncodeToString(sum.Sum(nil))[:idDigits]
}

// idDigits are 128 bits.
const idDigits = 32

// field adds texts to a checksum so that no two lists of them look the same.
func field(sum hash.Hash, texts ...string) {
	for _, text := range texts {
		fmt.Fprintf(sum, "%d:%s", len(text), text)
	}
}
