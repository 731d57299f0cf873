package keep

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// mpsHome is the directory of one server. Its lock is held while its host
// lives, so that others can see whether it is in use.
type mpsHome struct {
	dir  string
	lock *os.File
}

const (
	homeLock = "lock"
	// The path of a socket is limited by the kernel. It includes the longest
	// name that the control daemon gives one of its sockets.
	longestSocket = 107
	longestName   = len("/control_privileged")
	lockBudget    = 2 * time.Second
	maxSwept      = 1000 // directories checked per start; later starts check the rest
)

// makeMPSHome creates the directory, and removes those that killed hosts left
// beside it.
func makeMPSHome(m *MPS, user *Credential) (*mpsHome, error) {
	if have := len(m.pipes()) + longestName; have > longestSocket {
		return nil, fmt.Errorf("%s is %d bytes too long for a socket path", m.Dir, have-longestSocket)
	}
	parent := filepath.Dir(m.Dir)
	if err := makePassage(parent); err != nil {
		return nil, err
	}
	// A new directory has no lock at first, so nothing is removed meanwhile.
	all, err := lockFile(filepath.Join(parent, homeLock), lockBudget)
	if err != nil {
		return nil, err
	}
	defer all.Close()
	sweepMPS(parent)
	h := &mpsHome{dir: m.Dir}
	if err := os.Mkdir(m.Dir, 0o700); err != nil {
		return nil, err
	}
	if h.lock, err = lockFile(filepath.Join(m.Dir, homeLock), 0); err == nil {
		err = h.furnish(m, user)
	}
	if err != nil {
		h.remove()
		return nil, err
	}
	return h, nil
}

// makePassage creates the parent directory of all servers, which users may
// traverse but not list.
func makePassage(dir string) error {
	err := os.Mkdir(dir, 0o711)
	switch {
	case err == nil:
		return os.Chmod(dir, 0o711) // whatever the umask
	case os.IsExist(err):
		return nil
	}
	return err
}

// furnish creates what the control daemon needs, and lets the job's user in.
func (h *mpsHome) furnish(m *MPS, user *Credential) error {
	for _, dir := range []string{m.pipes(), m.logs()} {
		if err := os.Mkdir(dir, 0o755); err != nil {
			return err
		}
		if err := os.Chmod(dir, 0o755); err != nil { // whatever the umask
			return err
		}
	}
	if user == nil || user.UID == os.Geteuid() {
		return nil
	}
	if err := admit(h.dir, user.UID); err == nil {
		return nil
	}
	// On a file system without access control lists, all users may traverse:
	// the control daemon itself serves only the job's user.
	return os.Chmod(h.dir, 0o711)
}

func (h *mpsHome) remove() {
	// A later host removes what cannot be removed now.
	_ = os.RemoveAll(h.dir)
	if h.lock != nil {
		h.lock.Close()
	}
}

// sweepMPS removes the directories whose hosts are gone.
func sweepMPS(parent string) {
	entries, err := os.ReadDir(parent)
	if err != nil {
		return
	}
	for _, entry := range entries[:min(len(entries), maxSwept)] {
		// Only directories named TOKEN.ATTEMPT are touched.
		if token, attempt, ok := strings.Cut(entry.Name(), "."); !entry.IsDir() || !ok || token == "" || attempt == "" {
			continue
		}
		removeForsaken(filepath.Join(parent, entry.Name()))
	}
}

// removeForsaken removes the directory if its host is gone.
func removeForsaken(dir string) {
	lock, err := lockFile(filepath.Join(dir, homeLock), 0)
	if err != nil {
		return
	}
	defer lock.Close()
	_ = os.RemoveAll(dir)
}

// lockFile opens and locks a file, waiting at most that long.
func lockFile(path string, most time.Duration) (*os.File, error) {
	file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|syscall.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, err
	}
	for until := time.Now().Add(most); ; time.Sleep(openPause) {
		err := syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if err == nil {
			return file, nil
		}
		if !errors.Is(err, syscall.EWOULDBLOCK) && !errors.Is(err, syscall.EINTR) || time.Now().After(until) {
			file.Close()
			return nil, fmt.Errorf("lock %s: %w", path, err)
		}
	}
}

// admit lets one user traverse a directory that is closed to all others, by an
// access control list in the kernel's form: a version, and for each entry its
// type, its permissions and its user.
func admit(dir string, uid int) error {
	const (
		version, nobody                                = 2, ^uint32(0)
		owner, namedUser, group, mask, others          = 0x01, 0x02, 0x04, 0x10, 0x20
		nothingAllowed, passAllowed, everythingAllowed = 0, 1, 7
	)
	list := binary.LittleEndian.AppendUint32(nil, version)
	for _, entry := range []struct {
		tag, allows uint16
		whom        uint32
	}{
		{owner, everythingAllowed, nobody}, {namedUser, passAllowed, uint32(uid)},
		{group, nothingAllowed, nobody}, {mask, passAllowed, nobody}, {others, nothingAllowed, nobody},
	} {
		list = binary.LittleEndian.AppendUint16(list, entry.tag)
		list = binary.LittleEndian.AppendUint16(list, entry.allows)
		list = binary.LittleEndian.AppendUint32(list, entry.whom)
	}
	return syscall.Setxattr(dir, "system.posix_acl_access", list, 0)
}
