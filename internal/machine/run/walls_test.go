package run

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	attaching "github.com/cilium/ebpf/link"

	"berth/internal/job"
	"berth/internal/machine/keep"
	"berth/internal/tests/testkit"
)

// attached counts the programs on a cgroup itself.
func attached(t *testing.T, dir string) int {
	t.Helper()
	cgroup, err := os.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer cgroup.Close()
	found, err := attaching.QueryPrograms(attaching.QueryOptions{Target: int(cgroup.Fd()), Attach: ebpf.AttachCGroupDevice})
	if err != nil {
		t.Fatal(err)
	}
	return len(found.Programs)
}

// walled is an order that may open these cards.
func (b *bench) walled(id, line string, minors ...int) keep.Order {
	o := b.order(id, line)
	o.Devices = &keep.Devices{Minors: minors}
	return o
}

// denied is what a job printed, as one line.
func (b *bench) denied(id string) string { return strings.Join(strings.Fields(b.logText(id)), " ") }

func withCgroup(o *Options) { o.CgroupParent = "" }

func TestAJobOpensItsOwnCardsAndNoOthers(t *testing.T) {
	parent := needFilter(t)
	b := newBench(t, withCgroup)
	try := tryAll(cards(t))
	var before keep.Record
	rows := []struct {
		name, line string
		minors     []int
		denied     string
	}{
		{"a job opens its card and the control files", try, []int{1}, "0"},
		{"the next job of the same supervisor has another", try, []int{0}, "1"},
		{"a job without a card has none", try, nil, "0 1"},
		{"a job with both has both", try, []int{0, 1}, ""},
		{"one that leaves its session takes the filter along", "setsid sh -c '" + strings.ReplaceAll(try, "'", `'\''`) + "' & wait", []int{0}, "1"},
		{"one that makes cgroups of its own stays below it", `c=$(sed -n "s/^0:://p" /proc/self/cgroup); d=` + cgroupMount() + `$c/own; mkdir $d && echo $$ > $d/cgroup.procs; ` + try, []int{1}, "0"},
		{"the one after it has its own", try, []int{0}, "1"},
	}
	for i, row := range rows {
		id := string(rune('a' + i))
		r := b.finish(b.walled(id, row.line, row.minors...))
		if r.Note != "" || r.ExitCode != 0 || filepath.Dir(r.Cgroup) != filepath.Join(parent, r.Token+keep.FilteredSuffix) {
			t.Fatalf("%s: %+v", row.name, r)
		}
		if got := b.denied(id); got != row.denied {
			t.Errorf("%s: it is kept from %q, not %q", row.name, got, row.denied)
		}
		if n := attached(t, filepath.Dir(r.Cgroup)); n != 1 {
			t.Errorf("%s: %d programs", row.name, n)
		}
		if i > 0 && r.Token != before.Token {
			t.Errorf("%s: another supervisor", row.name)
		}
		before = r
	}
	free := b.finish(b.order("free", try))
	if got := b.denied("free"); got != "" || filepath.Dir(free.Cgroup) != parent {
		t.Errorf("an order without devices is kept from %q in %s", got, free.Cgroup)
	}
	b.Close()
	if _, err := os.Stat(parent); !os.IsNotExist(err) {
		left, _ := os.ReadDir(parent)
		t.Errorf("the cgroups are still there: %v %v", left, err)
	}
}

func TestAUsersJobCannotLeaveItsFilter(t *testing.T) {
	parent := needFilter(t)
	b := newLab(t, withCgroup)
	o := b.ordered("1", "echo $$ > "+parent+"/cgroup.procs || echo no; "+tryAll(cards(t)))
	o.Devices = &keep.Devices{Minors: []int{1}}
	if r := b.finish(o); r.Note != "" || r.ExitCode != 0 {
		t.Fatalf("got %+v", r)
	}
	if lines := strings.Split(strings.TrimSpace(b.logText("1")), "\n"); len(lines) != 3 || lines[1] != "no" || lines[2] != "0" {
		t.Errorf("it says %q", lines)
	}
}

// A user who is root in a namespace of their own is still in the cgroup.
func TestNamespacesAndSessionsAreNoWayAroundAFilter(t *testing.T) {
	needFilter(t)
	b := newLab(t, withCgroup)
	try := tryAll(cards(t))
	for id, way := range []string{"unshare -Ur", "unshare -Urm", "unshare -UrC", "unshare -Urpf --mount-proc", "setsid -w"} {
		o := b.ordered(strconv.Itoa(id+1), "export LC_ALL=C; "+way+" true || { echo no such way; exit; }; "+way+" sh -c '"+
			`mknod own c 195 0 2>/dev/null && { (: < own) 2>&1 || echo made; }; `+strings.ReplaceAll(try, "'", `'\''`)+"'")
		o.Devices = &keep.Devices{Minors: []int{1}}
		if r := b.finish(o); r.Note != "" || r.ExitCode != 0 {
			t.Fatalf("%s: %+v", way, r)
		}
		if said := b.denied(o.Job); strings.HasSuffix(said, "no such way") {
			t.Logf("%s: not here: %s", way, said)
		} else if said != "0" {
			t.Errorf("%s: it says %q", way, said)
		}
	}
}

