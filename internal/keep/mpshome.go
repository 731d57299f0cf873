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

// mpsHome is the directory of one server. Its lock is held for as long as its
// host lives, so that whoever finds it can tell whether it is still used.
type mpsHome struct {
	dir  string
	lock *os.File
}

const (
	homeLock = "lock"
	// A socket's path has to fit into what the kernel has for one, with the
	// longest name that the control daemon gives one of its own.
	longestSocket = 107
	longestName   = len("/control_privileged")
	lockBudget    = 2 * time.Second
	maxSwept      = 1000 // directories looked at per start; the rest is for later ones
)

// makeMPSHome makes the directory, and removes those that hosts which were
// killed left beside it.
func makeMPSHome(m *MPS, user *Credential) (*mpsHome, error) {
	if have := len(m.pipes()) + longestName; have > longestSocket {
		return nil, fmt.Errorf("%s is %d bytes too long for the path of a socket", m.Dir, have-longestSocket)
	}
	parent := filepath.Dir(m.Dir)
	if err := makePassage(parent); err != nil {
		return nil, err
	}
	// Nobody sweeps while another one's directory has no lock yet.
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

// makePassage makes the directory of all servers, which users may pass through
// and not look into.
func makePassage(dir string) error {
	err := os.Mkdir(dir, 0o711)
	switch {
	case err == nil:
		return os.Chmod(dir, 0o711) // whatever the mask is
	case os.IsExist(err):
		return nil
	}
	return err
}

// furnish makes what the control daemon needs, and lets the job's user in.
func (h *mpsHome) furnish(m *MPS, user *Credential) error {
	for _, dir := range []string{m.pipes(), m.logs()} {
		if err := os.Mkdir(dir, 0o755); err != nil {
			return err
		}
		if err := os.Chmod(dir, 0o755); err != nil { // whatever the mask is
			return err
		}
	}
	if user == nil || user.UID == os.Geteuid() {
		return nil
	}
	if err := admit(h.dir, user.UID); err == nil {
		return nil
	}
	// A file system that cannot name one user lets all of them through: the
	// control daemon itself serves them only as far as they are the job's.
	return os.Chmod(h.dir, 0o711)
}

func (h *mpsHome) remove() {
	// What cannot be removed now is swept by a later host.
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
		// Nothing else is called like this, and nothing else is touched.
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

// lockFile opens and locks a file, waiting for no longer than that.
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

// admit lets one user pass through a directory that is closed to all others,
// by an access control list as the kernel keeps it: a version, and for each
// entry what it is, what it allows, and whom.
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
