package site

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
	"pgregory.net/rapid"

	"berth/internal/tests/testkit"
)

// plainLimits is /proc/1/limits of a machine without systemd.
const plainLimits = `Limit                     Soft Limit           Hard Limit           Units     
Max cpu time              unlimited            unlimited            seconds   
Max file size             unlimited            unlimited            bytes     
Max data size             unlimited            unlimited            bytes     
Max stack size            8388608              unlimited            bytes     
Max core file size        0                    unlimited            bytes     
Max resident set          unlimited            unlimited            bytes     
Max processes             96343                96343                processes 
Max open files            1024                 4096                 files     
Max locked memory         65536                65536                bytes     
Max address space         unlimited            unlimited            bytes     
Max file locks            unlimited            unlimited            locks     
Max pending signals       96343                96343                signals   
Max msgqueue size         819200               819200               bytes     
Max nice priority         0                    0                    
Max realtime priority     0                    0                    
Max realtime timeout      unlimited            unlimited            us        
`

var someone = User{Name: "ann", UID: 1000, GID: 1000, Groups: []int{27, 44, 1000}}

// withLimits is a machine with these lines in limits.conf.
func withLimits(t *testing.T, lines string) *fake {
	return newFake(t).file("/proc/1/limits", plainLimits).file("/proc/sys/fs/nr_open", "1048576\n").
		file("/proc/self/status", "Name:\tberth\nCapEff:\t000001ffffffffff\n").file("/etc/security/limits.conf", lines)
}

func lookupGroup(_ context.Context, name string) (int, bool, error) {
	gid, known := map[string]int{"lab": 44, "others": 99}[name]
	if name == "broken" {
		return 0, false, errNoAnswer
	}
	return gid, known, nil
}

func TestLimitsOfALine(t *testing.T) {
	const files, locked = unix.RLIMIT_NOFILE, unix.RLIMIT_MEMLOCK
	tests := []struct {
		name       string
		lines      string
		resource   int
		soft, hard uint64
	}{
		{"nothing is said: as the session begins", "# ann - nofile 5\n\nann soft\n", files, 1024, 4096},
		{"the user by name", "ann - nofile 5000", files, 5000, 5000},
		{"another user", "anna - nofile 5000", files, 1024, 4096},
		{"everybody", "* hard nofile 9000", files, 1024, 9000},
		{"a group of the user's", "@lab - nofile 5000", files, 5000, 5000},
		{"a group that the user is not in", "@others - nofile 5000", files, 1024, 4096},
		{"a group that does not exist", "@none - nofile 5000", files, 1024, 4096},
		{"a range of users", "500:2000 - nofile 5000", files, 5000, 5000},
		{"from a user on", "1001: - nofile 5000", files, 1024, 4096},
		{"exactly one user", ":1000 - nofile 5000", files, 5000, 5000},
		{"exactly one group, any of the user's", "@:27 - nofile 5000", files, 5000, 5000},
		{"a range of groups is about the primary one", "@20:50 - nofile 5000", files, 1024, 4096},
		{"a range with one group in it is a range", "@27:27 - nofile 5000", files, 1024, 4096},
		{"a range of groups with the primary one", "@900: - nofile 5000", files, 5000, 5000},
		{"the user counts over a group, whatever the order", "ann - nofile 5\n@lab - nofile 6\n* - nofile 7", files, 5, 5},
		{"a group counts over everybody", "@lab - nofile 6\n* - nofile 7", files, 6, 6},
		{"of two lines about the same the later counts", "* - nofile 6\n* - nofile 7", files, 7, 7},
		{"soft and hard have ranks of their own", "ann soft nofile 5\n* - nofile 7", files, 5, 7},
		{"soft is never above hard", "* soft nofile 9000", files, 4096, 4096},
		{"a lower hard limit takes soft with it", "* hard nofile 100", files, 100, 100},
		{"unlimited files are what the kernel has", "* - nofile unlimited", files, 1048576, 1048576},
		{"more files than the kernel has", "* - nofile 99999999", files, 1048576, 1048576},
		{"kilobytes", "* - memlock 100", locked, 102400, 102400},
		{"no limit, in three words", "* soft memlock -1\n* hard memlock infinity", locked, unlimited, unlimited},
		{"words in any case", "* HARD MEMLOCK Unlimited", locked, 65536, unlimited},
		{"a number of bytes that is too large means unlimited", "* - memlock 18446744073709551615", locked, unlimited, unlimited},
		{"minutes", "* - cpu 2", unix.RLIMIT_CPU, 120, 120},
		{"niceness counts down from 20", "* - nice -5", unix.RLIMIT_NICE, 25, 25},
		{"realtime priority", "* - rtprio 99", unix.RLIMIT_RTPRIO, 99, 99},
		{"a comment at the end", "* - nofile 5000 # enough", files, 5000, 5000},
		{"not a number", "* - nofile many", files, 1024, 4096},
		{"a number and more", "* - nofile 50x 60", files, 50, 50},
		{"a number no word of the machine can hold", "* - memlock 99999999999999999999999", locked, unlimited, unlimited},
		{"not a type", "* both nofile 5000", files, 1024, 4096},
		{"items that are no limits", "* - maxlogins 4\n* - priority 10\n* - nonewprivs 1", files, 1024, 4096},
		{"a line that exempts the user", "* - nofile 5000\nann -\nann - nofile 6000", files, 1024, 4096},
		{"a line that exempts a group", "@lab -\n* - nofile 5000", files, 1024, 4096},
		{"a percent sign is about logins", "% - nofile 5000\n%lab - nofile 5000", files, 1024, 4096},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			limits, err := loginLimits(withLimits(t, test.lines).machine, someone, lookupGroup)
			if err != nil || len(limits) != 16 {
				t.Fatalf("%v, %v", limits, err)
			}
			got := limits[test.resource]
			if got.Resource != test.resource || got.Soft != test.soft || got.Hard != test.hard {
				t.Errorf("%d to %d, want %d to %d", got.Soft, got.Hard, test.soft, test.hard)
			}
		})
	}
}