func TestAFilteredJobIsHeldToItsLimitsToo(t *testing.T) {
	needFilter(t)
	b := newBench(t, withCgroup)
	if f := b.Cgroups.Facts(); f.Memory == "" || !f.Devices {
		t.Skipf("no limits here: %+v", f)
	}
	o := b.walled("1", "exit 4", 1)
	o.MemMiB = 100
	if r := b.finish(o); r.ExitCode != 4 || r.Note != "" {
		t.Errorf("got %+v", r)
	}
}

func TestAFilterThatCannotBePutInPlaceIsNotedAndTheJobRuns(t *testing.T) {
	b := newBench(t) // without cgroups
	if err := b.Cgroups.Filters(); err == nil || b.Cgroups.Facts().Devices {
		t.Errorf("a filter without a cgroup: %v, %+v", err, b.Cgroups.Facts())
	}
	r := b.finish(b.walled("1", "exit 4", 1))
	if r.ExitCode != 4 || !strings.HasPrefix(r.Note, "device filter not in force: ") {
		t.Errorf("got %+v", r)
	}
	if r := b.finish(b.order("2", "exit 4")); r.Note != "" {
		t.Errorf("an order that asked for none: %+v", r)
	}
	needFilter(t)
	b = newBench(t, withCgroup)
	token, err := b.Lease()
	if err != nil {
		t.Fatal(err)
	}
	o := b.walled("3", "exit 4", 1)
	o.Devices.Caps = make([]int, maxDevices)
	if err := b.Go(token, o); err != nil {
		t.Fatal(err)
	}
	b.next(Started)
	if r := b.next(Ended).Record; r.ExitCode != 4 || !strings.Contains(r.Note, "device filter not in force: ") {
		t.Errorf("one that has too many devices: %+v", r)
	}
}

// A directory whose filter went with it would come back without.
func TestASupervisorMakesNoDirectoryThatShouldHaveAFilter(t *testing.T) {
	parent := detectCgroup()
	if parent == "" {
		t.Skip("no cgroups here")
	}
	b := newBench(t, withCgroup)
	for _, row := range []struct {
		name string
		made bool
	}{{"plain", true}, {"swept" + keep.FilteredSuffix, false}} {
		o := b.order(row.name, "exit 4")
		o.CgroupParent = filepath.Join(parent, row.name)
		r := b.finish(o)
		if r.ExitCode != 4 || row.made != (r.Cgroup != "") || row.made != (r.Note == "") {
			t.Errorf("%s: %+v", row.name, r)
		}
		if _, err := os.Stat(o.CgroupParent); row.made != (err == nil) {
			t.Errorf("%s: %v", row.name, err)
		}
		keep.RemoveCgroup(o.CgroupParent)
	}
}

// An order for a supervisor that has a job must leave that job's filter alone.
func TestAnOrderOutOfTurnChangesNoFilter(t *testing.T) {
	needFilter(t)
	b := newBench(t, withCgroup)
	token := b.start(b.walled("1", "while [ ! -e go ]; do sleep 0.01; done; "+tryAll(cards(t)), 1))
	b.next(Started)
	if err := b.Go(token, b.walled("2", "true", 0)); err == nil {
		t.Error("a supervisor took two orders")
	}
	shell(t, "touch "+b.work+"/go")
	b.next(Ended)
	if got := b.denied("1"); got != "0" {
		t.Errorf("it is kept from %q", got)
	}
	b.Ack(token)
}

func TestAFilterOutlivesItsBerthAndGoesWithTheJob(t *testing.T) {
	parent := needFilter(t)
	files := cards(t)
	b := succession(t)
	place := filepath.Join(parent, "place")
	other := b.otherBerth([]string{"BERTH_TEST_CGROUP=" + place, "BERTH_TEST_CARDS=1"},
		"echo $$ > main; while [ ! -e go ]; do sleep 0.01; done; "+tryAll(files))
	main := b.pidFrom("main")
	kill9(other)
	b.open(func(o *Options) { o.CgroupParent = place })
	found := b.scan()
	if len(found) != 1 || found[0].Kind != FoundRunning || !lives(main) {
		t.Fatalf("found %+v", found)
	}
	walls := wallsOf(found[0].Record.Cgroup)
	if walls == "" || attached(t, walls) != 1 {
		t.Fatalf("the job in %s has no filter", found[0].Record.Cgroup)
	}
	shell(t, "touch "+b.work+"/go")
	b.next(Ended)
	text, err := os.ReadFile(filepath.Join(b.work, "logs", "1.log"))
	if got := strings.Join(strings.Fields(string(text)), " "); err != nil || got != "0" {
		t.Errorf("it is kept from %q, %v", got, err)
	}
	b.Ack(found[0].Token)
	testkit.Eventually(t, "the filter's directory goes", func() bool { _, err := os.Stat(walls); return os.IsNotExist(err) })
	// The new berth gives filters of its own, in the same place.
	if r := b.finish(b.walled("2", tryAll(files), 0)); r.Note != "" || b.denied("2") != "1" {
		t.Errorf("it is kept from %q: %+v", b.denied("2"), r)
	}
}

