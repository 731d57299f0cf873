package site

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// TrustedFile returns an error unless a root daemon may trust a file: it is a
// regular file, root owns it, only root may write to it, and the same holds
// for every directory and link on its path.
func TrustedFile(path string) error { return trusted(path, 0) }

// TrustedDir returns an error unless a root daemon may keep its files in a
// directory, by the rules of TrustedFile. The directory may be missing if only
// root can create it.
func TrustedDir(path string) error {
	err := walk(path, 0, unix.S_IFDIR, "directory")
	if errors.Is(err, unix.ENOENT) {
		return nil
	}
	return err
}

// OwnDir returns an error unless a directory belongs to this user: another
// user who can write to it could place a queue there and have it run.
func OwnDir(path string) error {
	var stat unix.Stat_t
	if err := unix.Stat(path, &stat); err != nil {
		return fmt.Errorf("examine %s: %w", path, err)
	}
	switch {
	case stat.Mode&unix.S_IFMT != unix.S_IFDIR:
		return fmt.Errorf("%s is not a directory", path)
	case int(stat.Uid) != os.Geteuid():
		return fmt.Errorf("%s belongs to user %d, who could have commands run from it", path, stat.Uid)
	case stat.Mode&0o002 != 0:
		return fmt.Errorf("%s is writable by all users, who could have commands run from it", path)
	}
	return nil
}

// OwnPlace returns an error unless no other user can put anything into a
// directory, or put another in its place. A link to it must be this user's or
// root's.
func OwnPlace(path string) error {
	for _, at := range []string{path, filepath.Dir(path)} {
		var stat unix.Stat_t
		if err := unix.Lstat(at, &stat); err != nil {
			return fmt.Errorf("%s: %w", at, err)
		}
		link := stat.Mode&unix.S_IFMT == unix.S_IFLNK
		switch {
		case at == path && stat.Uid != 0 && int(stat.Uid) != os.Geteuid():
			return fmt.Errorf("%s belongs to user %d, who could have put links to your files there", at, stat.Uid)
		case at != path && !link && stat.Mode&0o002 != 0 && stat.Mode&unix.S_ISVTX == 0:
			return fmt.Errorf("%s is in a directory that all users can write to, and could be replaced by any of them", path)
		}
	}
	return ownEntry(path, true)
}

// OwnEntry returns an error unless a file or directory in such a place is this
// user's own, or missing. Users may link their own to elsewhere.
func OwnEntry(path string) error {
	var stat unix.Stat_t
	err := unix.Lstat(path, &stat)
	switch {
	case errors.Is(err, unix.ENOENT):
		return nil
	case err != nil:
		return fmt.Errorf("%s: %w", path, err)
	case int(stat.Uid) != os.Geteuid() && stat.Uid != 0:
		return fmt.Errorf("%s belongs to user %d, who could have made it a link to one of your files", path, stat.Uid)
	}
	return ownEntry(path, false)
}

// ownEntry checks what a path leads to.
func ownEntry(path string, must bool) error {
	var stat unix.Stat_t
	err := unix.Stat(path, &stat)
	if errors.Is(err, unix.ENOENT) && !must {
		return nil
	}
	isDir := stat.Mode&unix.S_IFMT == unix.S_IFDIR
	// Many systems give each user a group of the same number, and let it write.
	shared := stat.Mode&0o002 != 0 || stat.Mode&0o020 != 0 && int(stat.Gid) != os.Geteuid()
	switch {
	case err != nil:
		return fmt.Errorf("%s: %w", path, err)
	case int(stat.Uid) != os.Geteuid():
		return fmt.Errorf("%s belongs to user %d", path, stat.Uid)
	case isDir && shared:
		return fmt.Errorf("%s can be written to by other users, who could put links to your files there (chmod go-w %s)", path, path)
	case !isDir && stat.Nlink > 1:
		return fmt.Errorf("%s has %d hard links", path, stat.Nlink)
	}
	return nil
}

// trusted accepts what belongs to root or to owner.
func trusted(path string, owner int) error { return walk(path, owner, unix.S_IFREG, "regular file") }

// maxLinks is the kernel's own limit.
const maxLinks = 40

// walk checks every element of a path, and the type of the file it leads to.
func walk(path string, owner int, want uint32, kindName string) error {
	abs, err := filepath.Abs(path)
	if err != nil {
		return fmt.Errorf("examine %s: %w", path, err)
	}
	todo := strings.Split(strings.Trim(abs, "/"), "/")
	at, links := "/", 0
	for {
		var stat unix.Stat_t
		if err := unix.Lstat(at, &stat); err != nil {
			return fmt.Errorf("examine %s: %w", at, err)
		}
		if err := trustedEntry(at, stat, owner); err != nil {
			return err
		}
		kind := stat.Mode & unix.S_IFMT
		if kind == unix.S_IFLNK {
			if links++; links > maxLinks {
				return fmt.Errorf("%s: too many symbolic links", path)
			}
			target, err := os.Readlink(at)
			if err != nil {
				return fmt.Errorf("examine %s: %w", at, err)
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
		return nil // the permissions of a link mean nothing
	}
	// In a sticky directory others may add entries but not replace root's, and
	// the next element has to belong to root.
	sticky := stat.Mode&unix.S_IFMT == unix.S_IFDIR && stat.Mode&unix.S_ISVTX != 0
	if stat.Mode&0o022 != 0 && !sticky {
		return fmt.Errorf("%s is writable by users other than root (mode %04o)", path, stat.Mode&0o7777)
	}
	return nil
}
