package run

import (
	"bytes"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"berth/internal/job"
	"berth/internal/machine/keep"
	"berth/internal/tests/testkit"
)

func withCgroups(o *Options) { o.CgroupParent = "" }

// enforces skips a test on hosts that cannot.
func enforces(t *testing.T, pick func(Facts) string) {
	t.Helper()
	if f := CgroupFacts(); pick(f) == "" {
		t.Skipf("not enforced here: %q", f.Why)
	}
}

func TestAJobOverItsMemoryIsKilledAndThatIsSaid(t *testing.T) {
	enforces(t, func(f Facts) string { return f.Memory })
	b := newBench(t, withCgroups)
	greedy := b.order("1", "head -c 300M /dev/zero | tail > /dev/null; exit $?")
	greedy.MemMiB = 64
	r := b.finish(greedy)
	if !r.MemoryKilled || (r.ExitCode == 0 && r.Signal == 0) || r.Note != "" {
		t.Errorf("got %+v", r)
	}
	if r.PeakMemKiB < 32<<10 || r.PeakMemKiB > 65<<10 {
		t.Errorf("peak %d KiB", r.PeakMemKiB)
	}
	// The next job of the same supervisor has nothing of that.
	next := b.order("2", "head -c 100M /dev/zero | tail > /dev/null; exit $?")
	if r := b.finish(next); r.MemoryKilled || r.ExitCode != 0 || r.PeakMemKiB != 0 {
		t.Errorf("the next one: %+v", r)
	}
	modest := b.order("3", "head -c 1M /dev/zero | tail > /dev/null")
	modest.MemMiB = 64
	if r := b.finish(modest); r.MemoryKilled || r.ExitCode != 0 || r.PeakMemKiB == 0 {
		t.Errorf("a modest one: %+v", r)
	}
	b.Close()
	b.leavesNoPlaces()
}

// leavesNoPlaces fails the test if a directory of this berth's is left in a
// version 1 hierarchy.
func (b *bench) leavesNoPlaces() {
	b.t.Helper()
	for _, controller := range []string{memoryController, cpuController} {
		own, err := ownV1(controller)
		if err != nil {
			continue
		}
		left, _ := filepath.Glob(filepath.Join(own, "berth-"+strconv.Itoa(os.Getpid())+"-*"))
		if len(left) > 0 {
			b.t.Errorf("left: %q", left)
		}
	}
}

func TestAJobIsHeldToItsCPUs(t *testing.T) {
	enforces(t, func(f Facts) string { return f.CPU })
	b := newBench(t, withCgroups)
	o := b.order("1", "echo $$ > main; sleep 1000")
	o.CPUs, o.MemMiB = 3, 512
	token := b.start(o)
	r := b.next(Started).Record
	b.pidFrom("main")
	quota := ""
	for _, path := range []string{filepath.Join(r.Cgroup, "cpu.max"), filepath.Join(b.Cgroups.older[cpuController], token, "cpu.cfs_quota_us")} {
		if text, err := os.ReadFile(path); err == nil && quota == "" {
			quota = strings.TrimSpace(string(text))
		}
	}
	if quota != "300000" && quota != "300000 100000" {
		t.Errorf("quota %q, note %q", quota, r.Note)
	}
	if b.Cgroups.older[cpuController] != "" {
		procs, _ := os.ReadFile(filepath.Join(b.Cgroups.older[cpuController], token, "cgroup.procs"))
		if !strings.Contains(string(procs), strconv.Itoa(r.PID)) {
			t.Errorf("%d is not among %q", r.PID, procs)
		}
	}
	b.keepOf(token).Signal(9)
	b.next(Lost)
	b.Ack(token)
	b.Close()
	b.leavesNoPlaces()
}

func TestLimitsOfAnotherUsersJob(t *testing.T) {
	enforces(t, func(f Facts) string { return f.Memory })
	b := newLab(t, withCgroups)
	o := b.ordered("1", "head -c 300M /dev/zero | tail > /dev/null; exit $?")
	o.MemMiB, o.CPUs = 64, 1
	if r := b.finish(o); !r.MemoryKilled || r.Note != "" {
		t.Errorf("got %+v", r)
	}
}

func TestALimitThatCannotBeEnforcedIsNoted(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	o := b.order("1", "exit 4")
	o.MemMiB, o.CPUs = 64, 2
	r := b.finish(o)
	if r.ExitCode != 4 || !strings.Contains(r.Note, "memory limit of 64 MiB not enforced") || !strings.Contains(r.Note, "limit of 2 CPUs not enforced") {
		t.Errorf("got %+v", r)
	}
}

func TestWhatThisHostGives(t *testing.T) {
	f := CgroupFacts()
	t.Logf("%+v", f)
	if (f.Memory == "" || f.CPU == "" || f.Path == "" || !f.Kill || !f.Freeze) && len(f.Why) == 0 {
		t.Errorf("something is missing and nobody says why: %+v", f)
	}
	if f.Path != "" {
		if _, err := os.Stat(f.Path); err == nil {
			t.Errorf("%s was left behind", f.Path)
		}
	}
	b := newBench(t)
	if f := b.Cgroups.Facts(); f.Path != "" || len(f.Why) == 0 {
		t.Errorf("turned off: %+v", f)
	}
	b = newBench(t, withCgroups)
	if got := b.Cgroups.Facts(); got.Path != b.Cgroups.Parent || got.Memory != f.Memory {
		t.Errorf("got %+v", got)
	}
}