// The daemon and an idle supervisor die together; the next daemon has the same
// place and finds the directory empty.
func TestTheWallsOfADeadSupervisorAreTornDown(t *testing.T) {
	parent := needFilter(t)
	b := succession(t)
	place := filepath.Join(parent, "place")
	other := b.otherBerth([]string{"BERTH_TEST_CGROUP=" + place, "BERTH_TEST_CARDS=1", "BERTH_TEST_ACK=1"}, "true")
	kill9(other)
	testkit.Eventually(t, "its supervisor leaves", func() bool { return freeLocks(b.dir) == 1 })
	if left, _ := filepath.Glob(filepath.Join(place, "*"+keep.FilteredSuffix)); len(left) != 1 {
		t.Fatalf("there should be one directory: %v", left)
	}
	b.open(func(o *Options) { o.CgroupParent = place })
	for _, f := range b.scan() {
		b.Ack(f.Token)
	}
	if left, _ := filepath.Glob(filepath.Join(place, "*"+keep.FilteredSuffix)); len(left) != 0 {
		t.Errorf("left behind: %v", left)
	}
}

func TestALostJobsWallsAreTornDown(t *testing.T) {
	needFilter(t)
	b := newBench(t, withCgroup)
	token := b.start(b.walled("1", "sleep 1000", 1))
	b.next(Started)
	id, _ := b.Identity(token)
	walls := wallsOf(id.Cgroup)
	b.keepOf(token).Signal(9)
	b.next(Lost)
	b.Ack(token)
	if _, err := os.Stat(walls); walls == "" || !os.IsNotExist(err) {
		t.Errorf("walls %q are still there: %v", walls, err)
	}
}

// A berth in a job can give its own jobs no more than it has.
func TestABerthInAJobKeepsToItsOwnCards(t *testing.T) {
	needFilter(t)
	b := newBench(t, withCgroup)
	files := cards(t)
	o := b.walled("1", "exec "+os.Args[0], 1)
	o.Env = append(o.Env, "BERTH_TEST_CONTROLLER="+b.work, "BERTH_TEST_KEEP="+keepProgram, "BERTH_TEST_CGROUP=", "BERTH_TEST_CARDS=0,1",
		"BERTH_TEST_LINES="+tryAll(files)+"; echo over")
	token := b.start(o)
	b.next(Started)
	inner := filepath.Join(b.work, "logs", "1.log") // the inner berth's job has the number of the outer's
	testkit.Eventually(t, "the inner job ends", func() bool { text, _ := os.ReadFile(inner); return strings.Contains(string(text), "over") })
	text, _ := os.ReadFile(inner)
	if lines := strings.Fields(string(text)); !slices.Contains(lines, "0") || slices.Contains(lines, "1") {
		t.Errorf("the inner job is kept from %q", lines)
	}
	b.Stop(token, job.StopCancel, 10*time.Millisecond)
	b.next(Ended)
	b.Ack(token)
}

func TestAnOrdinaryUserHasNoFilter(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root to become somebody else")
	}
	const nobody = 65534
	own := filepath.Join(needFilter(t), "own")
	if err := os.Mkdir(own, 0o755); err != nil {
		t.Fatal(err)
	}
	defer keep.RemoveCgroup(own)
	cgroup, err := os.Open(own)
	if err != nil {
		t.Fatal(err)
	}
	defer cgroup.Close()
	rows := []struct{ name, delegated, want string }{
		{"in a cgroup of root's", "", "jobs have no cgroup"},
		{"in a cgroup of their own", own, "a job can open GPUs that were not allocated to it: only root may filter devices"},
	}
	for _, row := range rows {
		if row.delegated != "" {
			for _, path := range []string{own, own + "/cgroup.procs", own + "/cgroup.subtree_control"} {
				if err := os.Chown(path, nobody, nobody); err != nil {
					t.Fatal(err)
				}
			}
		}
		cmd := exec.Command("/proc/self/exe")
		cmd.Env = append(os.Environ(), "BERTH_TEST_FACTS=1")
		cmd.SysProcAttr = &syscall.SysProcAttr{
			Credential: &syscall.Credential{Uid: nobody, Gid: nobody}, UseCgroupFD: true, CgroupFD: int(cgroup.Fd()),
		}
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("%s: %v\n%s", row.name, err, out)
		}
		if text := string(out); !strings.Contains(text, "Devices:false") || !strings.Contains(text, row.want) {
			t.Errorf("%s: %s", row.name, text)
		}
	}
}