func TestRootIsLimitedByNameOnly(t *testing.T) {
	root := User{Name: "root"}
	limits, err := loginLimits(withLimits(t, "* - nofile 5\n@:0 - nofile 5\n0:10 - nofile 5\nroot - core 0\n").machine, root, lookupGroup)
	if err != nil || limits[unix.RLIMIT_NOFILE].Hard != 4096 || limits[unix.RLIMIT_CORE].Hard != 0 {
		t.Errorf("%v, %v", limits, err)
	}
}

func TestFilesAreReadInOrder(t *testing.T) {
	f := withLimits(t, "* - nofile 1").file("/etc/security/limits.d/20-b.conf", "* - nofile 3").
		file("/etc/security/limits.d/10-a.conf", "* - nofile 2\n* - nproc 2").file("/etc/security/limits.d/99-c.conf.bak", "* - nofile 4")
	limits, err := loginLimits(f.machine, someone, lookupGroup)
	if err != nil || limits[unix.RLIMIT_NOFILE].Soft != 3 || limits[unix.RLIMIT_NPROC].Soft != 2 {
		t.Errorf("%v, %v", limits, err)
	}
}

func TestLimitsThatCannotBeTold(t *testing.T) {
	t.Run("a group cannot be looked up", func(t *testing.T) {
		if _, err := loginLimits(withLimits(t, "@broken - nofile 5").machine, someone, lookupGroup); !errors.Is(err, errNoAnswer) {
			t.Errorf("it says %v", err)
		}
	})
	t.Run("others may write to the file", func(t *testing.T) {
		f := withLimits(t, "")
		if err := os.Chmod(f.path("/etc/security/limits.conf"), 0o664); err != nil {
			t.Fatal(err)
		}
		if _, err := loginLimits(f.machine, someone, lookupGroup); err == nil || !strings.Contains(err.Error(), "limits.conf") {
			t.Errorf("it says %v", err)
		}
	})
	t.Run("others may write to the directory", func(t *testing.T) {
		f := withLimits(t, "").file("/etc/security/limits.d/x.conf", "")
		if err := os.Chmod(f.path("/etc/security/limits.d"), 0o777); err != nil {
			t.Fatal(err)
		}
		if _, err := loginLimits(f.machine, someone, lookupGroup); err == nil || !strings.Contains(err.Error(), "limits.d") {
			t.Errorf("it says %v", err)
		}
	})
	t.Run("process 1 cannot be seen", func(t *testing.T) {
		if _, err := loginLimits(newFake(t).machine, someone, lookupGroup); err == nil {
			t.Error("limits were made up")
		}
	})
}

// Root in a container may be unable to raise a limit. Its jobs then get the
// limits of this process.
func TestRootThatMayNotRaiseLimits(t *testing.T) {
	f := withLimits(t, "* - nofile 9000\n* - memlock unlimited\n* soft core 5").file("/proc/self/limits", plainLimits).
		file("/proc/self/status", "CapEff:\t000001fffeffffff\n")
	limits, err := loginLimits(f.machine, someone, lookupGroup)
	if err != nil || limits[unix.RLIMIT_NOFILE].Soft != 4096 || limits[unix.RLIMIT_MEMLOCK].Hard != 65536 || limits[unix.RLIMIT_CORE].Soft != 5<<10 {
		t.Errorf("%v, %v", limits, err)
	}
	os.Remove(f.path("/proc/self/limits"))
	if limits, err := loginLimits(f.machine, someone, lookupGroup); err == nil {
		t.Errorf("its own cannot be seen: %v", limits)
	}
}

