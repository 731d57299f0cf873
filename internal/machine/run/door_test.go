package run

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"berth/internal/machine/keep"
	"berth/internal/tests/testkit"
)

// helperWords are the helpers of these tests, which are this program.
var helperWords = map[string]func(){
	"__test-who": func() {
		input, _ := io.ReadAll(os.Stdin)
		groups, _ := os.Getgroups()
		dir, _ := os.Getwd()
		ours := 0
		open, _ := os.ReadDir("/proc/self/fd")
		for _, fd := range open {
			if to, err := os.Readlink("/proc/self/fd/" + fd.Name()); err == nil && strings.HasSuffix(to, "/of-the-daemon") {
				ours++
			}
		}
		fmt.Printf("%s %d %d %v %s %v %d", input, os.Getuid(), os.Getgid(), groups, dir, os.Environ(), ours)
	},
	// A helper executes what its user wants.
	"__test-sh": func() {
		line, _ := io.ReadAll(os.Stdin)
		cmd := exec.Command("/bin/sh", "-c", string(line))
		cmd.Env = []string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin"}
		cmd.Stdout = os.Stdout
		_ = cmd.Run()
	},
	"__test-flood": func() {
		for {
			if _, err := os.Stdout.Write(bytes.Repeat([]byte("x"), 1000)); err != nil {
				os.Exit(3)
			}
		}
	},
	"__test-hang": func() { <-time.After(time.Hour) },
	"__test-fail": func() { os.Exit(7) },
	"__test-echo": func() { _, _ = io.Copy(os.Stdout, os.Stdin) },
}

// other is another user with the limits of a login.
func other(limits ...keep.Rlimit) *keep.Credential {
	return &keep.Credential{UID: otherUser, GID: otherUser, Groups: []int{otherUser, 4711}, Umask: -1, Home: "/home/other", Rlimits: limits}
}

// sh has a helper of the other user execute a shell line, and returns its output.
func (b *bench) sh(h Helper, line string) string {
	b.t.Helper()
	h.Args = []string{"__test-sh"}
	out, err := b.Doors.Ask(b.t.Context(), h, []byte(line))
	if err != nil {
		b.t.Fatalf("%s: %v", line, err)
	}
	return string(out)
}

func TestAHelperHasTheUsersRightsAlone(t *testing.T) {
	t.Setenv("SECRET_OF_THE_DAEMON", "x")
	file, err := os.Create(filepath.Join(t.TempDir(), "of-the-daemon"))
	testkit.Must(t, err)
	defer file.Close()
	leakOnExec(t)
	self, err := os.Executable()
	testkit.Must(t, err)
	large := cgroupHost{"where berth-keep is missing", false, func(o *Options) { o.KeepCommand = []string{self, keepWord} }}
	for _, host := range append(cgroupHosts(t), large) {
		b := newLab(t, host.option)
		out, err := b.Doors.Ask(t.Context(), Helper{As: other(), Args: []string{"__test-who"}, Env: []string{"A=1"}}, []byte("hello"))
		if want := "hello 12345 12345 [4711 12345] / [A=1 GOMAXPROCS=2] 0"; err != nil || string(out) != want {
			t.Errorf("%s: %q, %v; expected %q", host.name, out, err, want)
		}
	}
}

// TestAHelperIsLimitedAsAtLogin: its code may be its user's, and berth itself is
// limited by nothing and spared by the kernel.
func TestAHelperIsLimitedAsAtLogin(t *testing.T) {
	for _, host := range cgroupHosts(t) {
		t.Run(host.name, func(t *testing.T) {
			b := newLab(t, host.option, favoured)
			as := other(keep.Rlimit{Resource: unix.RLIMIT_NPROC, Soft: 77, Hard: 78}, keep.Rlimit{Resource: unix.RLIMIT_AS, Soft: 4 << 30, Hard: 5 << 30})
			said := b.sh(Helper{As: as}, "grep processes /proc/self/limits | tr -s ' '; ulimit -v; cat /proc/self/oom_score_adj; nice")
			if want := "Max processes 77 78 processes \n4194304\n0\n0\n"; said != want {
				t.Errorf("%q; expected %q", said, want)
			}
			if !host.cgroup {
				return
			}
			if said := b.sh(Helper{As: as}, "cat /proc/self/cgroup"); !strings.Contains(said, "/helper-") {
				t.Errorf("its cgroups: %s", said)
			}
		})
	}
}