func TestAPlaceThatIsGivenIsMade(t *testing.T) {
	own := detectCgroup()
	if own == "" {
		t.Skip("no cgroups here")
	}
	defer keep.RemoveCgroup(own)
	b := newBench(t, func(o *Options) {
		o.CgroupParent, o.KeepCgroup = filepath.Join(own, "jobs"), filepath.Join(own, "keepers")
		os.Mkdir(o.KeepCgroup, 0o755)
	})
	token := b.start(b.order("1", "echo $$ > main; sleep 1000"))
	r := b.next(Started).Record
	b.pidFrom("main")
	if filepath.Dir(r.Cgroup) != filepath.Join(own, "jobs") {
		t.Errorf("in %q: %q", r.Cgroup, r.Note)
	}
	if !strings.Contains(proc(t, r.KeepPID, "cgroup"), "/keepers\n") {
		t.Errorf("its supervisor is in %q", proc(t, r.KeepPID, "cgroup"))
	}
	b.Stop(token, job.StopCancel, testkit.Patience)
	b.next(Ended)
	b.Close()
}

func TestALogIsKeptToItsSize(t *testing.T) {
	t.Parallel()
	const most = 256 << 10
	for name, change := range map[string]func(*keep.Order){
		"written by the job":        func(*keep.Order) {},
		"written by the supervisor": func(o *keep.Order) { o.Pty = true },
		"of a job that gets no notice": func(o *keep.Order) {
			o.Argv[2] = "i=0; while [ $i -lt 20000 ]; do echo $i; i=$((i+1)); done; head -c 3M /dev/zero; echo end"
		},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			o := b.order("1", "i=0; while [ $i -lt 200000 ]; do echo $i; i=$((i+1)); done; echo end; while [ ! -e enough ]; do sleep 0.01; done")
			change(&o)
			o.LogMaxBytes = most
			token := b.start(o)
			b.next(Started)
			var stat unix.Stat_t
			testkit.Eventually(t, "the log is cut", func() bool {
				return unix.Stat(o.Log, &stat) == nil && stat.Size > 1<<20 && stat.Blocks*512 <= most
			})
			os.WriteFile(filepath.Join(b.work, "enough"), nil, 0o600)
			r := b.next(Ended).Record
			text, err := os.ReadFile(o.Log)
			if err != nil {
				t.Fatal(err)
			}
			text = bytes.ReplaceAll(text, []byte("\r"), nil)
			if !bytes.HasPrefix(text, []byte("0\n1\n2\n")) || !bytes.HasSuffix(text, []byte("end\n")) {
				t.Errorf("neither its beginning nor its end may go: %q … %q", text[:20], text[len(text)-20:])
			}
			if r.LogDropped < 1<<19 || r.Note != "" {
				t.Errorf("dropped %d, note %q", r.LogDropped, r.Note)
			}
			b.Ack(token)
		})
	}
	b := newBench(t)
	o := b.order("2", "echo short")
	o.LogMaxBytes = most
	if r := b.finish(o); r.LogDropped != 0 || b.logText("2") != "short\n" {
		t.Errorf("got %+v", r)
	}
	o = b.order("3", "echo to nowhere")
	o.LogMaxBytes, o.Log = most, "/dev/null"
	if r := b.finish(o); r.ExitCode != 0 || r.Note != "" {
		t.Errorf("got %+v", r)
	}
}

// A supervisor of the first protocol, as a test plays it, would run such an
// order as root. It never gets one, and berth itself takes its place.
func TestAnEarlierSupervisorIsNotGivenWhatItDoesNotKnow(t *testing.T) {
	t.Parallel()
	b := newLab(t, func(o *Options) { o.KeepCommand = []string{os.Args[0], "__oldkeep"} })
	o := b.ordered("1", "id -u")
	token := b.start(o)
	if e := b.next(NeverRan); e.Token != token || e.Job != "1" {
		t.Errorf("got %+v", e)
	}
	b.Ack(token)
	testkit.Eventually(t, "it is let go", func() bool { left, _ := os.ReadDir(b.dir); return len(left) == 0 })
	r := b.finish(o)
	if r.ExitCode != 0 || b.logText("1") != strconv.Itoa(otherUser)+"\n" {
		t.Errorf("got %+v, %q", r, b.logText("1"))
	}
}

// oldKeep greets as the first protocol does and takes any order for its own.
func oldKeep() {
	file := os.NewFile(3, "controller")
	file.Write(encode(keep.Frame{Kind: keep.FrameHello, Fields: []keep.Field{{Key: "token", Value: os.Args[len(os.Args)-1]}, {Key: "state", Value: "idle"}}}))
	for {
		frame, err := keep.ReadFrame(file)
		if err != nil {
			return
		}
		if frame.Kind == keep.FrameGo || frame.Kind == keep.FrameGoCarefully {
			os.WriteFile(frame.Get("log"), []byte("it was given an order\n"), 0o644)
		}
	}
}

// Records of the first protocol do not say whether a card ran out of memory.
func TestAnEarlierRecordIsJudgedByItsLog(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "log")
	os.WriteFile(path, []byte("CUDA out of memory\n"), 0o644)
	record := keep.Record{Log: path, ExitCode: 1, EndedAt: time.Now()}
	if !endedEvent(record, "").OOM {
		t.Error("its log was not read")
	}
	record.Protocol = keep.Protocol
	if endedEvent(record, "").OOM {
		t.Error("the log of a record that says so was read")
	}
	record.OOM = true
	if !endedEvent(record, "").OOM {
		t.Error("what it says was not believed")
	}
}

// CgroupFacts looks at the place that berth would use if nobody gave it one.
func CgroupFacts() Facts {
	dir := detectCgroup()
	f := factsOf(dir)
	if dir != "" {
		f.filters(probeFilter(dir))
		unix.Rmdir(dir) // stays where a job is in it
	}
	return f
}
