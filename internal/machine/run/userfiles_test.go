package run

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"berth/internal/machine/keep"
)

// What root could do and the user could not does not happen.
func TestWhatAUserMayNotDoFailsTheLaunch(t *testing.T) {
	t.Parallel()
	b := newLab(t)
	path := func(name string) string { return filepath.Join(b.work, name) }
	os.Mkdir(path("roots"), 0o700)
	os.WriteFile(path("roots/tool"), []byte("#!/bin/sh\necho wrong one\n"), 0o755)
	os.WriteFile(path("secret"), []byte("before\n"), 0o666)
	os.WriteFile(path("unrunnable"), []byte("#!/bin/sh\n"), 0o700)
	os.WriteFile(path("mine"), []byte("before\n"), 0o644)
	os.Chown(path("mine"), otherUser, otherUser)
	os.Link(path("mine"), path("second"))
	os.WriteFile(path("theirs"), []byte("before\n"), 0o666)
	os.Chown(path("theirs"), neighbour, neighbour)
	os.Chmod(path("theirs"), 0o666)
	os.Symlink(path("secret"), path("link"))
	os.Symlink(path("fresh"), path("dangling"))
	unix.Mkfifo(path("fifo"), 0o666)
	os.Chmod(path("fifo"), 0o666)
	rows := []struct {
		name  string
		spoil func(o *keep.Order)
		want  string
	}{
		{"a directory that only root may enter", func(o *keep.Order) { o.Dir = path("roots") }, "working directory: chdir " + path("roots") + ": permission denied"},
		{"a program that only root may run", func(o *keep.Order) { o.Argv = []string{path("unrunnable")} }, "permission denied"},
		{"a word that only root finds in PATH", func(o *keep.Order) { o.Argv, o.Env = []string{"tool"}, []string{"PATH=" + path("roots")} }, `command "tool" not found`},
		{"a log in a directory of root's", func(o *keep.Order) { o.Log = path("roots/x.log") }, "permission denied"},
		{"a directory for the log that cannot be made", func(o *keep.Order) { o.Log = "/berth-no-such/x.log" }, "create log directory"},
		{"a log that is a link", func(o *keep.Order) { o.Log = path("link") }, "found a link"},
		{"a log that is a link to nothing", func(o *keep.Order) { o.Log = path("dangling") }, "found a link"},
		{"a log with two names", func(o *keep.Order) { o.Log = path("second") }, "it has 2 hard links"},
		{"a log of another user", func(o *keep.Order) { o.Log = path("theirs") }, "it belongs to user 12346"},
		{"a log of root's that all may write", func(o *keep.Order) { o.Log = path("secret") }, "belongs to user 0"},
		{"a log that is a named pipe", func(o *keep.Order) { o.Log = path("fifo") }, "not a file"},
		{"a log that is another device", func(o *keep.Order) { o.Log = "/dev/zero" }, "not a file"},
		{"a log that is a directory", func(o *keep.Order) { o.Log = b.work }, "is a directory"},
	}
	os.Chmod(path("secret"), 0o666)
	for i, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			o := b.ordered("x"+strconv.Itoa(i), "touch "+path("ran"))
			row.spoil(&o)
			token := b.start(o)
			r := b.next(Ended).Record
			b.Ack(token)
			if !strings.Contains(r.Launch, row.want) || r.PID != 0 || r.ExitCode != -1 {
				t.Errorf("got %q, pid %d, code %d", r.Launch, r.PID, r.ExitCode)
			}
		})
	}
	for _, name := range []string{"ran", "fresh"} {
		if _, err := os.Stat(path(name)); err == nil {
			t.Errorf("%s was made", name)
		}
	}
	for _, name := range []string{"secret", "mine", "theirs"} {
		if text, _ := os.ReadFile(path(name)); string(text) != "before\n" {
			t.Errorf("%s: %q", name, text)
		}
	}
}

func TestWhatAUserMayDo(t *testing.T) {
	t.Parallel()
	b := newLab(t)
	path := func(name string) string { return filepath.Join(b.work, name) }
	own := func(name string) {
		if err := os.Chown(path(name), otherUser, otherUser); err != nil {
			t.Fatal(err)
		}
	}
	os.Mkdir(path("roots"), 0o700)
	os.WriteFile(path("roots/tool"), []byte("#!/bin/sh\necho wrong one\n"), 0o755)
	os.Mkdir(path("shared"), 0o755)
	os.WriteFile(path("shared/tool"), []byte("#!/bin/sh\necho wrong one\n"), 0o700)
	os.Mkdir(path("home"), 0o700)
	own("home")
	os.WriteFile(path("home/tool"), []byte("echo right one in $PWD\n"), 0o700)
	own("home/tool")
	os.WriteFile(path("home/log"), []byte("before\n"), 0o600)
	own("home/log")
	o := b.ordered("1", "")
	o.Argv, o.Dir, o.Log = []string{"tool"}, path("home"), path("home/log")
	o.Env = []string{"PATH=" + path("roots") + ":" + path("shared") + ":" + path("home")}
	r := b.finish(o)
	text, _ := os.ReadFile(o.Log)
	if want := "before\nright one in " + path("home") + "\n"; r.ExitCode != 0 || string(text) != want || r.LogFrom != 7 {
		t.Errorf("got %+v, %q", r, text)
	}
	o = b.ordered("2", "echo nobody hears this")
	o.Log = "/dev/null"
	if r := b.finish(o); r.ExitCode != 0 || r.Launch != "" {
		t.Errorf("got %+v", r)
	}
	o = b.ordered("3", "echo deep")
	o.Log = path("home/a/b/c.log")
	b.finish(o)
	info, err := os.Stat(path("home/a"))
	if err != nil || info.Sys() == nil {
		t.Errorf("its directories: %v", err)
	}
}
