package snapshot

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"berth/internal/job"
	"berth/internal/text/problem"
)

var errNotDir = syscall.ENOTDIR

// entry is one file, link or directory of a tree.
type entry struct {
	name  string // relative to the root
	mode  fs.FileMode
	bytes int64
	stamp stamp

	sum  string // of a file's content
	link string // a link's target in the copy
}

// stamp changes whenever a file does.
type stamp struct {
	device, inode    uint64
	bytes            int64
	changed, written syscall.Timespec
}

func stampOf(info fs.FileInfo) stamp {
	s, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		panic("bug: a file without its system's data")
	}
	return stamp{s.Dev, s.Ino, s.Size, s.Ctim, s.Mtim}
}

// listing is what a snapshot will contain.
type listing struct {
	root     string
	repo     *repository // nil: a plain directory
	entries  []entry     // sorted by name, each once
	bytes    int64
	files    int      // entries that are not directories
	standard rules    // for what is not tracked
	own      rules    // the tree's
	skip     []string // absolute paths that are never part of it
	notices  []string
	skipped  int             // files of other kinds
	realDirs map[string]bool // whether a name is a directory and no link
	most     int             // how many entries are looked at
}

// list finds the tree that is asked for and its files.
func list(ctx context.Context, a Ask) (*listing, error) {
	from := a.Tree
	if a.Tree == job.SnapshotAuto {
		from = a.Dir
	}
	from, err := realDir(from)
	if err != nil {
		return nil, err
	}
	l := &listing{root: from, standard: parseRules(defaultRules), skip: a.Skip, realDirs: map[string]bool{}, most: 4 * maxFiles}
	if l.repo, err = findRepository(ctx, from); err != nil {
		return nil, err
	}
	if l.repo != nil && a.Tree == job.SnapshotAuto {
		l.root = l.repo.top
	}
	if l.own, err = readRules(l.root); err != nil {
		return nil, problem.Newf(problem.Unable, "", "snapshot: %v", err)
	}
	if l.repo != nil {
		err = l.gitFiles(ctx, "")
	} else {
		err = l.plainFiles(ctx, "")
	}
	if err != nil && !errors.Is(err, errEnough) {
		return nil, unreadable(err)
	}
	if l.skipped > 0 {
		l.notice(fmt.Sprintf("%d sockets, pipes or devices are not part of the snapshot", l.skipped))
	}
	slices.SortFunc(l.entries, func(a, b entry) int { return strings.Compare(a.name, b.name) })
	l.entries = slices.CompactFunc(l.entries, func(a, b entry) bool { return a.name == b.name }) // git lists a conflict three times
	return l, nil
}

// realDir is a directory's path without links.
func realDir(dir string) (string, error) {
	whole, err := filepath.EvalSymlinks(dir)
	if err == nil {
		var info fs.FileInfo
		if info, err = os.Stat(whole); err == nil && !info.IsDir() {
			err = errNotDir
		}
	}
	if err != nil {
		return "", problem.Newf(problem.Invalid, "", "snapshot: expected a directory, found %s: %v", dir, cause(err))
	}
	return whole, nil
}

// plainFiles adds a directory that git does not know, and everything in it that
// the rules do not ignore.
func (l *listing) plainFiles(ctx context.Context, in string) error {
	dir := filepath.Join(l.root, in)
	found, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	rules := slices.Concat(l.standard, l.own)
	for _, item := range found {
		name := filepath.Join(in, item.Name())
		ignored, decided := rules.judge(ctx, name, item.IsDir())
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if ignored || !decided && item.IsDir() && isEnvironment(filepath.Join(l.root, name)) {
			continue
		}
		info, err := item.Info()
		if errors.Is(err, fs.ErrNotExist) {
			continue // it was there a moment ago
		}
		if err == nil {
			err = l.add(name, info)
		}
		if err == nil && item.IsDir() && !slices.Contains(l.skip, filepath.Join(l.root, name)) {
			err = l.plainFiles(ctx, name)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// isEnvironment reports a virtual environment of Python's or of conda's.
func isEnvironment(dir string) bool {
	for _, mark := range []string{"pyvenv.cfg", "conda-meta"} {
		if _, err := os.Lstat(filepath.Join(dir, mark)); err == nil {
			return true
		}
	}
	return false
}

// errEnough ends a listing that is far beyond the limits.
var errEnough = errors.New("too many files")

// add notes an entry, unless it is of a kind that cannot be copied.
func (l *listing) add(name string, info fs.FileInfo) error {
	for _, place := range l.skip {
		if whole := filepath.Join(l.root, name); whole == place || strings.HasPrefix(whole, place+"/") {
			return nil
		}
	}
	switch info.Mode().Type() {
	case 0:
		l.bytes += info.Size()
	case fs.ModeSymlink, fs.ModeDir:
	default:
		l.skipped++
		return nil
	}
	e := entry{name: name, mode: info.Mode(), stamp: stampOf(info)}
	if info.Mode().IsRegular() {
		e.bytes = info.Size()
	}
	l.entries = append(l.entries, e)
	if !e.mode.IsDir() {
		l.files++
	}
	if len(l.entries) > l.most {
		return errEnough
	}
	return nil
}

func (l *listing) notice(text string) {
	if !slices.Contains(l.notices, text) {
		l.notices = append(l.notices, text)
	}
}

// inRealDirs reports whether no directory above a name is a link: git still lists
// files of a directory that a link has replaced, and they are gone.
func (l *listing) inRealDirs(name string) bool {
	dir := filepath.Dir(name)
	if dir == "." {
		return true
	}
	known, ok := l.realDirs[dir]
	if !ok {
		info, err := os.Lstat(filepath.Join(l.root, dir))
		known = err == nil && info.IsDir() && l.inRealDirs(dir)
		l.realDirs[dir] = known
	}
	return known
}

// has reports whether the snapshot will have a path of the tree, as an entry or
// as a directory of one.
func (l *listing) has(name string) bool {
	if name == "." {
		return true
	}
	at, found := slices.BinarySearchFunc(l.entries, name, func(e entry, name string) int { return strings.Compare(e.name, name) })
	if found {
		return true
	}
	// Names between a directory and its files sort before the slash.
	for ; at < len(l.entries) && strings.HasPrefix(l.entries[at].name, name); at++ {
		if strings.HasPrefix(l.entries[at].name, name+"/") {
			return true
		}
	}
	return false
}

// place is the job's directory without links. If it is in the tree, it has to be
// part of the snapshot: the job would run other code otherwise.
func (l *listing) place(dir string) (string, error) {
	whole, err := filepath.EvalSymlinks(dir)
	if err != nil || !l.within(whole) {
		return dir, nil // not in the tree
	}
	if l.contains(whole) {
		return whole, nil
	}
	return "", problem.Newf(problem.Invalid, "submit from a directory with code, or use -C DIR; a job can write its results to $BERTH_SUBMIT_DIR or any absolute path",
		"snapshot: the working directory %s is not part of it, because it is empty or all its files are ignored", whole)
}

func unreadable(err error) error {
	if problem.KindOf(err) != "" || errors.Is(err, context.Canceled) {
		return err
	}
	return problem.Newf(problem.Unable, "what jobs do not need can be listed in "+ignoreFile, "snapshot: %v", err)
}

// cause is an error without the system call and the path.
func cause(err error) error {
	if failed, ok := errors.AsType[*fs.PathError](err); ok {
		return failed.Err
	}
	return err
}
