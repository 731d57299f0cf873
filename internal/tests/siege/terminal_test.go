package siege

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"unicode"

	"github.com/creack/pty"

	"berth/internal/tests/testkit"
)

// Driving the terminal of whoever looks.
var terminalAttacks = []attack{
	{"steer a terminal with a command, a directory, a variable", func(t *testing.T, c *camp) {
		const evil = "\x1b]0;owned\x07\x1b[2J\x1b]52;c;cm0gLXJm\x07\u009b31m\u202etxt\r\b\x7f"
		dir := filepath.Join(c.bob.home, "d"+evil)
		testkit.Must(t, c.bob.as(func() error { return os.MkdirAll(dir, 0o755) }))
		ids := c.bob.submitFrom(t, map[string]any{"dir": dir, "jobs": []spec{
			shell("sleep 1000 # "+evil).with("env", spec{"A": evil}).with("setup", "true '"+evil+"'").with("output", evil+"%j").with("name", "\u202eemoc"),
			shell("true").with("dir", "/nonexistent"+evil), shell("true").with("venv", "/nonexistent"+evil), {"command": []string{"/nonexistent" + evil}, "gpus": "0.004"},
		}})
		defer c.bob.cancel(t, ids...)
		c.bob.running(t, ids[0])
		c.bob.ended(t, ids[1])
		for _, args := range [][]string{{"list"}, {"list", "--all"}, {"list", "--all", "--format", "csv"}, {"list", "--all", "--format", "{{.name}} {{.command}} {{.reason}} {{json .log}}"}, {"list", "--format", "{{." + evil}, {"list", "--columns", evil}, {"list", "--sort", evil}, {"history"}, {"stats"}, {"gpus"}, {"wait", ids[1], ids[2], ids[3]}, {"cancel", "x" + evil}, {"show", "y" + evil}} {
			c.mustBePlain(t, args...)
		}
		for _, id := range ids {
			c.mustBePlain(t, "show", id)
			c.mustBePlain(t, "why", id)
		}
	}},
	{"steer a terminal with a log", func(t *testing.T, c *camp) {
		id := c.bob.submit(t, shell(`printf '\033[31mred\033[0m \033]0;owned\007 \033]52;c;cm0gLXJm\007 \033[2J \033P+q544e\033\\ \033[21t \033[6n end\n'`))[0]
		c.bob.ended(t, id)
		cmd := exec.Command(filepath.Join(programs, "berth"), "logs", id)
		cmd.Env = []string{"BERTH_SOCKET=" + c.socket, "HOME=/root", "TERM=xterm", "PATH=/usr/bin:/bin"}
		terminal, err := pty.Start(cmd)
		testkit.Must(t, err)
		defer terminal.Close()
		said, _ := io.ReadAll(terminal) // a terminal ends with an error
		_ = cmd.Wait()
		if !strings.Contains(string(said), "end") {
			t.Fatalf("the log is %q", said)
		}
		for _, sequence := range []string{"\x1b]0;", "\x1b]52;", "\x1bP", "\x1b[21t", "\x1b[6n"} {
			if strings.Contains(string(said), sequence) {
				t.Errorf("the terminal is sent %q in %q", sequence, said)
			}
		}
	}},
	{"steer a terminal by way of the ledger of reservations", func(t *testing.T, c *camp) {
		entry := fmt.Sprintf(`{"version":1,"boot_id":%q,"pid_space":%q,"entries":[{"key":"x/1","user":"\u001b[31mroot","job":"\u001b]0;x\u0007","name":"\u202e\u009b","uuids":["x"],"budget_mib":[1],"holder_pid":1,"holder_start":%d}]}`,
			strings.TrimSpace(testkit.Read(t, "/proc/sys/kernel/random/boot_id")), link(t, "/proc/self/ns/pid"), startOf(t, 1))
		path := filepath.Join(c.dir, "ledger", fmt.Sprintf("%d-evil", c.bob.uid))
		testkit.Must(t, c.bob.as(func() error { return os.WriteFile(path, []byte(entry), 0o644) }))
		defer os.Remove(path)
		c.bob.does(t, "true") // has the ledger read
		c.mustBePlain(t, "gpus")
	}},
}

func link(t *testing.T, path string) string {
	t.Helper()
	to, err := os.Readlink(path)
	testkit.Must(t, err)
	return to
}

func startOf(t *testing.T, pid int) (ticks uint64) {
	t.Helper()
	_, rest, _ := strings.Cut(procFile(pid, "stat"), ") ")
	fields := strings.Fields(rest)
	_, err := fmt.Sscan(fields[19], &ticks)
	testkit.Must(t, err)
	return ticks
}

// mustBePlain runs a verb as root and looks for anything in its output that a
// terminal would obey.
func (c *camp) mustBePlain(t *testing.T, args ...string) {
	t.Helper()
	cmd := exec.Command(filepath.Join(programs, "berth"), args...)
	cmd.Env = []string{"BERTH_SOCKET=" + c.socket, "HOME=/root", "PATH=/usr/bin:/bin", "BERTH_NO_AUTOSTART=1"}
	cmd.Dir = "/"
	out, _ := outcome(cmd)
	for _, r := range out {
		if r != '\n' && (unicode.IsControl(r) || unicode.Is(unicode.Cf, r)) {
			t.Errorf("berth %.60q says %q in %q", strings.Join(args, " "), r, out)
			return
		}
	}
}
