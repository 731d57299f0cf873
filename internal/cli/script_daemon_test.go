package cli_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"io"
	"maps"
	"math/big"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/creack/pty"
	"github.com/rogpeppe/go-internal/testscript"

	"berth/internal/tests/testkit"
)

func init() { maps.Copy(storyCommands, daemonCommands) }

// daemonCommands are what stories of the daemon can do beside the rest.
var daemonCommands = map[string]func(ts *testscript.TestScript, neg bool, args []string){
	"certificate": certificate,
	"daemon":      startDaemon,
	"version":     buildVersion,
	"until":       until,
	"sit":         sitDown,
	"type":        typeText,
	"masked":      masked,
	"widest":      widest,
	"jobview":     jobView,
}

// certificate NAME: write NAME.crt, a certificate that vouches for itself, and
// NAME.key.
func certificate(ts *testscript.TestScript, neg bool, args []string) {
	refuseNegation(ts, neg)
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	ts.Check(err)
	template := &x509.Certificate{SerialNumber: big.NewInt(1), DNSNames: args[:1], IsCA: true, BasicConstraintsValid: true,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	ts.Check(err)
	secret, err := x509.MarshalPKCS8PrivateKey(key)
	ts.Check(err)
	for name, block := range map[string]*pem.Block{".crt": {Type: "CERTIFICATE", Bytes: der}, ".key": {Type: "PRIVATE KEY", Bytes: secret}} {
		ts.Check(os.WriteFile(ts.MkAbs(args[0]+name), pem.EncodeToMemory(block), 0o600))
	}
}

// version V DIR: build berth as that version into the directory.
func buildVersion(ts *testscript.TestScript, neg bool, args []string) {
	refuseNegation(ts, neg)
	ts.Check(testkit.BuildVersion(ts.MkAbs(args[1]), args[0]))
}

// daemon [FLAG...]: start a private daemon with its state in $WORK/d, on two
// simulated cards unless flags say otherwise, and wait until it serves. It is
// the actor "daemon" from then on, and the daemon that every verb talks to.
func startDaemon(ts *testscript.TestScript, neg bool, args []string) {
	refuseNegation(ts, neg)
	ts.Setenv("BERTH_SOCKET", filepath.Join(ts.MkAbs("."), "d", "berth.sock"))
	command := []string{"daemon", "berth", "serve", "--private", "--state-dir", "d"}
	if !slices.Contains(args, "--sim") {
		command = append(command, "--sim", "2")
	}
	if !slices.Contains(args, "--poll") {
		command = append(command, "--poll", "0.05")
	}
	begin(ts, false, append(command, args...))
	a := castOf(ts).actors["daemon"]
	serves := testkit.Holds(testkit.Patience, func() bool {
		return a.isOver() || strings.Contains(ts.ReadFile(a.out), "BERTH_SIM_DIR=")
	})
	if !serves || a.isOver() {
		ts.Fatalf("the daemon does not serve; it said:\n%s%s", ts.ReadFile(a.out), ts.ReadFile(a.err))
	}
}

func (a *actor) isOver() bool {
	select {
	case <-a.over:
		return true
	default:
		return false
	}
}

// until REGEXP COMMAND...: run the command again and again until what it
// prints matches. With !, until it matches no more. What it printed last is
// then stdout.
func until(ts *testscript.TestScript, neg bool, args []string) {
	wanted, err := regexp.Compile("(?m)" + args[0])
	ts.Check(err)
	var out, errOut strings.Builder
	ok := testkit.Holds(testkit.Patience, func() bool {
		out.Reset()
		errOut.Reset()
		ctx, cancel := context.WithTimeout(context.Background(), testkit.Patience)
		defer cancel()
		command := prepare(ts, ctx, args[1:])
		command.WaitDelay = testkit.Patience
		command.Stdout, command.Stderr = &out, &errOut
		_ = command.Run() // what it prints decides
		return wanted.MatchString(out.String()) != neg
	})
	_, err = io.WriteString(ts.Stdout(), out.String())
	ts.Check(err)
	if !ok {
		ts.Fatalf("%v does not come to match %q (or to match no more); it says:\n%s%s", args[1:], args[0], out.String(), errOut.String())
	}
}

// sit NAME COMMAND...: run it in the background on a terminal of its own, 30
// rows of 100 columns. What the terminal shows is in NAME.out.
func sitDown(ts *testscript.TestScript, neg bool, args []string) {
	refuseNegation(ts, neg)
	c := castOf(ts)
	master, slave, err := pty.Open()
	ts.Check(err)
	defer slave.Close()
	ts.Check(pty.Setsize(master, &pty.Winsize{Rows: 30, Cols: 100}))
	a := &actor{command: prepare(ts, context.Background(), args[1:]), over: make(chan struct{}), terminal: master}
	a.out, a.err = ts.MkAbs(args[0]+".out"), os.DevNull
	screen, err := os.Create(a.out)
	ts.Check(err)
	a.command.Env = append(a.command.Env, "TERM=xterm")
	a.command.Stdin, a.command.Stdout, a.command.Stderr = slave, slave, slave
	a.command.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	ts.Check(a.command.Start())
	c.actors[args[0]] = a
	shown := make(chan struct{})
	go func() {
		_, _ = io.Copy(screen, master) // a terminal without its program is an error to read
		screen.Close()
		close(shown)
	}()
	go func() {
		_ = a.command.Wait() // the status is looked at by whoever waits for it
		<-shown
		master.Close()
		close(a.over)
	}()
}

// type NAME TEXT: type it on the terminal of someone who sits there, in Go's
// notation: \r is the return key, \x1c is ctrl-\.
func typeText(ts *testscript.TestScript, neg bool, args []string) {
	refuseNegation(ts, neg)
	a := castOf(ts).actors[args[0]]
	if a == nil || a.terminal == nil {
		ts.Fatalf("%s does not sit at a terminal", args[0])
	}
	text, err := strconv.Unquote(`"` + args[1] + `"`)
	ts.Check(err)
	_, err = io.WriteString(a.terminal, text)
	ts.Check(err)
}

// maskings are what differs from one telling of a story to the next.
var maskings = []struct{ form, word string }{
	{`\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)`, "TIME"},
	{`"user":"[^"]*"`, `"user":"USER"`},
	{`GPU-sim-[0-9a-f]+-`, "GPU-sim-"},
	// Whether a job of moments was looked at is chance.
	{`"peak_vram_mib":(null|\{"0":0\}),"avg_util":(null|0)`, `"peak_vram_mib":PEAK,"avg_util":UTIL`},
}

// masked FILE: replace in it what differs from one telling to the next:
// times, the user, the story's own directory.
func masked(ts *testscript.TestScript, neg bool, args []string) {
	refuseNegation(ts, neg)
	text := strings.ReplaceAll(ts.ReadFile(args[0]), ts.MkAbs("."), "$WORK")
	for _, m := range maskings {
		text = regexp.MustCompile(m.form).ReplaceAllString(text, m.word)
	}
	text = strings.ReplaceAll(text, "},{", "},\n{")
	ts.Check(os.WriteFile(ts.MkAbs(args[0]), []byte(text), 0o600))
}

// widest N: no line of stdout takes more columns.
func widest(ts *testscript.TestScript, neg bool, args []string) {
	refuseNegation(ts, neg)
	columns, err := strconv.Atoi(args[0])
	ts.Check(err)
	for line := range strings.Lines(ts.ReadFile("stdout")) {
		if n := columnsTaken(strings.TrimSuffix(line, "\n")); n > columns {
			ts.Fatalf("%d columns, want at most %d: %s", n, columns, line)
		}
	}
}

// columnsTaken counts in its own way what a terminal would: two columns for
// the wide characters that stories use, one for every other.
func columnsTaken(line string) int {
	n := 0
	for _, r := range line {
		n++
		if r >= 0x3000 && r < 0xa000 || r >= 0x1f300 {
			n++
		}
	}
	return n
}

// jobview FILE: it holds one job or an array of them, and each has exactly
// the fields of the contract; those of show may be more.
func jobView(ts *testscript.TestScript, neg bool, args []string) {
	refuseNegation(ts, neg)
	jobs := records(ts, args[0])
	if len(jobs) == 0 {
		ts.Fatalf("%s holds no job", args[0])
	}
	for _, object := range jobs {
		ts.Check(viewError(object, len(jobs) > 1))
	}
}