// A process like this one can set the promised limits for a child.
func TestLimitsThatCanBeGiven(t *testing.T) {
	limits, err := NewUsers(0).LoginLimits(User{Name: "ann", UID: 1000, GID: 1000})
	if err != nil {
		t.Skipf("this machine's limits: %v", err)
	}
	for _, limit := range limits {
		var own unix.Rlimit
		if err := unix.Getrlimit(limit.Resource, &own); err != nil {
			t.Fatal(err)
		}
		if !mayRaiseLimits(here()) && limit.Hard > own.Max {
			t.Errorf("%s: %d is above %d", limitNames[limit.Resource].proc, limit.Hard, own.Max)
		}
	}
}

func TestASessionUnderSystemd(t *testing.T) {
	f := withLimits(t, "")
	if err := os.MkdirAll(f.path("/run/systemd/system"), 0o755); err != nil {
		t.Fatal(err)
	}
	f.file("/proc/1/limits", strings.Replace(plainLimits, "1024                 4096", "1073741816           1073741816", 1))
	limits, err := loginLimits(f.machine, someone, lookupGroup)
	if err != nil || limits[unix.RLIMIT_NOFILE].Soft != 1024 || limits[unix.RLIMIT_NOFILE].Hard != 524288 || limits[unix.RLIMIT_MEMLOCK].Hard != 8<<20 {
		t.Errorf("systemd's own limits were taken: %v, %v", limits, err)
	}
	f.file("/usr/lib/systemd/system.conf", "[Manager]\nDefaultLimitCORE=0\n").
		file("/etc/systemd/system.conf", "[Manager]\n#DefaultLimitNOFILE=7\nDefaultLimitMEMLOCK=infinity\n[Other]\nDefaultLimitNPROC=1\n").
		file("/usr/lib/systemd/system.conf.d/50.conf", "[Manager]\nDefaultLimitNOFILE=5\n").
		file("/etc/systemd/system.conf.d/50.conf", "[Manager]\nDefaultLimitNOFILE=2K:1M\nDefaultLimitSTACK=nonsense\n")
	limits, err = loginLimits(f.machine, someone, lookupGroup)
	want := []Rlimit{{Resource: unix.RLIMIT_NOFILE, Soft: 2048, Hard: 1 << 20}, {Resource: unix.RLIMIT_MEMLOCK, Soft: unlimited, Hard: unlimited},
		{Resource: unix.RLIMIT_NPROC, Soft: 96343, Hard: 96343}, {Resource: unix.RLIMIT_STACK, Soft: 8 << 20, Hard: unlimited},
		{Resource: unix.RLIMIT_CORE, Soft: 0, Hard: unlimited}}
	for _, limit := range want {
		if err != nil || limits[limit.Resource] != limit {
			t.Errorf("%+v, want %+v (%v)", limits[limit.Resource], limit, err)
		}
	}
}

// Whatever is in the files, the kernel accepts the result, and a line about
// the user by name is never overruled.
func TestLimitsProperty(t *testing.T) {
	base, err := parseProcLimits(plainLimits)
	if err != nil {
		t.Fatal(err)
	}
	rapid.Check(t, func(t *rapid.T) {
		word := rapid.SampledFrom([]string{"ann", "*", "@lab", "@others", "1:", ":1000", "@:44", "soft", "hard", "-", "nofile", "memlock", "nice", "0", "7", "-1", "unlimited", "99999999999", "#", "x"})
		line := rapid.Map(rapid.SliceOfN(word, 0, 5), func(words []string) string { return strings.Join(words, " ") })
		lines := rapid.SliceOfN(line, 0, 12).Draw(t, "lines")
		at := rapid.IntRange(0, len(lines)).Draw(t, "at")
		withOwn := slices.Insert(slices.Clone(lines), at, "ann - stack 11")
		r := newRules(someone, base, 1<<20, lookupGroup)
		if err := r.apply(strings.Join(withOwn, "\n")); err != nil {
			t.Fatal(err)
		}
		for _, limit := range r.result() {
			if limit.Soft > limit.Hard {
				t.Fatalf("%+v", limit)
			}
		}
		if stack := r.result()[unix.RLIMIT_STACK]; !r.exempt && stack.Hard != 11<<10 {
			t.Fatalf("stack is %+v", stack)
		}
	})
}

