package site

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

func TestAUserHasAllGroups(t *testing.T) {
	want := User{Name: "ann", UID: 1000, GID: 1000, Groups: []int{27, 44, 1000}, Home: "/home/ann", Shell: "/bin/bash"}
	tests := []struct {
		name    string
		machine func(t *testing.T) *fake
	}{
		{"through getent", withAnn},
		{"through id, where getent does not know initgroups", func(t *testing.T) *fake {
			return withAnn(t).exits("getent initgroups ann", 1, "").says("id -G ann", "1000 27 44\n")
		}},
		{"from the files, where neither is installed", func(t *testing.T) *fake {
			return newFake(t).file("/etc/passwd", "root:x:0:0:root:/root:/bin/sh\ndamaged\n+@nis\n"+ann).
				file("/etc/group", "sudo:x:27:bob,ann\nvideo:x:44:ann\ndamaged\nann:x:1000:\nother:x:9:anna\n")
		}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			users := newUsers(test.machine(t).machine, 0, time.Now)
			for name, ask := range map[string]func() (User, error){
				"by number": func() (User, error) { return users.ByUID(t.Context(), 1000) },
				"by name":   func() (User, error) { return users.ByName(t.Context(), "ann") },
			} {
				user, err := ask()
				user.At, user.as = time.Time{}, Edition{}
				if err != nil || fmt.Sprint(user) != fmt.Sprint(want) {
					t.Errorf("%s: %+v, %v", name, user, err)
				}
			}
		})
	}
}

func TestWhatNoEntryMeans(t *testing.T) {
	tests := []struct {
		name    string
		change  func(*fake)
		unknown bool
	}{
		{"local files only: there is no such user", func(*fake) {}, true},
		{"a service that is not set up does not count", func(f *fake) { f.file("/etc/nsswitch.conf", "passwd: files sss\n") }, true},
		{"a service that runs has answered", func(f *fake) {
			f.file("/etc/nsswitch.conf", "passwd: files [!NOTFOUND=return] sss # comment\n").file("/etc/sssd/sssd.conf", "")
			listen(f.t, f.path("/var/lib/sss/pipes/nss"))
		}, true},
		{"a service that is down might know the user", func(f *fake) {
			f.file("/etc/nsswitch.conf", "passwd: files sss\n").file("/etc/sssd/conf.d/lab.conf", "")
		}, false},
		{"a service nobody can judge might know the user", func(f *fake) { f.file("/etc/nsswitch.conf", "passwd: files nis\n") }, false},
		{"getent fails", func(f *fake) { f.exits("getent", 1, "") }, false},
		{"getent prints nothing", func(f *fake) { f.says("getent", "") }, false},
		{"getent prints nonsense", func(f *fake) { f.says("getent", "bob:x:minus one:0::/:/bin/sh\n") }, false},
		{"getent answers about somebody else", func(f *fake) { f.says("getent passwd 1234", ann) }, false},
		{"getent hangs", func(f *fake) { f.breaks("getent", errNoAnswer) }, false},
		{"there is neither getent nor a file", func(f *fake) { f.breaks("getent", errNotInstalled) }, false},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			f := withAnn(t)
			test.change(f)
			_, err := newUsers(f.machine, 0, time.Now).ByUID(t.Context(), 1234)
			if err == nil || errors.Is(err, ErrUnknownUser) != test.unknown {
				t.Errorf("it says %v", err)
			}
		})
	}
}

func listen(t *testing.T, path string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
}

