package keep

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
)

// scope is how much of a process changes to a user. Everything that executes a
// program changes whole. Opening a file takes one thread, which costs much less:
// the runtime has to stop all others for a change of the whole process.
type scope struct {
	setgroups            func(gids []int) error
	setresgid, setresuid func(real, effective, saved int) error
	threads              func() ([]string, error) // those that have to be the user's
}

var (
	wholeProcess = scope{
		setgroups: syscall.Setgroups, setresgid: syscall.Setresgid, setresuid: syscall.Setresuid,
		threads: func() ([]string, error) { return readNames("/proc/self/task") },
	}
	oneThread = scope{
		setgroups: setThreadGroups,
		setresgid: func(r, e, s int) error { return setThreadIDs(syscall.SYS_SETRESGID, r, e, s) },
		setresuid: func(r, e, s int) error { return setThreadIDs(syscall.SYS_SETRESUID, r, e, s) },
		threads:   func() ([]string, error) { return []string{strconv.Itoa(syscall.Gettid())}, nil },
	}
)

func setThreadGroups(gids []int) error {
	list := make([]uint32, len(gids)+1) // never empty, so that it has an address
	for i, gid := range gids {
		list[i] = uint32(gid)
	}
	if _, _, errno := syscall.RawSyscall(syscall.SYS_SETGROUPS, uintptr(len(gids)), sized(&list[0]), 0); errno != 0 {
		return errno
	}
	return nil
}

func setThreadIDs(call uintptr, r, e, s int) error {
	if _, _, errno := syscall.RawSyscall(call, uintptr(r), uintptr(e), uintptr(s)); errno != 0 {
		return errno
	}
	return nil
}

// drop changes the process, or the calling thread, to the user, and verifies it.
// Any failure ends the stage: a job never runs as the wrong user. remark is
// what could not be done.
func drop(c *Credential, of scope) (remark string, err error) {
	remark, err = raiseLimits(c.Rlimits)
	if err != nil {
		return "", err
	}
	if c.Umask >= 0 {
		syscall.Umask(c.Umask)
	}
	steps := []struct {
		name string
		do   func() error
	}{
		{"setgroups", func() error { return of.setgroups(c.Groups) }},
		{"setresgid", func() error { return of.setresgid(c.GID, c.GID, c.GID) }},
		{"setresuid", func() error { return of.setresuid(c.UID, c.UID, c.UID) }},
	}
	if skips("clear capabilities") {
		keepCapabilities()
	}
	for _, step := range steps {
		if skips(step.name) {
			continue
		}
		if err := step.do(); err != nil {
			return "", fmt.Errorf("%s: %w", step.name, err)
		}
	}
	if c.UID != 0 && !skips("clear capabilities") {
		forgetInheritable()
	}
	leaveKeyring()
	return remark, verify(c, of)
}

// verify asks the kernel for the user in every possible way.
func verify(c *Credential, of scope) error {
	if err := verifyIDs(syscall.SYS_GETRESUID, "user", c.UID); err != nil {
		return err
	}
	if err := verifyIDs(syscall.SYS_GETRESGID, "group", c.GID); err != nil {
		return err
	}
	groups, err := syscall.Getgroups()
	if err != nil {
		return fmt.Errorf("get groups: %w", err)
	}
	if want := sortedSet(c.Groups); !slices.Equal(sortedSet(groups), want) {
		return fmt.Errorf("expected groups %v, found %v", want, groups)
	}
	tasks, err := of.threads()
	if err != nil || len(tasks) == 0 {
		return fmt.Errorf("list threads: %w", err)
	}
	for _, task := range tasks {
		if err := verifyThread(task, c); err != nil {
			return err
		}
	}
	if c.UID == 0 {
		return nil
	}
	// There must be no way back.
	const asIs = ^uintptr(0)
	if _, _, errno := syscall.RawSyscall(syscall.SYS_SETRESUID, asIs, 0, asIs); errno == 0 {
		return errors.New("the process could become root again")
	}
	if c.GID != 0 {
		if _, _, errno := syscall.RawSyscall(syscall.SYS_SETRESGID, asIs, 0, asIs); errno == 0 {
			return errors.New("the process could enter root's group again")
		}
	}
	return nil
}

// verifyIDs checks the real, effective and saved id at once.
func verifyIDs(call uintptr, what string, want int) error {
	var ids [3]uint32
	_, _, errno := syscall.RawSyscall(call, sized(&ids[0]), sized(&ids[1]), sized(&ids[2]))
	if errno != 0 {
		return fmt.Errorf("get %s: %w", what, errno)
	}
	for _, id := range ids {
		if int(id) != want {
			return fmt.Errorf("%s: expected %d, found %v", what, want, ids)
		}
	}
	return nil
}

// verifyThread checks what the kernel reports about one thread.
func verifyThread(task string, c *Credential) error {
	status, err := os.ReadFile(filepath.Join("/proc/self/task", task, "status"))
	if errors.Is(err, os.ErrNotExist) || errors.Is(err, syscall.ESRCH) {
		return nil // it has ended in the meantime
	}
	if err != nil {
		return fmt.Errorf("read thread status: %w", err)
	}
	user, group := strconv.Itoa(c.UID), strconv.Itoa(c.GID)
	want := map[string]string{
		"Uid": strings.Join([]string{user, user, user, user}, " "),
		"Gid": strings.Join([]string{group, group, group, group}, " "),
	}
	if c.UID != 0 {
		const none = "0000000000000000"
		for _, set := range []string{"CapPrm", "CapEff", "CapAmb"} {
			want[set] = none
		}
		if task == strconv.Itoa(syscall.Gettid()) {
			want["CapInh"] = none // only this thread executes the command
		}
	}
	for line := range strings.Lines(string(status)) {
		key, value, _ := strings.Cut(line, ":")
		expected, asked := want[key]
		if !asked {
			continue
		}
		if got := strings.Join(strings.Fields(value), " "); got != expected {
			return fmt.Errorf("%s of a thread: expected %s, found %s", key, expected, got)
		}
		delete(want, key)
	}
	delete(want, "CapAmb") // old kernels do not have it
	if len(want) > 0 {
		return fmt.Errorf("the kernel does not report %d values to verify", len(want))
	}
	return nil
}

func sortedSet(ids []int) []int {
	set := slices.Clone(ids)
	slices.Sort(set)
	return slices.Compact(set)
}

// forgetInheritable clears the one set of capabilities that a change of user
// does not. verify checks the result.
func forgetInheritable() {
	header := [2]uint32{0x20080522, 0} // version 3, this thread
	var none [6]uint32
	_, _, _ = syscall.RawSyscall(syscall.SYS_CAPSET, sized(&header[0]), sized(&none[0]), 0)
}

// leaveKeyring gives the job a session keyring of its own: a process with
// root's could use the keys in it. Some hosts allow no keyrings at all.
func leaveKeyring() {
	const joinSession = 1
	_, _, _ = syscall.RawSyscall(syscall.SYS_KEYCTL, joinSession, 0, 0)
}

func readNames(path string) ([]string, error) {
	dir, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	return dir.Readdirnames(-1)
}
