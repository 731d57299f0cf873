package siege

import (
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
	"unicode"

	"berth/internal/job"
	"berth/internal/machine/keep"
	"berth/internal/tests/testkit"
)

func init() {
	terminalAttacks = append(terminalAttacks, nameAttacks...)
	floodAttacks = append(floodAttacks, repeatAttacks...)
	adminAttacks = append(adminAttacks, overstepAttacks...)
}

const steering = "\x1b]0;owned\x07\x1b[2J\u009b31m\u202e\u200b"

// Names that end up on somebody else's screen.
var nameAttacks = []attack{
	{"steer a terminal with the name of a process on a GPU", func(t *testing.T, c *camp) {
		program := filepath.Join(c.bob.home, "\x1b[2J\x1b]0;x\x07")
		if out, status := c.bob.sh(`cp "$1" "$2"`, filepath.Join(programs, "berth"), program); status != 0 {
			t.Fatal(out)
		}
		cmd := c.bob.command(program, "simjob", "--hold", "600", "--vram", "300", "--gpu", "0")
		cmd.Env = append(cmd.Env, "BERTH_SIM_DIR="+filepath.Join(c.stateDir, "sim"))
		testkit.Must(t, cmd.Start())
		defer func() { _ = cmd.Process.Kill(); _ = cmd.Wait() }()
		testkit.Eventually(t, "it is on a GPU", func() bool {
			return strings.Contains(c.root.mustAsk(t, "GET", "/v1/gpus", nil).body, fmt.Sprintf(`"pid":%d,`, cmd.Process.Pid))
		})
		c.mustBePlain(t, "gpus")
		c.mustBePlain(t, "gpus", "-v")
		c.mustBePlain(t, "doctor")
		// Adopted, its arguments are shown as well.
		d := c.bob.adopts(t, cmd.Process.Pid)
		defer c.bob.cancel(t, d.ID)
		for _, args := range [][]string{{"show", d.ID}, {"why", d.ID}, {"list", "--all"}} {
			c.mustBePlain(t, args...)
		}
	}},
	{"steer a terminal with the name of a token", func(t *testing.T, c *camp) {
		for _, name := range []string{steering, "a\u202eb", "a\u200bb", "a\nb"} {
			c.bob.mustAsk(t, "POST", "/v1/tokens", spec{"name": name, "ttl_s": 60}) // it may be refused
		}
		c.mustBePlain(t, "token", "list")
		c.mustBePlain(t, "token", "revoke", steering)
	}},
	{"steer a terminal by way of an error", func(t *testing.T, c *camp) {
		for _, args := range [][]string{
			{"show", steering}, {"list", "--user", steering}, {"list", "--name", steering}, {"cancel", "--name", steering}, {"submit", "--gpus", steering, "true"}, {"wait", steering},
			{"logs", steering}, {"adopt", steering}, {"config", "check", "/nonexistent" + steering}, {"restore", "/nonexistent" + steering}, {"--host", steering, "list"}, {steering}, {"submit", "--" + steering},
		} {
			c.mustBePlain(t, args...)
		}
	}},
	{"steer a terminal as a daemon that somebody else runs", func(t *testing.T, c *camp) {
		socket := filepath.Join(c.dir, "home", "hostile.sock")
		l, err := net.Listen("unix", socket)
		testkit.Must(t, err)
		defer l.Close()
		testkit.Must(t, os.Chmod(socket, 0o777))
		go func() {
			for {
				conn, err := l.Accept()
				if err != nil {
					return
				}
				go func() {
					defer conn.Close()
					_, _ = conn.Read(make([]byte, 4096))
					body := `{"kind":"refused","problem":"\u001b]0;owned\u0007\u202e","hint":"\u001b[2J"}`
					fmt.Fprintf(conn, "HTTP/1.1 409 Conflict\x1b[2J\r\nContent-Type: application/problem+json\r\nContent-Length: %d\r\nBerth-Warning: \x1b[31m\r\n\r\n%s", len(body), body)
				}()
			}
		}()
		for _, args := range [][]string{{"list"}, {"show", "1"}, {"gpus"}, {"cancel", "1"}, {"submit", "true"}} {
			out, status := c.bob.berth(append([]string{"--host", "unix:" + socket}, args...)...)
			if status == 0 {
				t.Errorf("%v: %s", args, out)
			}
			for _, r := range out {
				if r != '\n' && (unicode.IsControl(r) || unicode.Is(unicode.Cf, r)) {
					t.Errorf("%v says %q in %q", args, r, out)
					break
				}
			}
		}
	}},
	{"resize a terminal to nothing and beyond, without end", func(t *testing.T, c *camp) {
		id := c.bob.submit(t, shell("echo begun; read word; echo got $word").with("pty", "yes"))[0]
		defer c.bob.cancel(t, id)
		testkit.Eventually(t, "it has begun", func() bool { return strings.Contains(c.bob.log(t, id).body, "begun") })
		conn := c.attach(t, c.bob, id)
		defer conn.Close()
		testkit.Must(t, conn.SetDeadline(time.Now().Add(testkit.Patience)))
		sizes := []int{0, -1, 1, 65535, 65536, 1 << 30, -1 << 31}
		for i := range 2000 {
			_, err := conn.Write(encode(t, keep.ResizeFrame(sizes[i%len(sizes)], sizes[(i/3)%len(sizes)])))
			testkit.Must(t, err)
		}
		_, err := conn.Write(encode(t, keep.InputFrame([]byte("this\n"))))
		testkit.Must(t, err)
		c.bob.mustEnd(t, id, job.OK)
	}},
	{"attach more often than a terminal allows", func(t *testing.T, c *camp) {
		id := c.bob.submit(t, shell("read word; echo got $word").with("pty", "yes"))[0]
		defer c.bob.cancel(t, id)
		c.bob.running(t, id)
		for range 50 {
			conn, err := c.bob.dial()
			testkit.Must(t, err)
			defer conn.Close()
			fmt.Fprintf(conn, attachRequest, id) // and nobody reads
		}
		c.ann.does(t, "true")
		c.bob.cancel(t, id)
		c.bob.mustEnd(t, id, job.WasCancelled)
	}},
}

