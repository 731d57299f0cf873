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

// drop makes the process the user's, all its threads, and proves it. Whatever
// fails here ends the stage: a job never runs as somebody else than it should.
// remark is what it has to do without.
func drop(c *Credential) (remark string, err error) {
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
		{"setgroups", func() error { return syscall.Setgroups(c.Groups) }},
		{"setresgid", func() error { return syscall.Setresgid(c.GID, c.GID, c.GID) }},
		{"setresuid", func() error { return syscall.Setresuid(c.UID, c.UID, c.UID) }},
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
	return remark, verify(c)
}

// verify asks the kernel who this is, in every way it can be asked.
func verify(c *Credential) error {
	if err := verifyIDs(syscall.SYS_GETRESUID, "user", c.UID); err != nil {
		return err
	}
	if err := verifyIDs(syscall.SYS_GETRESGID, "group", c.GID); err != nil {
		return err
	}
	groups, err := syscall.Getgroups()
	if err != nil {
		return fmt.Errorf("ask for groups: %w", err)
	}
	if want := sortedSet(c.Groups); !slices.Equal(sortedSet(groups), want) {
		return fmt.Errorf("groups are %v, not %v", groups, want)
	}
	tasks, err := readNames("/proc/self/task")
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
	// The way back must be shut.
	const asIs = ^uintptr(0)
	if _, _, errno := syscall.RawSyscall(syscall.SYS_SETRESUID, asIs, 0, asIs); errno == 0 {
		return errors.New("it could become root again")
	}
	if c.GID != 0 {
		if _, _, errno := syscall.RawSyscall(syscall.SYS_SETRESGID, asIs, 0, asIs); errno == 0 {
			return errors.New("it could enter root's group again")
		}
	}
	return nil
}

// verifyIDs checks real, effective and saved id at once.
func verifyIDs(call uintptr, what string, want int) error {
	var ids [3]uint32
	_, _, errno := syscall.RawSyscall(call, sized(&ids[0]), sized(&ids[1]), sized(&ids[2]))
	if errno != 0 {
		return fmt.Errorf("ask for %s: %w", what, errno)
	}
	for _, id := range ids {
		if int(id) != want {
			return fmt.Errorf("%s is %v, not %d", what, ids, want)
		}
	}
	return nil
}

// verifyThread reads what the kernel tells of one thread.
func verifyThread(task string, c *Credential) error {
	status, err := os.ReadFile(filepath.Join("/proc/self/task", task, "status"))
	if errors.Is(err, os.ErrNotExist) || errors.Is(err, syscall.ESRCH) {
		return nil // it ended meanwhile
	}
	if err != nil {
		return fmt.Errorf("ask for thread: %w", err)
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
			want["CapInh"] = none // only this one executes the command
		}
	}
	for line := range strings.Lines(string(status)) {
		key, value, _ := strings.Cut(line, ":")
		expected, asked := want[key]
		if !asked {
			continue
		}
		if got := strings.Join(strings.Fields(value), " "); got != expected {
			return fmt.Errorf("%s of a thread is %s, not %s", key, got, expected)
		}
		delete(want, key)
	}
	delete(want, "CapAmb") // unknown to old kernels, which have none
	if len(want) > 0 {
		return fmt.Errorf("the kernel does not tell of %d things that matter", len(want))
	}
	return nil
}

func sortedSet(ids []int) []int {
	set := slices.Clone(ids)
	slices.Sort(set)
	return slices.Compact(set)
}

// forgetInheritable empties the one set of capabilities that a change of user
// leaves alone. verify sees whether it worked.
func forgetInheritable() {
	header := [2]uint32{0x20080522, 0} // the third version, this thread
	var none [6]uint32
	_, _, _ = syscall.RawSyscall(syscall.SYS_CAPSET, sized(&header[0]), sized(&none[0]), 0)
}

// leaveKeyring gives the job a session keyring of its own: whoever has root's
// can use the keys in it. Some hosts allow no keyrings at all.
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
