package run

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"berth/internal/job"
	"berth/internal/machine/keep"
	"berth/internal/tests/testkit"
)

// fakeDriver makes the checkpoint calls for processes that have a file named
// after them in the directory, with their state. A file named after a verb makes
// that call refuse, hang or die, or "once" do so only the first time.
func fakeDriver(dir string) {
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		words := strings.Fields(lines.Text())
		go func() { fmt.Println(words[0], fakeCall(dir, words[1], words[2:])) }()
	}
}

func fakeCall(dir, verb string, words []string) string {
	if fault, err := os.ReadFile(filepath.Join(dir, verb)); err == nil {
		how, once := strings.CutSuffix(strings.TrimSpace(string(fault)), " once")
		if once {
			os.Remove(filepath.Join(dir, verb))
		}
		switch how {
		case "refuse":
			return "no not supported (801)"
		case "hang":
			select {}
		case "die":
			os.Exit(1)
		case "end": // the process, which answers no call meanwhile
			os.WriteFile(filepath.Join(dir, "ending"), nil, 0o600)
			return "no operating system call failed (304)"
		}
	}
	if verb == "hold" || verb == "free" {
		return "ok"
	}
	if _, err := os.Stat(filepath.Join(dir, "ending")); err == nil {
		return "no operating system call failed (304)"
	}
	file := filepath.Join(dir, words[0])
	text, err := os.ReadFile(file)
	if err != nil {
		return "ok none"
	}
	state := strings.TrimSpace(string(text))
	if verb == "state" {
		return "ok " + state
	}
	move := map[string][2]string{
		"lock": {"running", "locked"}, "checkpoint": {"locked", "parked"},
		"restore": {"parked", "locked"}, "unlock": {"locked", "running"},
	}[verb]
	if state != move[0] {
		return "no it is " + state
	}
	// Another call may end this process at any time.
	if err := errors.Join(os.WriteFile(file+".new", []byte(move[1]), 0o600), os.Rename(file+".new", file)); err != nil {
		return "no " + err.Error()
	}
	return "ok"
}

// parkable is a job of two CUDA processes and one without, which counts.
func (b *bench) parkable(id string) (o keep.Order, driverDir string) {
	b.t.Helper()
	dir := filepath.Join(b.work, "driver")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		b.t.Fatal(err)
	}
	o = b.order(id, `sh -c 'echo running > driver/$$; echo $$ > child; while :; do sleep 0.01; done' & sleep 1000 &
		echo running > driver/$$; echo $$ > main; while :; do n=$((n+1)); echo $n > count; sleep 0.01; done`)
	o.Driver = []string{os.Args[0], "__driver", dir}
	return o, dir
}

// working is such a job at work.
func (b *bench) working(change ...func(*keep.Order)) (token, driverDir string, main, child keep.Process) {
	b.t.Helper()
	o, dir := b.parkable("1")
	for _, f := range change {
		f(&o)
	}
	token = b.start(o)
	b.next(Started)
	main, child = b.pidFrom("main"), b.pidFrom("child")
	b.moves()
	return token, dir, main, child
}

func (b *bench) states(dir string, processes ...keep.Process) string {
	var list []string
	for _, p := range processes {
		text, _ := os.ReadFile(filepath.Join(dir, strconv.Itoa(p.PID)))
		list = append(list, strings.TrimSpace(string(text)))
	}
	return strings.Join(list, " ")
}

func (b *bench) parking() keep.ParkNews {
	b.t.Helper()
	return b.next(Parking).Park
}

// standsStill reports whether the job's counter does not move.
func (b *bench) standsStill() bool {
	read := func() string { text, _ := os.ReadFile(filepath.Join(b.work, "count")); return string(text) }
	before := read()
	<-time.After(50 * time.Millisecond)
	return read() == before
}

func (b *bench) moves() {
	b.t.Helper()
	testkit.Eventually(b.t, "the job to work", func() bool { return !b.standsStill() })
}

