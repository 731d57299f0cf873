package siege

import (
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"berth/internal/job"
	"berth/internal/tests/testkit"
)

// Writing to and reading from what is not one's own, by way of a log.
var logAttacks = []attack{
	{"log through a link to another's file", func(t *testing.T, c *camp) {
		for _, owner := range []string{"root", "ann"} {
			treasure := c.treasure(t, owner, 0o666)
			way := filepath.Join(c.bob.home, "way-to-"+owner)
			testkit.Must(t, c.bob.as(func() error { return os.Symlink(treasure, way) }))
			c.bobsLogFails(t, way, "found a link")
			untouched(t, treasure)
		}
	}},
	{"log to a second name of another's file", func(t *testing.T, c *camp) {
		treasure := c.treasure(t, "ann", 0o666)
		name := filepath.Join(c.bob.home, "second-name")
		testkit.Must(t, os.Link(treasure, name)) // the kernel may keep bob from it; somebody else may have made it
		c.bobsLogFails(t, name, "belongs to")
		untouched(t, treasure)
		own := filepath.Join(c.bob.home, "own")
		testkit.Must(t, c.bob.as(func() error { return os.WriteFile(own, nil, 0o600) }))
		testkit.Must(t, c.bob.as(func() error { return os.Link(own, own+"2") }))
		c.bobsLogFails(t, own, "2 hard links")
	}},
	{"log to a pipe that nobody reads", func(t *testing.T, c *camp) {
		pipe := filepath.Join(c.bob.home, "pipe")
		testkit.Must(t, c.bob.as(func() error { return syscall.Mkfifo(pipe, 0o666) }))
		c.bobsLogFails(t, pipe, "not a file")
		// And to one that somebody reads but never empties.
		testkit.Must(t, c.bob.as(func() error {
			reader, err := os.OpenFile(pipe, os.O_RDWR, 0)
			t.Cleanup(func() { reader.Close() })
			return err
		}))
		c.bobsLogFails(t, pipe, "not a file")
	}},
	{"log to a device, a directory, the kernel", func(t *testing.T, c *camp) {
		for _, path := range []string{"/dev/mem", "/dev/full", "/dev/tty", "/dev/ptmx", "/dev/shm", c.bob.home, "/proc/1/mem", "/proc/self/fd/3", "/dev/fd/3", "/dev/stdout", "/proc/sysrq-trigger", "/sys/kernel/mm/ksm/run"} {
			c.bobsLogFails(t, path, "log")
		}
	}},
	{"log into directories of root's and of another's", func(t *testing.T, c *camp) {
		for _, path := range []string{
			"/etc/cron.d/berth-siege", "/etc/berth-siege", "../../../../../../../../etc/cron.d/berth-siege", "/root/berth-siege",
			filepath.Join(c.ann.home, "x.log"), filepath.Join(c.stateDir, "berth.log"), filepath.Join(c.stateDir, "jobs", "x.log"),
			filepath.Join(c.stateDir, "keep", "x", "record"), filepath.Join(c.stateDir, "store", "berth.db"), filepath.Join(c.stateDir, "audit.jsonl"),
		} {
			c.bobsLogFails(t, path, "permission denied")
		}
		for _, path := range []string{"/etc/cron.d/berth-siege", "/etc/berth-siege", "/root/berth-siege"} {
			if _, err := os.Lstat(path); !errors.Is(err, os.ErrNotExist) {
				t.Errorf("%s: %v", path, err)
			}
		}
	}},
	{"name a job so that its log lies elsewhere", func(t *testing.T, c *camp) {
		id := c.bob.submit(t, shell("echo here").with("name", "../../escaped").with("output", "sub/%n.log"))[0]
		if v := c.bob.ended(t, id); v.Outcome == nil || *v.Outcome != job.OK || !strings.HasPrefix(text(v.Log), c.bob.home+"/sub/") {
			t.Errorf("ended %s, log %s", text(v.Outcome), text(v.Log))
		}
		for _, name := range []string{"a\nb", "a\x1b[2Jb", "a\x00b", "\u009b31m", strings.Repeat("a", 1<<20), "a\u0085b"} {
			if r := c.bob.mustAsk(t, "POST", "/v1/jobs", spec{"jobs": []spec{shell("true").with("name", name)}}); r.status < 400 || r.status >= 500 {
				t.Errorf("name %.20q: status %d: %.200s", name, r.status, r.body)
			}
		}
	}},
	{"swap the log's place while jobs begin", raceBeginning},
	{"swap the log's place while it is read", raceReading},
	{"put a link where the next attempt's log will be", func(t *testing.T, c *camp) {
		treasure := c.treasure(t, "ann", 0o666)
		line := fmt.Sprintf("ln -s %s %s/jobs/$BERTH_JOB_ID/2.log; exit 1", treasure, c.stateDir)
		id := c.bob.submit(t, shell(line).with("retries", 1).with("retry_on", "fail"))[0]
		if v := c.bob.ended(t, id); v.Attempt != 2 || v.Outcome == nil || *v.Outcome != job.Exited(1) {
			t.Errorf("attempt %d ended %s: %s", v.Attempt, text(v.Outcome), text(v.Reason))
		}
		untouched(t, treasure)
		if r := c.bob.log(t, id); strings.Contains(r.body, treasureText) {
			t.Errorf("the log is %s", r.body)
		}
	}},
	{"fill the directory of the log with other files", func(t *testing.T, c *camp) {
		line := fmt.Sprintf(`cd %s/jobs/$BERTH_JOB_ID || exit 9
for try in "touch x" "mkdir y" "ln 1.log z" "ln -s 1.log l" "mkfifo p" "dd if=/dev/zero of=big count=1" "cp 1.log 1.log.old" "chmod 777 ." "ls"; do $try >/dev/null 2>&1 && echo done: $try; done; true`, c.stateDir)
		if out := c.bob.does(t, line); strings.Contains(out, "done:") {
			t.Error(out)
		}
	}},
	{"prepare a directory where another runs a jobs file", func(t *testing.T, c *camp) {
		place, err := os.MkdirTemp(c.dir, "scratch-")
		testkit.Must(t, err)
		testkit.Must(t, os.Chmod(place, 0o777|os.ModeSticky))
		file := filepath.Join(c.ann.home, "lines.txt")
		testkit.Write(t, file, "echo written by ann\n", 0o644)
		for what, prepare := range map[string]string{
			"the first log":       "mkdir -p berth_logs/jobs/1; ln -s TREASURE berth_logs/jobs/1/1.log; chmod -R 777 berth_logs",
			"the directory":       "mkdir d; ln -s $PWD/d berth_logs; chmod 777 d",
			"the board":           "mkdir berth_logs; ln -s TREASURE berth_logs/status.txt; chmod 777 berth_logs",
			"the log of berth":    "mkdir berth_logs; ln -s TREASURE berth_logs/berth.log; chmod 777 berth_logs",
			"the job's directory": "mkdir -p berth_logs/jobs; ln -s HOME berth_logs/jobs/1; chmod -R 777 berth_logs",
		} {
			dir, err := os.MkdirTemp(place, "run-")
			testkit.Must(t, err)
			testkit.Must(t, os.Chmod(dir, 0o777))
			treasure := filepath.Join(c.ann.home, "treasure")
			testkit.Write(t, treasure, treasureText, 0o644)
			testkit.Must(t, os.Chown(treasure, c.ann.uid, c.ann.gid))
			prepare = strings.NewReplacer("TREASURE", treasure, "HOME", c.ann.home).Replace(prepare)
			if out, status := c.bob.sh("cd " + dir + " && " + prepare); status != 0 {
				t.Fatal(out)
			}
			out, status := c.ann.sh("cd " + dir + " && exec " + filepath.Join(programs, "berth") + " run --sim 1 " + file)
			if status == 0 || !strings.Contains(out, "log directory ") {
				t.Errorf("%s: berth run ended with %d: %s", what, status, out)
			}
			untouched(t, treasure)
		}
	}},
	{"read another's log through its name", func(t *testing.T, c *camp) {
		id := c.ann.submit(t, shell("umask 0; echo secret"))[0]
		log := text(c.ann.ended(t, id).Log)
		if out, status := c.bob.sh("cat " + log); status == 0 {
			t.Errorf("bob reads %s", out)
		}
		if r := c.ann.log(t, id); r.body != "secret\n" {
			t.Errorf("ann reads %s", r.body)
		}
	}},
	{"put another directory in the place of the job's own", func(t *testing.T, c *camp) {
		out := c.bob.does(t, fmt.Sprintf(`cd %s/jobs; for try in "mv $BERTH_JOB_ID x" "rmdir $BERTH_JOB_ID" "ln -s /etc $BERTH_JOB_ID.x" "mkdir 99999" "rm -rf $BERTH_JOB_ID" "chmod 777 ." "ls"; do $try 2>/dev/null && [ "$try" != "ls" ] && echo done: $try; done; true`, c.stateDir))
		if strings.Contains(out, "done:") {
			t.Error(out)
		}
	}},
	{"have another's file read as one's log", func(t *testing.T, c *camp) {
		treasure := c.treasure(t, "ann", 0o600)
		for what, swap := range map[string]func(log string) error{
			"a link":             func(log string) error { return os.Symlink(treasure, log) },
			"a link to shadow":   func(log string) error { return os.Symlink("/etc/shadow", log) },
			"a link to a device": func(log string) error { return os.Symlink("/dev/zero", log) },
			"a pipe":             func(log string) error { return syscall.Mkfifo(log, 0o600) },
			"a directory":        func(log string) error { return os.Mkdir(log, 0o700) },
			"a socket":           func(log string) error { return syscall.Mknod(log, syscall.S_IFSOCK|0o600, 0) },
		} {
			id := c.bob.submit(t, shell("echo mine").with("output", "swapped-%j"))[0]
			log := text(c.bob.ended(t, id).Log)
			testkit.Must(t, c.bob.as(func() error { return errors.Join(os.Remove(log), swap(log)) }))
			if r := c.bob.log(t, id); r.status == http.StatusOK || strings.Contains(r.body, treasureText) || strings.Contains(r.body, "root:") {
				t.Errorf("%s: status %d: %.200s", what, r.status, r.body)
			}
			// Nor is it read for an administrator, who asks in good faith.
			if r := c.root.log(t, id); r.status == http.StatusOK {
				t.Errorf("%s, to root: status %d: %.200s", what, r.status, r.body)
			}
		}
		id := c.bob.submit(t, shell("echo mine"))[0]
		log := text(c.bob.ended(t, id).Log)
		testkit.Must(t, os.Remove(log))
		testkit.Must(t, os.Link(treasure, log))
		if r := c.bob.log(t, id); r.status == http.StatusOK || strings.Contains(r.body, treasureText) {
			t.Errorf("a second name: status %d: %.200s", r.status, r.body)
		}
	}},
	{"work in a directory that is closed to the user", func(t *testing.T, c *camp) {
		for _, dir := range []string{c.ann.home, "/root", filepath.Join(c.stateDir, "keep"), filepath.Join(c.stateDir, "store"), "/proc/1/cwd", "/nonexistent"} {
			id := c.bob.submit(t, shell("pwd; ls").with("dir", dir))[0]
			if v := c.bob.ended(t, id); v.Outcome == nil || *v.Outcome != job.Launch {
				t.Errorf("%s: it ended %s: %s", dir, text(v.Outcome), c.bob.log(t, id).body)
			}
		}
		for _, dir := range []string{"relative", "/a\x00b", "/" + strings.Repeat("a", 5<<20)} {
			if r := c.bob.mustAsk(t, "POST", "/v1/jobs", spec{"dir": dir, "jobs": []spec{shell("true")}}); r.status < 400 {
				t.Errorf("dir %.20q: status %d: %.200s", dir, r.status, r.body)
			}
		}
	}},
}