// Cheap requests with costly answers, again and again.
var repeatAttacks = []attack{
	{"statistics and snapshots, without end", func(t *testing.T, c *camp) {
		c.repeated(t, func() { c.catAsks("GET", "/v1/stats", nil) }, func() { c.catAsks("GET", "/v1/debug/snapshot", nil) })
	}},
	{"replays of the history, without end", func(t *testing.T, c *camp) {
		c.repeated(t, func() { c.catAsks("GET", "/v1/replay?policy=default&policy=las&policy=fair&policy=shortest", nil) })
		if r := c.ann.mustAsk(t, "GET", "/v1/replay", nil); r.status != http.StatusOK {
			t.Errorf("another user's replay: status %d: %s", r.status, r.body)
		}
	}},
	{"dry runs of large arrays, without end", func(t *testing.T, c *camp) {
		jobs := spec{"jobs": []spec{shell("true").with("array", "0-1000")}, "dry_run": true}
		c.repeated(t, func() { c.catAsks("POST", "/v1/jobs", jobs) })
	}},
	{"tokens made and revoked, without end", func(t *testing.T, c *camp) {
		c.repeated(t, func() {
			r, err := c.cat.ask("POST", "/v1/tokens", spec{"ttl_s": 60})
			if id, _, found := strings.Cut(strings.TrimPrefix(r.body, `{"id":"`), `"`); err == nil && found {
				c.catAsks("DELETE", "/v1/tokens/"+id, nil)
			}
		})
	}},
	{"the question whether a job is new, for a thousand jobs, without end", func(t *testing.T, c *camp) {
		jobs := make([]spec, 1000)
		for i := range jobs {
			jobs[i] = shell(fmt.Sprintf("true %d", i)).with("dedup", "yes").with("hold", "yes")
		}
		defer c.cat.act(t, "cancel", map[string]any{"all": true})
		c.repeated(t, func() { c.catAsks("POST", "/v1/jobs", spec{"jobs": jobs, "dir": "/"}) })
		if r := c.ann.mustAsk(t, "POST", "/v1/jobs", spec{"jobs": []spec{shell("true").with("dedup", "yes").with("name", "only-once")}, "dir": "/tmp"}); r.status != http.StatusOK {
			t.Errorf("status %d: %s", r.status, r.body)
		}
	}},
}

func (c *camp) catAsks(method, path string, body any) {
	_, _ = c.cat.ask(method, path, body) // whatever the answer
}

// repeated has cat do something on eight connections until others have been
// served.
func (c *camp) repeated(t *testing.T, do ...func()) {
	t.Helper()
	var group sync.WaitGroup
	over := make(chan struct{})
	for i := range 8 {
		group.Go(func() {
			for {
				select {
				case <-over:
					return
				default:
					do[i%len(do)]()
				}
			}
		})
	}
	c.othersAreServed(t)
	close(over)
	group.Wait()
}