func TestAJobIsParkedAndResumed(t *testing.T) {
	for _, host := range cgroupHosts(t) {
		t.Run(host.name, func(t *testing.T) {
			b := newBench(t, host.option)
			token, dir, main, child := b.working()
			for range 2 {
				if err := b.Park(token, time.Second, 0); err != nil {
					t.Fatal(err)
				}
				if n := b.parking(); !n.Parked || n.Busy || n.Why != "" || n.Took == 0 {
					t.Fatalf("parked: %+v", n)
				}
				if got := b.states(dir, main, child); got != "parked parked" || !b.standsStill() {
					t.Errorf("states %s", got)
				}
				if err := b.Resume(token, []keep.Room{{UUID: "GPU-1", MiB: 10}}); err != nil {
					t.Fatal(err)
				}
				if n := b.parking(); n.Parked || n.Why != "" {
					t.Fatalf("resumed: %+v", n)
				}
				if got := b.states(dir, main, child); got != "running running" {
					t.Errorf("states %s", got)
				}
				b.moves()
			}
			b.Stop(token, job.StopCancel, time.Second)
			if r := b.next(Ended).Record; r.Parkings != 2 || r.Parked <= 0 || r.Stop != "cancel" || r.Note != "" {
				t.Errorf("ended %+v", r)
			}
			b.gone(main, child)
		})
	}
}

func TestAJobThatCannotBeParkedGoesOn(t *testing.T) {
	t.Parallel()
	for fault, why := range map[string]string{
		"lock refuse": "lock: not supported (801)", "checkpoint refuse": "checkpoint: not supported (801)",
		"checkpoint die once": "the program that calls the driver ended", "lock hang once": "no reply to lock",
		"state die once": "the program that calls the driver ended",
	} {
		t.Run(fault, func(t *testing.T) {
			b := newBench(t)
			token, dir, main, child := b.working()
			verb, how, _ := strings.Cut(fault, " ")
			os.WriteFile(filepath.Join(dir, verb), []byte(how), 0o600)
			b.Park(token, 10*time.Millisecond, 0)
			if n := b.parking(); n.Parked || !strings.Contains(n.Why, why) || how == "refuse" && n.Took == 0 {
				t.Errorf("got %+v", n)
			}
			if got := b.states(dir, main, child); got != "running running" {
				t.Errorf("states %s", got)
			}
			b.moves()
		})
	}
}

// TestAJobThatWasNotTouchedIsNotHarmed: whatever is wrong with the program that
// calls the driver, a job that it has not locked goes on.
func TestAJobThatWasNotTouchedIsNotHarmed(t *testing.T) {
	t.Parallel()
	t.Run("the program is missing", func(t *testing.T) {
		b := newBench(t)
		token, _, _, _ := b.working(func(o *keep.Order) { o.Driver = []string{filepath.Join(b.work, "missing")} })
		b.Park(token, time.Second, 0)
		if n := b.parking(); n.Parked || !strings.Contains(n.Why, "no such file") {
			t.Errorf("got %+v", n)
		}
		b.moves()
		b.Stop(token, job.StopCancel, time.Second)
		if r := b.next(Ended).Record; r.Stop != "cancel" || r.Note != "" {
			t.Errorf("ended %+v", r)
		}
	})
	t.Run("the driver does not tell its state", func(t *testing.T) {
		b := newBench(t)
		token, dir, main, child := b.working()
		os.WriteFile(filepath.Join(dir, "state"), []byte("refuse"), 0o600)
		b.Park(token, time.Second, 0)
		if n := b.parking(); n.Parked || n.Why != "not supported (801)" {
			t.Errorf("got %+v", n)
		}
		if got := b.states(dir, main, child); got != "running running" {
			t.Errorf("states %s", got)
		}
		b.moves()
		os.Remove(filepath.Join(dir, "state"))
		b.Park(token, time.Second, 0)
		if n := b.parking(); !n.Parked {
			t.Errorf("got %+v", n)
		}
	})
	t.Run("it uses no CUDA yet", func(t *testing.T) {
		b := newBench(t)
		o, _ := b.parkable("1")
		o.Argv[2] = "sleep 1000"
		token := b.start(o)
		b.next(Started)
		b.Park(token, time.Second, 0)
		if n := b.parking(); n.Parked || n.Why != "it uses no CUDA" || n.Took != 0 {
			t.Errorf("got %+v", n)
		}
	})
	t.Run("it is being stopped", func(t *testing.T) {
		b := newBench(t)
		token, _, _, _ := b.working(func(o *keep.Order) { o.Argv[2] = "trap '' TERM; " + o.Argv[2] })
		b.Stop(token, job.StopCancel, time.Hour)
		b.Park(token, time.Second, 0)
		// Without a reason, berth would take its order for lost and repeat it.
		if n := b.parking(); n.Parked || n.Why != "it is being stopped" {
			t.Errorf("got %+v", n)
		}
		b.Stop(token, job.StopCancel, 0)
		b.next(Ended)
	})
}

