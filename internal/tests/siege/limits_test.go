package siege

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
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

// Requests that are too much, each for itself.
var limitAttacks = []attack{
	{"nest JSON a hundred thousand deep", func(t *testing.T, c *camp) {
		deep := strings.Repeat("[", 100_000)
		for _, body := range []string{deep, `{"jobs":` + deep, `{"jobs":[{"command":` + deep, `{"jobs":[{"name":` + strings.Repeat(`{"a":`, 100_000), `{"environ":` + deep} {
			if r := c.bob.mustAsk(t, "POST", "/v1/jobs", body); r.status < 400 || r.status >= 500 {
				t.Errorf("%.30s: status %d: %.200s", body, r.status, r.body)
			}
		}
		if r := c.bob.mustAsk(t, "POST", "/v1/jobs/act", `{"action":"cancel","select":`+strings.Repeat(`{"a":`, 100_000)); r.status < 400 || r.status >= 500 {
			t.Errorf("act: status %d: %.200s", r.status, r.body)
		}
	}},
	{"send something other than JSON", func(t *testing.T, c *camp) {
		for _, body := range []string{"", "null", "[]", "0", `"`, "{", `{"jobs":null}`, `{"jobs":[null]}`, `{"jobs":[{}]}`, `{"jobs":[{"command":null}]}`, `{"jobs":[{"command":[]}]}`, `{"jobs":[{"command":[""]}]}`,
			`{"jobs":[{"command":"\u0000"}]}`, "{\"jobs\":[{\"command\":\"\xff\x00\"}]}", `{"jobs":[{"command":"true","gpus":1e309}]}`, `{"jobs":[{"command":"true","gpus":-1}]}`, `{"jobs":[{"command":"true","gpus":"NaN"}]}`,
			`{"jobs":[{"command":"true"}]}{"jobs":[]}`, "&a [*a,*a]", "<xml/>"} {
			if r := c.bob.mustAsk(t, "POST", "/v1/jobs", body); r.status < 400 || r.status >= 500 {
				t.Errorf("%q: status %d: %.200s", body, r.status, r.body)
			}
		}
	}},
	{"ask for an array without end", func(t *testing.T, c *camp) {
		for _, array := range []string{"0-999999999", "0-9223372036854775807", strings.Repeat("0-9999,", 10_000) + "1", "0-10001", "-1", "5-1", "0-9%-1", "0-9%999999999999", "1e9"} {
			if r := c.bob.mustAsk(t, "POST", "/v1/jobs", spec{"jobs": []spec{shell("true").with("array", array).with("hold", "yes")}}); r.status < 400 || r.status >= 500 {
				t.Errorf("%.30s: status %d: %.200s", array, r.status, r.body)
			}
		}
	}},
	{"turn a small request into a large queue", func(t *testing.T, c *camp) {
		// A megabyte, a thousand times over.
		before := c.stored(t)
		for name, s := range map[string]spec{
			"command": {"command": strings.Split("/bin/true"+strings.Repeat(" "+strings.Repeat("a", 100_000), 9), " "), "gpus": 0},
			"setup":   shell("true").with("setup", strings.Repeat("b", 900_000)),
			"env":     shell("true").with("env", spec{"A": strings.Repeat("c", 900_000)}),
			"output":  shell("true").with("output", strings.Repeat("d", 900_000)),
		} {
			s.with("array", "0-999").with("hold", "yes")
			if r := c.bob.mustAsk(t, "POST", "/v1/jobs", spec{"jobs": []spec{s}}); r.status < 400 || r.status >= 500 {
				t.Errorf("%s: status %d: %.200s", name, r.status, r.body)
			}
		}
		specs := make([]spec, 1000)
		for i := range specs {
			specs[i] = shell("true").with("hold", "yes")
		}
		if r := c.bob.mustAsk(t, "POST", "/v1/jobs", spec{"jobs": specs, "dir": "/" + strings.Repeat("e", 1<<20)}); r.status < 400 || r.status >= 500 {
			t.Errorf("dir: status %d: %.200s", r.status, r.body)
		}
		if grown := c.stored(t) - before; grown > 64<<20 {
			t.Errorf("the store grew by %d MiB", grown>>20)
		}
	}},
	{"wait for a hundred thousand jobs", func(t *testing.T, c *camp) {
		id := c.annSleeps(t)
		ids := strings.Repeat(id+":any,", 100_000) + id
		many := make([]string, 100_000)
		for i := range many {
			many[i] = strconv.Itoa(i + 1)
		}
		for _, after := range []string{ids, strings.Join(many, ","), "0-999999999", "all", "*"} {
			if r := c.bob.mustAsk(t, "POST", "/v1/jobs", spec{"jobs": []spec{shell("true").with("after", after).with("hold", "yes")}}); r.status < 400 || r.status >= 500 {
				t.Errorf("after %.30s: status %d: %.200s", after, r.status, r.body)
			}
		}
	}},
	{"tamper with cursors, offsets and numbers", func(t *testing.T, c *camp) {
		id := c.bob.submit(t, shell("echo hello"))[0]
		c.bob.ended(t, id)
		for _, query := range []string{
			"/v1/jobs?after=-1", "/v1/jobs?after=9223372036854775808.1", "/v1/jobs?after=1.1.1.1", "/v1/jobs?after=01.1.1", "/v1/jobs?after='%20OR%201=1--.1", "/v1/jobs?limit=-1", "/v1/jobs?limit=99999999999999999999",
			"/v1/jobs?id=0-9223372036854775808", "/v1/jobs?id=9-1", "/v1/jobs?state=x", "/v1/jobs?since=never", "/v1/jobs?user=" + strings.Repeat("a", 300), "/v1/jobs?id=" + strings.Repeat("1,", 5000) + "1",
			"/v1/jobs/" + id + "/log?offset=9223372036854775808", "/v1/jobs/" + id + "/log?lines=-1", "/v1/jobs/" + id + "/log?attempt=99", "/v1/jobs/" + id + "/log?attempt=-1", "/v1/jobs/" + id + "/log?lines=1&offset=1",
			"/v1/events?since=-2", "/v1/events?since=x", "/v1/stats?since=2026-01-02T00:00:00Z&until=2026-01-01T00:00:00Z", "/v1/status?a=b", "/v1/jobs?%zz=1",
		} {
			if r := c.bob.mustAsk(t, "GET", query, nil); r.status < 400 || r.status >= 500 {
				t.Errorf("%.80s: status %d: %.200s", query, r.status, r.body)
			}
		}
		for query, want := range map[string]string{"?offset=-4611686018427387904": "hello\n", "?offset=4611686018427387904": "", "?lines=2147483647": "hello\n", "?offset=2": "llo\n"} {
			if r := c.bob.mustAsk(t, "GET", "/v1/jobs/"+id+"/log"+query, nil); r.status != http.StatusOK || r.body != want {
				t.Errorf("%s: status %d: %q", query, r.status, r.body)
			}
		}
		// In names only * and ? mean anything, and nothing is run.
		for _, name := range []string{"%", "(a+)+$", "'; DROP TABLE jobs; --", "[", "\\"} {
			var page struct{ Total int }
			r, err := c.bob.askWith("GET", "/v1/jobs", nil, func(r *http.Request) {
				q := r.URL.Query()
				q.Set("name", name)
				q.Set("over", "1")
				r.URL.RawQuery = q.Encode()
			})
			testkit.Must(t, err)
			r.into(t, &page)
			if page.Total != 0 {
				t.Errorf("name %q selects %d jobs", name, page.Total)
			}
		}
	}},
	{"select in ways that take long to work out", func(t *testing.T, c *camp) {
		nested, disjoint, last, odd := make([]string, 10_000), make([]string, 10_000), make([]string, 10_000), make([]string, 10_000)
		for i := range nested {
			nested[i] = fmt.Sprintf("%d-999999999999999", i+1)
			disjoint[i] = fmt.Sprintf("%d-%d,%d-%d", 20*i+1, 20*i+2, 20*i+11, 20*i+12)
			last[i] = fmt.Sprintf("@~%d,@~%d", 2*i, 2*i+1)
			odd[i] = fmt.Sprintf("%d_0-9,%d_3-12", i+1, i+1)
		}
		// Each has to be answered while there is patience.
		for _, ids := range [][]string{nested, disjoint, last, odd} {
			c.bob.mustAsk(t, "POST", "/v1/jobs/act", spec{"action": "release", "select": spec{"ids": ids}})
			c.bob.mustAsk(t, "POST", "/v1/jobs/wait", spec{"select": spec{"ids": ids}, "timeout_s": 0.01})
		}
	}},
	{"be late with everything in a log of a terabyte", func(t *testing.T, c *camp) {
		id := c.bob.submit(t, shell("echo begin"))[0]
		log := text(c.bob.ended(t, id).Log)
		testkit.Must(t, c.bob.as(func() error { return os.Truncate(log, 1<<40) }))
		if r := c.bob.mustAsk(t, "GET", "/v1/jobs/"+id+"/log?lines=10", nil); r.status != http.StatusOK && r.status < 400 {
			t.Errorf("status %d", r.status)
		}
		r := c.bob.mustAsk(t, "GET", "/v1/jobs/"+id+"/log", nil)
		if len(r.body) > 32<<20 {
			t.Errorf("%d bytes of nothing", len(r.body))
		}
	}},
	{"type faster than a job reads", func(t *testing.T, c *camp) {
		id := c.bob.submit(t, shell("stty raw -echo; sleep 1000").with("pty", "yes"))[0]
		defer c.bob.cancel(t, id)
		c.bob.running(t, id)
		for _, frame := range []string{
			string(encode(t, keep.InputFrame(bytes.Repeat([]byte("x"), 1<<20)))), "\x01i\xff\xff\xff\xff", "\x01g\x00\x00\x00\x00", "\x01s\x00\x00\x00\x00", strings.Repeat("\x00", 1<<16),
			string(encode(t, keep.Frame{Kind: keep.FrameGo, Fields: []keep.Field{{Key: "job", Value: "1"}, {Key: "arg", Value: "/usr/bin/id"}, {Key: "dir", Value: "/"}, {Key: "log", Value: filepath.Join(c.bob.home, "as-root")}}})),
			string(encode(t, keep.Frame{Kind: keep.FrameStop, Fields: []keep.Field{{Key: "job", Value: id}, {Key: "attempt", Value: "1"}}})),
		} {
			conn := c.attach(t, c.bob, id)
			testkit.Must(t, conn.SetDeadline(time.Now().Add(2*time.Second)))
			_, _ = io.WriteString(conn, frame) // it may be cut off
			conn.Close()
		}
		if d := c.bob.show(t, id); d.State != job.Running {
			t.Errorf("the job is %s", d.State)
		}
		if _, err := os.Stat(filepath.Join(c.bob.home, "as-root")); err == nil {
			t.Error("an order that bob wrote was carried out")
		}
	}},
	{"hold the lock that berths share", func(t *testing.T, c *camp) {
		lock := filepath.Join(c.dir, "ledger", "lock")
		var held *os.File
		testkit.Must(t, c.bob.as(func() (err error) {
			if held, err = os.Open(lock); err == nil {
				err = syscall.Flock(int(held.Fd()), syscall.LOCK_EX)
			}
			return err
		}))
		defer held.Close()
		id := c.ann.submit(t, shell("true"))[0]
		if v := c.ann.ended(t, id); v.Outcome == nil || *v.Outcome != job.OK {
			t.Errorf("it ended %s", text(v.Outcome))
		}
	}},
	{"book every card for ever in the ledger", func(t *testing.T, c *camp) {
		var cards []struct{ UUID string }
		c.root.mustAsk(t, "GET", "/v1/gpus", nil).into(t, &cards)
		// In the name of a process that never ends and is not bob's.
		entry := fmt.Sprintf(`{"version":1,"boot_id":%q,"pid_space":%q,"entries":[{"key":"evil/1","user":"root","uuids":[%q,%q],"budget_mib":[1000000,1000000],"alone":true,"holder_pid":1,"holder_start":%d}]}`,
			strings.TrimSpace(testkit.Read(t, "/proc/sys/kernel/random/boot_id")), link(t, "/proc/self/ns/pid"), cards[0].UUID, cards[1].UUID, startOf(t, 1))
		path := filepath.Join(c.dir, "ledger", fmt.Sprintf("%d-forever", c.bob.uid))
		testkit.Must(t, c.bob.as(func() error { return os.WriteFile(path, []byte(entry), 0o644) }))
		defer os.Remove(path)
		id := c.ann.submit(t, spec{"command": "true", "gpus": 2, "vram": "100M"})[0]
		if v := c.ann.ended(t, id); v.Outcome == nil || *v.Outcome != job.OK {
			t.Errorf("it ended %s", text(v.Outcome))
		}
	}},
	{"break the simulated cards for everybody", func(t *testing.T, c *camp) {
		procs := filepath.Join(c.stateDir, "sim", "procs")
		name := filepath.Join(procs, fmt.Sprintf("1.%d", startOf(t, 1)))
		for what, plant := range map[string]func() error{
			"a pipe":      func() error { return syscall.Mkfifo(name, 0o666) },
			"a link":      func() error { return os.Symlink("/etc/shadow", name) },
			"nonsense":    func() error { return os.WriteFile(name, []byte("nonsense"), 0o666) },
			"less memory": func() error { return os.WriteFile(name, []byte(`{"uses":[{"card":0,"mib":-100000}]}`), 0o666) },
			"a giant":     func() error { return errorsJoin(os.WriteFile(name, nil, 0o666), os.Truncate(name, 1<<40)) },
		} {
			testkit.Must(t, c.bob.as(plant))
			id := c.ann.submit(t, spec{"command": "true", "gpus": 1, "vram": "100M"})[0]
			if v := c.ann.ended(t, id); v.Outcome == nil || *v.Outcome != job.OK {
				t.Errorf("%s: it ended %s", what, text(v.Outcome))
			}
			testkit.Must(t, os.Remove(name))
		}
	}},
}

func errorsJoin(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

func encode(t *testing.T, f keep.Frame) []byte {
	t.Helper()
	data, err := f.Encode()
	testkit.Must(t, err)
	return data
}

// stored is the size of the store on disk.
func (c *camp) stored(t *testing.T) (size int64) {
	t.Helper()
	files, err := os.ReadDir(filepath.Join(c.stateDir, "store"))
	testkit.Must(t, err)
	for _, file := range files {
		if info, err := file.Info(); err == nil {
			size += info.Size()
		}
	}
	return size
}
