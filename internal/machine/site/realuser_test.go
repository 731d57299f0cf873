package site

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"
)

// system runs a program that changes the user database, which others may have
// locked for a moment.
func system(t *testing.T, name string, args ...string) {
	t.Helper()
	var out []byte
	var err error
	for range 20 {
		if out, err = exec.Command(name, args...).CombinedOutput(); err == nil {
			return
		}
		if !strings.Contains(string(out), "lock") {
			break
		}
		<-time.After(100 * time.Millisecond)
	}
	t.Skipf("%s %v: %v: %s", name, args, err, out)
}

func TestARealUserComesAndGoes(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("only root can make users")
	}
	if _, err := exec.LookPath("useradd"); err != nil {
		t.Skip("there is no useradd")
	}
	name, group := fmt.Sprintf("berth-u%d", os.Getpid()), fmt.Sprintf("berth-g%d", os.Getpid())
	system(t, "groupadd", group)
	t.Cleanup(func() { _ = exec.Command("groupdel", group).Run() })
	system(t, "useradd", "--no-create-home", "--user-group", "--groups", group, "--home-dir", "/home/of", "--shell", "/bin/dash", name)
	t.Cleanup(func() { _ = exec.Command("userdel", name).Run() })

	users := NewUsers(time.Nanosecond)
	user, err := users.ByName(t.Context(), name)
	if err != nil {
		t.Fatal(err)
	}
	if user.Name != name || user.UID == 0 || user.Home != "/home/of" || user.Shell != "/bin/dash" || len(user.Groups) != 2 || !slices.Contains(user.Groups, user.GID) {
		t.Errorf("%+v", user)
	}
	same, err := users.ByUID(t.Context(), user.UID)
	if err != nil || same.Name != name || !slices.Equal(same.Groups, user.Groups) {
		t.Errorf("by number: %+v, %v", same, err)
	}
	if in, err := users.InGroup(user, group); err != nil || !in {
		t.Errorf("in its group: %v, %v", in, err)
	}
	if in, err := users.InGroup(user, "root"); err != nil || in {
		t.Errorf("in root's group: %v, %v", in, err)
	}
	if limits, err := users.LoginLimits(user); err != nil || len(limits) != 16 {
		t.Errorf("limits: %v, %v", limits, err)
	}
	// The local files say the same as the name services.
	local, err := machine{run: (&fake{}).ask}.byUID(t.Context(), user.UID)
	if err != nil || local.Name != name || !slices.Equal(local.Groups, user.Groups) {
		t.Errorf("from the files: %+v, %v", local, err)
	}
	system(t, "userdel", name)
	if gone, err := users.ByUID(t.Context(), user.UID); !errors.Is(err, ErrUnknownUser) {
		t.Errorf("after its end: %+v, %v", gone, err)
	}
}
