package snapshot

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"berth/internal/text/problem"
)

// repository is a git work tree.
type repository struct {
	top    string // its root
	commit string // checked out; empty before the first one
}

// findRepository is the work tree that a directory belongs to; nil: none, or one
// that ignores the directory.
func findRepository(ctx context.Context, dir string) (*repository, error) {
	marker := gitAbove(dir)
	if marker == "" {
		return nil, nil
	}
	if _, err := exec.LookPath("git"); err != nil {
		return nil, problem.Newf(problem.Unable, "install git, or submit with --no-snapshot", "%s is in the git repository %s, but git is not in PATH", dir, filepath.Dir(marker))
	}
	top, err := git(ctx, dir, "rev-parse", "--show-toplevel")
	if err != nil {
		return nil, err
	}
	r := &repository{top: strings.TrimSuffix(string(top), "\n")}
	if _, err := git(ctx, r.top, "check-ignore", "-q", "--", dir); err == nil && dir != r.top {
		return nil, nil
	}
	if commit, err := git(ctx, dir, "rev-parse", "--verify", "-q", "HEAD"); err == nil {
		r.commit = strings.TrimSpace(string(commit))
	}
	return r, nil
}

// gitAbove is the nearest .git, in a directory or above it; empty: it is not in a
// git tree.
func gitAbove(dir string) string {
	for {
		marker := filepath.Join(dir, ".git")
		if _, err := os.Lstat(marker); err == nil {
			return marker
		}
		if dir == "/" {
			return ""
		}
		dir = filepath.Dir(dir)
	}
}

// git runs git in a directory and returns its output.
func git(ctx context.Context, dir string, args ...string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, "git", args...)
	cmd.Dir = dir
	var out, complaint bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &complaint
	cmd.Env = append(slices.DeleteFunc(os.Environ(), ofOtherRepository), "LC_ALL=C", "GIT_OPTIONAL_LOCKS=0")
	if err := cmd.Run(); err != nil {
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		said := strings.TrimSpace(complaint.String())
		said = cmp.Or(said, err.Error())
		first, _, _ := strings.Cut(said, "\n")
		return nil, problem.Newf(problem.Unable, "git -C "+dir+" status shows more; --no-snapshot submits without a snapshot", "git cannot read the repository of %s: %s", dir, first)
	}
	return out.Bytes(), nil
}

// ofOtherRepository reports a variable that makes git look at another repository
// than the directory's, as in a hook.
func ofOtherRepository(variable string) bool {
	name, _, _ := strings.Cut(variable, "=")
	switch name {
	case "GIT_CONFIG_GLOBAL", "GIT_CONFIG_SYSTEM", "GIT_CONFIG_NOSYSTEM", "GIT_CEILING_DIRECTORIES":
		return false
	}
	return strings.HasPrefix(name, "GIT_")
}

// gitFiles adds the files of a directory in a work tree: tracked ones as they are
// now, and untracked ones that neither git nor the default rules ignore.
func (l *listing) gitFiles(ctx context.Context, in string) error {
	dir := filepath.Join(l.root, in)
	for _, tracked := range []bool{true, false} {
		args := []string{"ls-files", "-z", "--cached"}
		if !tracked {
			args = []string{"ls-files", "-z", "--others", "--exclude-standard"}
		}
		out, err := git(ctx, dir, args...)
		if err != nil {
			return err
		}
		for name := range strings.SplitSeq(string(out), "\x00") {
			if name == "" {
				continue
			}
			name = filepath.Join(in, name)
			if !tracked && l.standard.ignores(ctx, name) {
				continue
			}
			if err := l.gitFile(ctx, name, tracked); err != nil {
				return err
			}
		}
	}
	return nil
}

// gitFile adds one name that git listed. A directory is a submodule or a
// repository inside this one; git lists its files only there.
func (l *listing) gitFile(ctx context.Context, name string, tracked bool) error {
	ignored := l.own.ignores(ctx, name)
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if ignored || !l.inRealDirs(name) {
		return nil
	}
	info, err := os.Lstat(filepath.Join(l.root, name))
	switch {
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, errNotDir):
		return nil // deleted in the work tree
	case err != nil:
		return err
	case !info.IsDir():
		return l.add(name, info)
	}
	if _, err := os.Lstat(filepath.Join(l.root, name, ".git")); err == nil {
		return l.gitFiles(ctx, name)
	}
	if tracked {
		l.notice(fmt.Sprintf("the submodule %s is not checked out, so the snapshot has no files of it", name))
	}
	return nil
}

// isDirty asks git whether the files under root differ from the commit.
func (r *repository) isDirty(ctx context.Context, root string) (bool, error) {
	out, err := git(ctx, root, "status", "--porcelain", "-z", "--untracked-files=normal", "--", ".")
	return len(out) > 0, err
}