// TestAProgramThatCannotStartForAMomentIsTriedAgain: it is replaced just while a
// job is locked.
func TestAProgramThatCannotStartForAMomentIsTriedAgain(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	program := filepath.Join(b.work, "program")
	token, dir, main, child := b.working(func(o *keep.Order) {
		testkit.Write(t, program, "#!/bin/sh\nexec "+strings.Join(o.Driver, " ")+"\n", 0o755)
		o.Driver = []string{program}
	})
	os.WriteFile(filepath.Join(dir, "checkpoint"), []byte("hang once"), 0o600)
	b.Park(token, time.Second, 0)
	testkit.Eventually(t, "the call to hang", func() bool {
		_, err := os.Stat(filepath.Join(dir, "checkpoint"))
		return err != nil
	})
	testkit.Must(t, os.Rename(program, program+".new"))
	for _, pid := range driversOf(dir) {
		syscall.Kill(pid, syscall.SIGKILL)
	}
	testkit.Eventually(t, "the program to be missed", func() bool { return len(driversOf(dir)) == 0 })
	<-time.After(300 * time.Millisecond)
	testkit.Must(t, os.Rename(program+".new", program))
	if n := b.parking(); n.Parked || !strings.Contains(n.Why, "the program that calls the driver ended") {
		t.Errorf("got %+v", n)
	}
	if got := b.states(dir, main, child); got != "running running" {
		t.Errorf("states %s", got)
	}
	b.moves()
}

func TestAParkedJobEndsAtOnce(t *testing.T) {
	for _, host := range cgroupHosts(t) {
		t.Run(host.name, func(t *testing.T) {
			b := newBench(t, host.option)
			token, _, main, child := b.working()
			b.Park(token, time.Second, 0)
			b.parking()
			b.Stop(token, job.StopCancel, time.Hour)
			if r := b.next(Ended).Record; r.Signal != 9 || r.Stop != "cancel" || r.Parked <= 0 {
				t.Errorf("ended %+v", r)
			}
			b.gone(main, child)
		})
	}
}

func TestRoomThatIsMissingLeavesAJobParked(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	token, dir, main, child := b.working()
	b.Park(token, time.Second, 0)
	b.parking()
	os.WriteFile(filepath.Join(dir, "hold"), []byte("refuse once"), 0o600)
	b.Resume(token, []keep.Room{{UUID: "GPU-1", MiB: 10}})
	if n := b.parking(); !n.Parked || !strings.Contains(n.Why, "not enough free memory: GPU-1 10 MiB") {
		t.Errorf("got %+v", n)
	}
	if got := b.states(dir, main, child); got != "parked parked" || !b.standsStill() {
		t.Errorf("states %s", got)
	}
	// A restore that fails for good ends the job, and not as a success.
	os.WriteFile(filepath.Join(dir, "restore"), []byte("refuse"), 0o600)
	b.Resume(token, nil)
	if n := b.parking(); !strings.Contains(n.Why, "restore: not supported") {
		t.Errorf("got %+v", n)
	}
	if r := b.next(Ended).Record; r.Stop != keep.StopBroken || r.Signal != 9 || !strings.Contains(r.Note, "could not be resumed") {
		t.Errorf("ended %+v", r)
	}
}

// TestAJobThatEndsWhileItIsParked ended by itself: the driver answers no call about a
// process that is just ending.
func TestAJobThatEndsWhileItIsParked(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	o := b.order("1", `echo running > driver/$$; echo $$ > main; until [ -e driver/ending ] && [ -e go ]; do sleep 0.01; done; exit 3`)
	dir := filepath.Join(b.work, "driver")
	testkit.Must(t, os.Mkdir(dir, 0o700))
	o.Driver = []string{os.Args[0], "__driver", dir}
	token := b.start(o)
	b.next(Started)
	b.pidFrom("main")
	testkit.Must(t, os.WriteFile(filepath.Join(dir, "checkpoint"), []byte("end"), 0o600))
	b.Park(token, time.Second, 0)
	testkit.Eventually(t, "the driver's refusal", func() bool { _, err := os.Stat(filepath.Join(dir, "ending")); return err == nil })
	testkit.Must(t, os.WriteFile(filepath.Join(b.work, "go"), nil, 0o600))
	if n := b.parking(); n.Parked || !strings.Contains(n.Why, "(304)") || strings.Contains(n.Why, "released") {
		t.Errorf("got %+v", n)
	}
	if r := b.next(Ended).Record; r.Stop != "" || r.ExitCode != 3 || r.Note != "" {
		t.Errorf("ended %+v", r)
	}
}