// What an administrator would like to be able to do.
var overstepAttacks = []attack{
	{"learn what is in root's files from a check of the config", func(t *testing.T, c *camp) {
		secret := filepath.Join(c.dir, "secret.pem")
		testkit.Write(t, secret, "canary-of-root-in-a-file\n", 0o600)
		for _, config := range []string{
			fmt.Sprintf("[http]\nlisten = \"127.0.0.1:0\"\ntls_cert = %q\ntls_key = %q\n", secret, secret), fmt.Sprintf("include = %q\n", secret),
			fmt.Sprintf("[access]\nadmin_group = %q\n", "@"+secret), strings.Repeat("[a]\n", 100_000), strings.Repeat("a = [", 50_000), "a = \"" + strings.Repeat("x", 900_000) + "\"",
		} {
			r := c.dan.mustAsk(t, "POST", "/v1/reload", spec{"dry_run": true, "text": config})
			if r.status >= 500 || strings.Contains(r.body, "canary") || len(r.body) > 100_000 {
				t.Errorf("%.60q: status %d, %d bytes: %.300s", config, r.status, len(r.body), r.body)
			}
		}
		if r := c.dan.mustAsk(t, "POST", "/v1/reload", spec{"text": "[access]\nadmin_group = \"everyone\"\n"}); r.status < 400 {
			t.Errorf("a config of his own: status %d: %s", r.status, r.body)
		}
		if r := c.bob.mustAsk(t, "POST", "/v1/reload", spec{"dry_run": true, "text": ""}); r.status != http.StatusForbidden {
			t.Errorf("bob: status %d: %s", r.status, r.body)
		}
	}},
	{"take another's running job for a stray", func(t *testing.T, c *camp) {
		mark := newMark()
		victim := c.ann.submit(t, shell("exec sleep "+mark))[0]
		defer c.ann.cancel(t, victim)
		testkit.Eventually(t, "it runs", func() bool { return len(marked("sleep\x00"+mark)) == 1 })
		token := c.tokenOf(t, victim)
		for _, p := range []*person{c.bob, c.dan} {
			r := p.mustAsk(t, "POST", "/v1/strays/adopt", spec{"tokens": []string{token, "../" + token, strings.Repeat("x", 500_000), ""}})
			if strings.Contains(r.body, `"job":`) {
				t.Errorf("%s: %.300s", p.name, r.body)
			}
			if r := p.mustAsk(t, "GET", "/v1/strays", nil); strings.Contains(r.body, token) {
				t.Errorf("%s: %s", p.name, r.body)
			}
		}
		if d := c.ann.show(t, victim); d.State != job.Running || d.User != c.ann.name || d.Attempt != 1 {
			t.Errorf("the job is %s, %s's, attempt %d", d.State, d.User, d.Attempt)
		}
	}},
	{"have root restore a backup that somebody else wrote", func(t *testing.T, c *camp) {
		backup := filepath.Join(c.dan.home, "berth.backup")
		if out, status := c.dan.berth("backup", backup); status != 0 {
			t.Fatal(out)
		}
		state, err := os.MkdirTemp(c.dir, "restored-")
		testkit.Must(t, err)
		restore := func(file string, more ...string) (string, int) {
			cmd := c.root.command(filepath.Join(programs, "berth"), append([]string{"restore", "--state-dir", state}, append(more, file)...)...)
			cmd.Dir, cmd.SysProcAttr, cmd.Stdin = "/", nil, nil
			return outcome(cmd)
		}
		if out, status := restore(backup); status == 0 || !strings.Contains(out, "belongs to user") {
			t.Errorf("a backup of dan's: status %d: %s", status, out)
		}
		own := filepath.Join(c.dir, "root.backup")
		testkit.Must(t, os.Link(backup, own+".link"))
		testkit.Must(t, os.Symlink(backup, own+".symlink"))
		for _, file := range []string{own + ".link", own + ".symlink"} {
			if out, status := restore(file); status == 0 {
				t.Errorf("%s: %s", file, out)
			}
		}
		pipe := filepath.Join(c.dan.home, "pipe")
		testkit.Must(t, c.dan.as(func() error { return syscall.Mkfifo(pipe, 0o666) }))
		for _, file := range []string{pipe, "/dev/zero", c.dan.home} {
			if out, status := restore(file, "--yes"); status == 0 {
				t.Errorf("%s: %s", file, out)
			}
		}
		data, err := os.ReadFile(backup)
		testkit.Must(t, err)
		testkit.Must(t, os.WriteFile(own, data, 0o600))
		if out, status := restore(own); status != 0 {
			t.Errorf("one of root's own: status %d: %s", status, out)
		}
	}},
	{"have root's backup go where a link leads", func(t *testing.T, c *camp) {
		treasure := c.treasure(t, "ann", 0o600)
		open, err := os.MkdirTemp(c.dir, "open-")
		testkit.Must(t, err)
		testkit.Must(t, os.Chmod(open, 0o777))
		for what, plant := range map[string]func(string) error{
			"link": func(path string) error { return os.Symlink(treasure, path) }, "pipe": func(path string) error { return syscall.Mkfifo(path, 0o666) },
			"dangling": func(path string) error { return os.Symlink("/etc/berth-siege-backup", path) },
		} {
			path := filepath.Join(open, what)
			testkit.Must(t, c.bob.as(func() error { return plant(path) }))
			for _, force := range [][]string{{}, {"--force"}} {
				cmd := c.root.command(filepath.Join(programs, "berth"), append(append([]string{"backup"}, force...), path)...)
				cmd.Dir, cmd.SysProcAttr = "/", nil
				out, status := outcome(cmd)
				if len(force) == 0 && status == 0 {
					t.Errorf("%s: %s", what, out)
				}
			}
		}
		untouched(t, treasure)
		if _, err := os.Lstat("/etc/berth-siege-backup"); err == nil {
			t.Error("it went to /etc")
		}
		if out, status := c.bob.sh("cat " + open + "/* " + open + "/.* 2>/dev/null | grep -a -c canary-of"); status == 0 {
			t.Errorf("bob reads it: %s", out)
		}
	}},
}