// TestAHelperThatTakesTooMuchIsEnded: memory and processes.
func TestAHelperThatTakesTooMuchIsEnded(t *testing.T) {
	enforces(t, func(f Facts) string { return f.Memory })
	enforces(t, func(f Facts) string { return f.Pids })
	b := newLab(t, withCgroup)
	if said := b.sh(Helper{As: other()}, "head -c 600000000 /dev/zero | tail | wc -c; echo over"); strings.Contains(said, "600000000") {
		t.Errorf("it had its memory: %q", said)
	}
	if said := b.sh(Helper{As: other()}, "i=0; while [ $i -lt 200 ]; do sleep 100 & i=$((i+1)); done 2>/dev/null; echo $i"); strings.Contains(said, "200") {
		t.Errorf("it had its processes: %q", said)
	}
}

func TestNothingOutlivesAHelper(t *testing.T) {
	const leave = `setsid sleep %[1]s & (setsid sh -c "sleep %[1]s & sleep %[1]s" &) ; (trap '' TERM HUP; sleep %[1]s) &
		while [ $(pgrep -cf "sleep %[1]s") -lt 4 ]; do sleep 0.01; done; echo there >&2; %[2]s`
	for _, host := range cgroupHosts(t) {
		t.Run(host.name, func(t *testing.T) {
			b := newLab(t, host.option)
			ended := func(what, mark string, h Helper, line string, want error) {
				h.Args, h.As = []string{"__test-sh"}, other()
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				if errors.Is(want, context.Canceled) {
					go func() {
						testkit.Holds(testkit.Patience, func() bool { return len(sleepers(mark)) >= 4 })
						cancel()
					}()
				}
				_, err := b.Doors.Ask(ctx, h, []byte(fmt.Sprintf(leave, mark, line)))
				if want == nil && err != nil || want != nil && (err == nil || !errors.Is(err, want) && !strings.Contains(err.Error(), want.Error())) {
					t.Errorf("%s: %v; expected %v", what, err, want)
				}
				if left := sleepers(mark); len(left) > 0 {
					t.Errorf("%s: %d processes live", what, len(left))
				}
			}
			mark := fmt.Sprintf("77%d", time.Now().UnixNano()%1e8)
			ended("its end", mark+"1", Helper{}, "exit 0", nil)
			ended("its caller is gone", mark+"2", Helper{}, "sleep "+mark+"2", context.Canceled)
			ended("its time is over", mark+"3", Helper{Life: 2 * time.Second}, "sleep "+mark+"3", errors.New("ended after 2s"))
			if host.cgroup {
				testkit.Eventually(t, "its cgroups are gone", func() bool {
					left, _ := filepath.Glob(filepath.Join(b.Cgroups.Parent, helperWalls+keep.FilteredSuffix, "helper-*"))
					return len(left) == 0
				})
			}
		})
	}
}

// sleepers are the living processes that sleep for so long.
func sleepers(mark string) (living []keep.Process) {
	table, _ := keep.Processes()
	for _, p := range table {
		text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", p.PID))
		if string(text) == "sleep\x00"+mark+"\x00" && !p.Dead() {
			living = append(living, p)
		}
	}
	return living
}

// TestTheOrphansOfAHelperLeaveNothing: neither processes nor entries of the process
// table, however many there are.
func TestTheOrphansOfAHelperLeaveNothing(t *testing.T) {
	before := ownZombies()
	b := newLab(t)
	b.sh(Helper{As: other()}, "i=0; while [ $i -lt 300 ]; do (setsid /bin/true &); i=$((i+1)); done")
	for p := range ownZombies() {
		if !before[p] {
			t.Fatalf("not reaped: %+v", p)
		}
	}
}

func TestAHelperOpensNoGPU(t *testing.T) {
	needFilter(t)
	b := newLab(t, withCgroup)
	try := tryAll(cards(t))
	for range 2 { // the filter is put in place once
		if said := b.sh(Helper{As: other()}, try); said != "0\n1\n" {
			t.Errorf("it is kept from %q", said)
		}
	}
}

func TestAHelperIsBounded(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	short, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
	defer cancel()
	for _, tt := range []struct {
		word string
		ctx  context.Context
		says string
	}{
		{"__test-flood", t.Context(), "printed more than"},
		{"__test-hang", short, "deadline exceeded"},
		{"__test-fail", t.Context(), "exit status 7"},
	} {
		if out, err := b.Doors.Ask(tt.ctx, Helper{Args: []string{tt.word}}, nil); err == nil || !strings.Contains(err.Error(), tt.says) {
			t.Errorf("%s: %d bytes, %v; expected %q", tt.word, len(out), err, tt.says)
		}
	}
}

