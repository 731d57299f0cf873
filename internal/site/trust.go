package site

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// TrustedFile fails unless a root daemon may believe a file: it is a regular
// one, root owns it, nobody else may write to it, and the same is true of
// every directory and link on the way.
func TrustedFile(path string) error { return trusted(path, 0) }

// TrustedDir fails unless a root daemon may keep its things in a directory:
// the same is true of it. What is missing is no reason to fail, if root is the
// only one who can make it.
func TrustedDir(path string) error {
	err := walk(path, 0, unix.S_IFDIR, "directory")
	if errors.Is(err, unix.ENOENT) {
		return nil
	}
	return err
}

// OwnDir fails unless a directory is this user's: whoever else could write to
// it could lay a queue there, and have it run.
func OwnDir(path string) error {
	var stat unix.Stat_t
	if err := unix.Stat(path, &stat); err != nil {
		return fmt.Errorf("look at %s: %w", path, err)
	}
	switch {
	case stat.Mode&unix.S_IFMT != unix.S_IFDIR:
		return fmt.Errorf("%s is not a directory", path)
	case int(stat.Uid) != os.Geteuid():
		return fmt.Errorf("%s belongs to user %d, who could have anything run from it", path, stat.Uid)
	case stat.Mode&0o002 != 0:
		return fmt.Errorf("%s can be written to by everybody, who could have anything run from it", path)
	}
	return nil
}

// trusted believes what belongs to root or to owner.
func trusted(path string, owner int) error { return walk(path, owner, unix.S_IFREG, "regular file") }

// maxLinks is where the kernel gives up following them, too.
const maxLinks = 40

// walk looks at everything on the way to a path, and at what kind of thing it
// leads to.
func walk(path string, owner int, want uint32, kindName string) error {
	abs, err := filepath.Abs(path)
	if err != nil {
		return fmt.Errorf("look at %s: %w", path, err)
	}
	todo := strings.Split(strings.Trim(abs, "/"), "/")
	at, links := "/", 0
	for {
		var stat unix.Stat_t
		if err := unix.Lstat(at, &stat); err != nil {
			return fmt.Errorf("look at %s: %w", at, err)
		}
		if err := trustedEntry(at, stat, owner); err != nil {
			return err
		}
		kind := stat.Mode & unix.S_IFMT
		if kind == unix.S_IFLNK {
			if links++; links > maxLinks {
				return fmt.Errorf("%s has too many links on its way", path)
			}
			target, err := os.Readlink(at)
			if err != nil {
				return fmt.Errorf("look at %s: %w", at, err)
			}
			at = filepath.Dir(at)
			if filepath.IsAbs(target) {
				at = "/"
			}
			todo = append(strings.Split(strings.Trim(target, "/"), "/"), todo...)
		} else if len(todo) == 0 {
			if kind != want {
				return fmt.Errorf("%s is not a %s", path, kindName)
			}
			return nil
		}
		at, todo = filepath.Join(at, todo[0]), todo[1:]
	}
}

func trustedEntry(path string, stat unix.Stat_t, owner int) error {
	if stat.Uid != 0 && int(stat.Uid) != owner {
		return fmt.Errorf("%s belongs to user %d, not to root", path, stat.Uid)
	}
	if stat.Mode&unix.S_IFMT == unix.S_IFLNK {
		return nil // a link's permissions mean nothing
	}
	// In a sticky directory others may add entries but not touch root's, and
	// what comes next on the way has to be root's.
	sticky := stat.Mode&unix.S_IFMT == unix.S_IFDIR && stat.Mode&unix.S_ISVTX != 0
	if stat.Mode&0o022 != 0 && !sticky {
		return fmt.Errorf("%s can be written to by others than root (mode %04o)", path, stat.Mode&0o7777)
	}
	return nil
}