const treasureText = "the treasure of another"

// treasure is a file that bob has no right to change; with mode 0600, nor to
// read.
func (c *camp) treasure(t *testing.T, owner string, mode os.FileMode) string {
	t.Helper()
	dir, err := os.MkdirTemp(c.dir, "treasure-")
	testkit.Must(t, err)
	path := filepath.Join(dir, "treasure")
	testkit.Write(t, path, treasureText, mode)
	if owner == "ann" {
		testkit.Must(t, os.Chown(dir, c.ann.uid, c.ann.gid))
		testkit.Must(t, os.Chown(path, c.ann.uid, c.ann.gid))
	}
	testkit.Must(t, os.Chmod(dir, 0o755))
	return path
}

func untouched(t *testing.T, path string) {
	t.Helper()
	if got := testkit.Read(t, path); got != treasureText {
		t.Errorf("%s holds %q", path, got)
	}
}

// bobsLogFails checks that a job with such a log does not begin.
func (c *camp) bobsLogFails(t *testing.T, output, why string) {
	t.Helper()
	id := c.bob.submit(t, shell("echo written by bob").with("output", output))[0]
	v := c.bob.ended(t, id)
	if v.Outcome == nil || *v.Outcome != job.Launch || !strings.Contains(text(v.Reason), why) {
		t.Errorf("with the log %s the job ended %s: %s", output, text(v.Outcome), text(v.Reason))
	}
}