func TestAParkedJobsLimitStandsStill(t *testing.T) {
	b := newBench(t)
	token, _, _, _ := b.working(func(o *keep.Order) { o.Limit, o.Grace = 8*time.Second, 100*time.Millisecond })
	b.Park(token, time.Second, 0)
	if n := b.parking(); !n.Parked {
		t.Fatalf("got %+v", n)
	}
	select {
	case e := <-b.Events():
		t.Fatalf("while parked: %+v", e)
	case <-time.After(8500 * time.Millisecond):
	}
	b.Resume(token, nil)
	b.parking()
	if r := b.next(Ended).Record; r.Stop != "timeout" || r.Elapsed-r.Parked < 7900*time.Millisecond {
		t.Errorf("ended %+v", r)
	}
}

func TestAJobThatIsStoppedWhileItIsParkedGetsItsTERM(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	token, dir, _, _ := b.working(func(o *keep.Order) { o.Argv[2] = "trap 'exit 3' TERM; " + o.Argv[2] })
	os.WriteFile(filepath.Join(dir, "checkpoint"), []byte("hang once"), 0o600)
	b.Park(token, time.Second, 0)
	testkit.Eventually(t, "the call to hang", func() bool {
		_, err := os.Stat(filepath.Join(dir, "checkpoint"))
		return err != nil
	})
	b.Stop(token, job.StopCancel, testkit.Patience)
	if n := b.parking(); n.Parked || n.Why != "checkpoint: the job is being stopped" || n.Took != 0 {
		t.Errorf("got %+v", n)
	}
	if r := b.next(Ended).Record; r.ExitCode != 3 || r.Stop != "cancel" {
		t.Errorf("ended %+v", r)
	}
}

// TestASupervisorKilledWhileItParksLeavesNothing: a job whose supervisor dies is
// lost, and nothing of it stays locked, frozen or alive.
func TestASupervisorKilledWhileItParksLeavesNothing(t *testing.T) {
	for _, host := range cgroupHosts(t) {
		for _, step := range []string{"park locked", "park saved", "park done", "resume thawed", "resume restored", "resume done"} {
			t.Run(host.name+"/"+step, func(t *testing.T) {
				b := newBench(t, host.option, func(o *Options) { o.KeepCommand = []string{"env", "BERTH_KEEP_FAULT=" + step, faultyKeep} })
				token, dir, main, child := b.working()
				b.Park(token, time.Second, 0)
				if strings.HasPrefix(step, "resume") {
					if n := b.parking(); !n.Parked {
						t.Fatalf("got %+v", n)
					}
					b.Resume(token, []keep.Room{{UUID: "GPU-1", MiB: 10}})
				}
				if e := b.next(Lost); e.Record.Job != "1" {
					t.Errorf("lost %+v", e.Record)
				}
				b.gone(main, child)
				testkit.Eventually(t, "the driver's program to end", func() bool { return len(driversOf(dir)) == 0 })
			})
		}
	}
}

// driversOf are the driver programs that work on a directory.
func driversOf(dir string) (pids []int) {
	table, _ := keep.Processes()
	for _, p := range table {
		line, _ := os.ReadFile(filepath.Join("/proc", strconv.Itoa(p.PID), "cmdline"))
		if strings.Contains(string(line), "__driver\x00"+dir) && !p.Dead() {
			pids = append(pids, p.PID)
		}
	}
	return pids
}

// TestALaterBerthFindsAParkedJob: it stays parked without any berth, and comes
// back under another.
func TestALaterBerthFindsAParkedJob(t *testing.T) {
	for _, host := range cgroupHosts(t) {
		t.Run(host.name, func(t *testing.T) {
			b := newBench(t, host.option)
			token, dir, main, child := b.working()
			b.Park(token, time.Second, 0)
			b.parking()
			b.Close()
			b.open(host.option)
			found, err := b.Scan()
			if err != nil || len(found) != 1 || found[0].Kind != FoundRunning {
				t.Fatalf("found %+v, %v", found, err)
			}
			if n := b.parking(); !n.Parked || n.Busy || n.Took != 0 {
				t.Errorf("it says %+v", n)
			}
			b.Resume(token, nil)
			if n := b.parking(); n.Parked || n.Why != "" {
				t.Errorf("resumed: %+v", n)
			}
			if got := b.states(dir, main, child); got != "running running" {
				t.Errorf("states %s", got)
			}
			b.moves()
		})
	}
}