func TestNobodyRunsWithFewerGroups(t *testing.T) {
	tests := []struct {
		name   string
		change func(*fake)
	}{
		{"the groups cannot be asked for", func(f *fake) { f.breaks("getent initgroups ann", errNoAnswer) }},
		{"a service of groups is down", func(f *fake) {
			f.file("/etc/nsswitch.conf", "passwd: files\ngroup: files ldap\n").file("/etc/nslcd.conf", "")
		}},
		{"a service of groups is down, named for this purpose only", func(f *fake) {
			f.file("/etc/nsswitch.conf", "passwd: files\ngroup: files\ninitgroups: winbind\n").file("/etc/samba/smb.conf", "")
		}},
		{"the groups are somebody else's", func(f *fake) { f.says("getent initgroups ann", "bob 27\n") }},
		{"a group id is not a number", func(f *fake) { f.says("getent initgroups ann", "ann 27 x\n") }},
		{"a group is above the kernel's bound", func(f *fake) { f.says("getent initgroups ann", "ann 4294967295\n") }},
		{"id fails in the place of getent", func(f *fake) { f.exits("getent initgroups ann", 1, "").exits("id", 1, "") }},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			f := withAnn(t)
			test.change(f)
			user, err := newUsers(f.machine, 0, time.Now).ByUID(t.Context(), 1000)
			if err == nil || errors.Is(err, ErrUnknownUser) {
				t.Errorf("%+v, %v", user, err)
			}
		})
	}
	// root's rights do not come from groups, and root must be able to repair.
	f := newFake(t).file("/etc/nsswitch.conf", "group: sss\n").file("/etc/sssd/sssd.conf", "").
		says("getent passwd 0", "root:x:0:0::/root:/bin/sh\n").says("getent initgroups root", "root\n")
	if user, err := newUsers(f.machine, 0, time.Now).ByUID(t.Context(), 0); err != nil || !slices.Equal(user.Groups, []int{0}) {
		t.Errorf("root: %+v, %v", user, err)
	}
}

func TestNamesThatMeanSomethingElse(t *testing.T) {
	f := withAnn(t)
	users := newUsers(f.machine, 0, time.Now)
	for _, name := range []string{"", "-s", "+1000", " 1000", "a:b", "a\nb", "../x", strings.Repeat("x", 300)} {
		if _, err := users.ByName(t.Context(), name); !errors.Is(err, ErrUnknownUser) {
			t.Errorf("%q: %v", name, err)
		}
	}
	if len(f.calls) > 0 {
		t.Errorf("programs were asked: %q", f.calls)
	}
	// getent takes a name of digits for a number.
	if user, err := users.ByName(t.Context(), "1000"); !errors.Is(err, ErrUnknownUser) {
		t.Errorf("the user named 1000: %+v, %v", user, err)
	}
	f.says("getent group 27", "sudo:x:27:\n")
	if in, err := users.InGroup(User{GID: 27}, "27"); err != nil || in {
		t.Errorf("in the group named 27: %v, %v", in, err)
	}
	if _, err := users.InGroup(User{GID: 27}, "-s"); err == nil {
		t.Error("a group named -s")
	}
}

func TestAnAnswerIsGoodForATime(t *testing.T) {
	f := withAnn(t)
	now := time.Unix(1e9, 0)
	users := newUsers(f.machine, time.Minute, func() time.Time { return now })
	if _, ok := users.Cached(1000, time.Hour); ok {
		t.Error("known before anyone asked")
	}
	ask := func(want int) {
		t.Helper()
		if _, err := users.ByUID(t.Context(), 1000); err != nil {
			t.Error(err)
		}
		if _, err := users.ByName(t.Context(), "ann"); err != nil {
			t.Error(err)
		}
		if n := f.count("getent initgroups ann"); n != want {
			t.Errorf("asked %d times, want %d", n, want)
		}
	}
	ask(1)
	now = now.Add(time.Minute)
	ask(1)
	now = now.Add(time.Second)
	ask(2)

	// A database that does not answer takes nothing away.
	now = now.Add(time.Hour)
	f.breaks("getent passwd 1000", errNoAnswer)
	if _, err := users.ByUID(t.Context(), 1000); err == nil || errors.Is(err, ErrUnknownUser) {
		t.Errorf("an old answer was given: %v", err)
	}
	if user, ok := users.Cached(1000, time.Hour); !ok || user.Name != "ann" {
		t.Errorf("what was known is forgotten: %+v", user)
	}
	if _, ok := users.Cached(1000, time.Hour-time.Second); ok {
		t.Error("an answer that is too old")
	}
	// One that answers "no such user" does.
	f.exits("getent passwd 1000", getentNotFound, "")
	if _, err := users.ByUID(t.Context(), 1000); !errors.Is(err, ErrUnknownUser) {
		t.Error(err)
	}
	if _, ok := users.Cached(1000, 100*time.Hour); ok || len(users.uids) > 0 {
		t.Errorf("a user who is gone is remembered: %v", users.uids)
	}
}