func TestTrustedDir(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("only root can give directories away")
	}
	top := t.TempDir()
	other, own := filepath.Join(top, "other"), filepath.Join(top, "own")
	for _, dir := range []string{other, own, filepath.Join(other, "roots"), filepath.Join(top, "open")} {
		if err := os.Mkdir(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(os.Chown(other, 12345, 12345), os.Chmod(filepath.Join(top, "open"), 0o777),
		os.Symlink(other, filepath.Join(top, "link")), os.Symlink("missing", filepath.Join(top, "dangling")), os.WriteFile(filepath.Join(top, "file"), nil, 0o644)); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]string{
		own: "", own + "/not/yet": "", top + "/dangling": "",
		other: "belongs to user 12345", other + "/roots": "belongs to user 12345", other + "/not/yet": "belongs to user 12345",
		top + "/link": "belongs to user 12345", top + "/link/roots": "belongs to user 12345",
		top + "/open": "writable by users other than root", top + "/open/not": "writable by users other than root", top + "/file": "not a directory",
	} {
		err := TrustedDir(path)
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, not %q", strings.TrimPrefix(path, top), err, want)
		}
	}
}

func TestOwnDir(t *testing.T) {
	top := t.TempDir()
	own, open, file := filepath.Join(top, "own"), filepath.Join(top, "open"), filepath.Join(top, "file")
	if err := errors.Join(os.Mkdir(own, 0o775), os.Mkdir(open, 0o700), os.Chmod(open, 0o707), os.WriteFile(file, nil, 0o600), os.Symlink(own, filepath.Join(top, "link"))); err != nil {
		t.Fatal(err)
	}
	cases := map[string]string{own: "", top + "/link": "", open: "writable by all users", file: "not a directory", top + "/none": "no such file"}
	if os.Getuid() == 0 {
		other := filepath.Join(top, "other")
		if err := errors.Join(os.Mkdir(other, 0o755), os.Chown(other, 12345, 12345)); err != nil {
			t.Fatal(err)
		}
		cases[other] = "belongs to user 12345"
	}
	for path, want := range cases {
		err := OwnDir(path)
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, not %q", strings.TrimPrefix(path, top), err, want)
		}
	}
}

func TestTrustedFile(t *testing.T) {
	me := os.Getuid()
	dir := t.TempDir()
	good := filepath.Join(dir, "etc", "config")
	testkit.Write(t, good, "")
	link := filepath.Join(dir, "link")
	if err := os.Symlink("etc/../etc/config", link); err != nil {
		t.Fatal(err)
	}
	loop := filepath.Join(dir, "loop")
	if err := os.Symlink("loop", loop); err != nil {
		t.Fatal(err)
	}
	open := filepath.Join(dir, "open", "config")
	testkit.Write(t, open, "")
	if err := os.Chmod(filepath.Dir(open), 0o777); err != nil {
		t.Fatal(err)
	}
	throughOpen := filepath.Join(dir, "through")
	if err := os.Symlink(open, throughOpen); err != nil {
		t.Fatal(err)
	}
	byGroup := filepath.Join(dir, "etc", "group")
	testkit.Write(t, byGroup, "")
	if err := os.Chmod(byGroup, 0o660); err != nil {
		t.Fatal(err)
	}
	tests := []struct {
		name string
		path string
		want string // in the refusal
	}{
		{"a file of the owner's", good, ""},
		{"through a link", link, ""},
		{"others may replace it", open, "open is writable"},
		{"a link into a directory that others write to", throughOpen, "open is writable"},
		{"the group may write to it", byGroup, "mode 0660"},
		{"a directory", filepath.Dir(good), "not a regular file"},
		{"a device", os.DevNull, "dev/null"},
		{"no such file", good + "x", "no such file"},
		{"a circle of links", loop, "too many symbolic links"},
	}
	for _, test := range tests {
		err := trusted(test.path, me)
		if test.want == "" && err != nil || test.want != "" && (err == nil || !strings.Contains(err.Error(), test.want)) {
			t.Errorf("%s: it says %v", test.name, err)
		}
	}
	if err := TrustedFile("/etc/passwd"); err != nil {
		t.Errorf("the user database: %v", err)
	}
	if me != 0 {
		return
	}
	if err := os.Lchown(good, 12345, 12345); err != nil {
		t.Fatal(err)
	}
	if err := TrustedFile(good); err == nil || !strings.Contains(err.Error(), "belongs to user 12345") {
		t.Errorf("somebody else's file: it says %v", err)
	}
	if err := os.Lchown(link, 12345, 12345); err != nil {
		t.Fatal(err)
	}
	if err := TrustedFile(link); err == nil || !strings.Contains(err.Error(), "link belongs to user 12345") {
		t.Errorf("somebody else's link: it says %v", err)
	}
}