// flip puts one thing after another in a place, as fast as it can, until it
// is told to stop. It counts how often.
func (c *camp) flip(path, treasure string, stop <-chan struct{}) (count *atomic.Int64, done chan struct{}) {
	count, done = new(atomic.Int64), make(chan struct{})
	spare, link := path+".spare", path+".link"
	go func() {
		defer close(done)
		_ = c.bob.as(func() error {
			for {
				select {
				case <-stop:
					return nil
				default:
				}
				_ = os.WriteFile(spare, nil, 0o644) // whatever fails is tried again
				_ = os.Rename(spare, path)
				_ = os.Symlink(treasure, link)
				_ = os.Rename(link, path)
				count.Add(2)
			}
		})
	}()
	return count, done
}

// enough is how many tries a race has: some while the other attacks go on,
// many where there is time.
func enough(usual int) int {
	if long() {
		return 10_000
	}
	return usual
}

// raceBeginning: the log's place is now a file of the user's, now a link to
// what is not the user's, while jobs open it.
func raceBeginning(t *testing.T, c *camp) {
	treasure := c.treasure(t, "ann", 0o666)
	path := filepath.Join(c.bob.home, "raced")
	stop := make(chan struct{})
	flips, done := c.flip(path, treasure, stop)
	tries := 0
	for deadline := time.Now().Add(12 * time.Second); tries < enough(400) && (long() || time.Now().Before(deadline)); {
		const batch = 25
		specs := make([]spec, batch)
		for i := range specs {
			specs[i] = shell("echo written by bob").with("output", path)
		}
		for _, id := range c.bob.submit(t, specs...) {
			c.bob.ended(t, id)
		}
		tries += batch
	}
	close(stop)
	<-done
	t.Logf("%d jobs began while the place changed %d times", tries, flips.Load())
	untouched(t, treasure)
}

// raceReading: the same while the daemon reads it for its owner.
func raceReading(t *testing.T, c *camp) {
	treasure := c.treasure(t, "ann", 0o600)
	path := filepath.Join(c.bob.home, "raced-reading")
	id := c.bob.submit(t, shell("echo mine").with("output", path))[0]
	c.bob.ended(t, id)
	stop := make(chan struct{})
	flips, done := c.flip(path, treasure, stop)
	tries := 0
	for deadline := time.Now().Add(10 * time.Second); tries < enough(1000) && (long() || time.Now().Before(deadline)); tries++ {
		if r := c.bob.log(t, id); strings.Contains(r.body, treasureText) {
			t.Fatalf("after %d tries the log is %s", tries, r.body)
		}
	}
	close(stop)
	<-done
	t.Logf("%d readings while the place changed %d times", tries, flips.Load())
}