// TestAHelperStartsWhateverDescriptorsAreInUse: os/exec moves some in the new
// process.
func TestAHelperStartsWhateverDescriptorsAreInUse(t *testing.T) {
	t.Parallel()
	var filled []*os.File
	fill := func(n int) {
		for range n {
			f, err := os.Open(os.DevNull)
			testkit.Must(t, err)
			filled = append(filled, f)
		}
	}
	free := func(which []*os.File) {
		for _, f := range which {
			f.Close()
		}
	}
	defer func() { free(filled) }()
	fill(30)
	b := newBench(t) // its program's descriptor is above those
	for holes := range 12 {
		free(filled[:holes])
		free(filled[len(filled)-1:])
		filled = filled[holes : len(filled)-1]
		if _, err := b.Doors.Ask(t.Context(), Helper{Args: []string{"__test-fail"}}, nil); err == nil || !strings.Contains(err.Error(), "exit status 7") {
			t.Errorf("with %d free descriptors below: %v", holes, err)
		}
		fill(holes + 1)
		slices.SortFunc(filled, func(a, b *os.File) int { return int(a.Fd()) - int(b.Fd()) })
	}
}

func TestAHelperThatIsConnectedTo(t *testing.T) {
	t.Parallel()
	b := newLab(t)
	mark := fmt.Sprintf("78%d", time.Now().UnixNano()%1e8)
	conn, err := b.Doors.Connect(Helper{As: other(), Args: []string{"__test-echo", mark}})
	testkit.Must(t, err)
	_, err = conn.Write([]byte("hello"))
	testkit.Must(t, err)
	said := make([]byte, 5)
	if _, err := io.ReadFull(conn, said); err != nil || string(said) != "hello" {
		t.Errorf("%q, %v", said, err)
	}
	testkit.Must(t, conn.Close(), conn.Close())
	testkit.Eventually(t, "it has ended", func() bool {
		out, _ := exec.Command("pgrep", "-f", mark).Output()
		return len(out) == 0
	})
}

// TestAHelperThatCannotBecomeItsUserDoesNotRun: not as root, and not at all.
func TestAHelperThatCannotBecomeItsUserDoesNotRun(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Skip("only root can become another user")
	}
	b := newBench(t, func(o *Options) {
		o.KeepCommand = []string{"env", "BERTH_KEEP_FAULT=skip setresuid", faultyKeep}
	})
	if out, err := b.Doors.Ask(t.Context(), Helper{As: other(), Args: []string{"__test-who"}}, nil); err == nil || !strings.Contains(err.Error(), "user: expected 12345") {
		t.Errorf("%q, %v", out, err)
	}
	if file, err := b.Doors.OpenAs(t.Context(), other(), "/etc/passwd"); err == nil || !strings.Contains(err.Error(), "user: expected 12345") {
		t.Errorf("%v, %v", file, err)
	}
}

func TestAFileIsOpenedWithTheRightsOfAUser(t *testing.T) {
	b := newLab(t)
	open, shut := filepath.Join(b.work, "open"), filepath.Join(b.work, "shut")
	for path, mode := range map[string]os.FileMode{open: 0o644, shut: 0o600} {
		testkit.Must(t, os.WriteFile(path, []byte("text"), mode))
	}
	testkit.Must(t, os.Symlink(open, filepath.Join(b.work, "link")), syscall.Mkfifo(filepath.Join(b.work, "pipe"), 0o666))
	// The user has no process left, and no memory for another program.
	as := other(keep.Rlimit{Resource: unix.RLIMIT_NPROC}, keep.Rlimit{Resource: unix.RLIMIT_AS}, keep.Rlimit{Resource: unix.RLIMIT_NOFILE})
	for range 20 {
		file, err := b.Doors.OpenAs(t.Context(), as, open)
		if err != nil {
			t.Fatal(err)
		}
		if text, err := io.ReadAll(file); err != nil || string(text) != "text" {
			t.Errorf("%q, %v", text, err)
		}
		file.Close()
	}
	for path, want := range map[string]error{
		shut: os.ErrPermission, filepath.Join(b.work, "link"): syscall.ELOOP, filepath.Join(b.work, "pipe"): syscall.EINVAL, b.work: syscall.EINVAL,
		filepath.Join(b.work, "none"): os.ErrNotExist, "/" + strings.Repeat("a", 5000): syscall.ENAMETOOLONG,
	} {
		if file, err := b.Doors.OpenAs(t.Context(), other(), path); !errors.Is(err, want) {
			t.Errorf("%.60s: %v, %v", path, file, err)
		}
	}
	over, cancel := context.WithCancel(t.Context())
	cancel()
	if file, err := b.Doors.OpenAs(over, other(), open); err == nil {
		t.Errorf("%v although nobody wants it any more", file)
	}
}