func TestOneLookupPerUserAtATime(t *testing.T) {
	f := withAnn(t)
	release := make(chan struct{})
	f.programs["getent passwd 1000"] = func(call) (answer, error) {
		<-release
		return answer{stdout: ann}, nil
	}
	users := newUsers(f.machine, 0, time.Now)
	// Whoever asked first may give up; the lookup goes on for the others.
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := users.ByUID(gone, 1000); !errors.Is(err, context.Canceled) {
		t.Fatalf("it says %v", err)
	}
	var group sync.WaitGroup
	for range 50 {
		group.Go(func() {
			if user, err := users.ByUID(t.Context(), 1000); err != nil || user.Name != "ann" {
				t.Errorf("%+v, %v", user, err)
			} else {
				user.Groups[0] = -1 // what one does with the answer is not another's trouble
			}
		})
	}
	close(release)
	group.Wait()
	if n := f.count("getent passwd 1000"); n != 1 {
		t.Errorf("asked %d times", n)
	}
	if user, _ := users.Cached(1000, time.Hour); !slices.Equal(user.Groups, []int{27, 44, 1000}) {
		t.Errorf("groups are %v", user.Groups)
	}
}

func TestTheMemoryIsBounded(t *testing.T) {
	f := newFake(t)
	f.programs["getent"] = func(c call) (answer, error) {
		if c.args[0] == "initgroups" {
			return answer{stdout: c.args[1] + "\n"}, nil
		}
		return answer{stdout: fmt.Sprintf("u%s:x:%s:1::/:/bin/sh\n", c.args[1], c.args[1])}, nil
	}
	at := time.Unix(1e9, 0)
	users := newUsers(f.machine, time.Hour, func() time.Time { return at })
	for uid := range maxUsers + 20 {
		at = at.Add(time.Millisecond)
		if _, err := users.ByUID(t.Context(), uid); err != nil {
			t.Fatal(err)
		}
	}
	if len(users.byUID) != maxUsers || len(users.uids) != maxUsers {
		t.Errorf("%d users and %d names are remembered", len(users.byUID), len(users.uids))
	}
	if _, ok := users.Cached(19, time.Hour); ok {
		t.Error("an old one was kept")
	}
	if _, ok := users.Cached(20, time.Hour); !ok {
		t.Error("a newer one was not kept")
	}
}

func TestInGroup(t *testing.T) {
	f := withAnn(t)
	users := newUsers(f.machine, 0, time.Now)
	tests := []struct {
		name string
		user User
		want bool
	}{
		{"as a supplementary group", User{GID: 1000, Groups: []int{27}}, true},
		{"as the primary group", User{GID: 27}, true},
		{"not at all", User{GID: 1000, Groups: []int{26, 28}}, false},
	}
	for _, test := range tests {
		if in, err := users.InGroup(test.user, "berth-admin"); err != nil || in != test.want {
			t.Errorf("%s: %v, %v", test.name, in, err)
		}
	}
	if n := f.count("getent group berth-admin"); n != 1 {
		t.Errorf("asked %d times", n)
	}
	if in, err := users.InGroup(User{}, "nobody-made-it"); err != nil || in {
		t.Errorf("a group that does not exist: %v, %v", in, err)
	}
	f.breaks("getent group lab", errNoAnswer)
	if in, err := users.InGroup(User{}, "lab"); err == nil || in {
		t.Errorf("a database that does not answer: %v, %v", in, err)
	}
}

func TestTheUserWhoRunsThis(t *testing.T) {
	users := NewUsers(0)
	user, err := users.ByUID(t.Context(), os.Getuid())
	if err != nil {
		t.Skipf("this user is in no database: %v", err)
	}
	groups, err := os.Getgroups()
	if err != nil {
		t.Fatal(err)
	}
	if user.UID != os.Getuid() || !filepath.IsAbs(user.Home) || user.At.IsZero() {
		t.Errorf("%+v", user)
	}
	t.Logf("%+v, this process has %v", user, groups)
	if _, err := users.ByName(t.Context(), "no-such-user-"+strconv.Itoa(os.Getpid())); !errors.Is(err, ErrUnknownUser) {
		t.Errorf("a user that does not exist: %v", err)
	}
}

func TestAChangeOfLocalUsersCountsAtOnce(t *testing.T) {
	f := newFake(t).file("/etc/passwd", ann).file("/etc/group", "ann:x:1000:\n")
	users := newUsers(f.machine, time.Hour, time.Now)
	if user, err := users.ByUID(t.Context(), 1000); err != nil || user.Name != "ann" {
		t.Fatal(user, err)
	}
	f.file("/etc/passwd", strings.Replace(ann, "ann:", "successor:", 1))
	if user, err := users.ByUID(t.Context(), 1000); err != nil || user.Name != "successor" {
		t.Errorf("%s: %v", user.Name, err)
	}
}
