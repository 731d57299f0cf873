package batch

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"berth/internal/job/jobfile"
	"berth/internal/tests/testkit"
)

// poller looks at a file and says what it saw: the commands of a new version,
// "-" for no change, "!" and words of the complaint.
type poller struct {
	t     *testing.T
	w     *Source
	clock time.Time
}

// sourceAt is a jobs file that may have any lines.
func sourceAt(path string) *Source {
	return NewSource(&Options{File: path, HostOptions: HostOptions{Poll: time.Hour}}, func(jobfile.File) error { return nil })
}

func newPoller(t *testing.T, text string) *poller {
	p := &poller{t: t, w: sourceAt(filepath.Join(t.TempDir(), "jobs.txt")), clock: at0}
	p.save(text)
	if _, err := p.w.read(context.Background(), func(time.Duration) {}); err != nil {
		t.Fatal(err)
	}
	return p
}

// save writes the file at a time of its own, as two saves of a person have.
func (p *poller) save(text string) {
	testkit.Write(p.t, p.w.opt.File, text)
	p.touch()
}

func (p *poller) touch() {
	p.clock = p.clock.Add(time.Second)
	if err := os.Chtimes(p.w.opt.File, p.clock, p.clock); err != nil {
		p.t.Fatal(err)
	}
}

func (p *poller) look() string {
	file, changed, complaint := p.w.Look()
	switch {
	case complaint != "":
		return "! " + complaint
	case !changed:
		return "-"
	}
	return commands(file)
}

func commands(file jobfile.File) string {
	var list []string
	for _, line := range file.Lines {
		list = append(list, line.Command)
	}
	return strings.Join(list, " ")
}

// want is what the next polls see; "!" and a word is a complaint
// that has it.
func (p *poller) want(polls ...string) {
	p.t.Helper()
	for i, want := range polls {
		got := p.look()
		if complaint, word, _ := strings.Cut(want, " "); complaint == "!" {
			if !strings.HasPrefix(got, "! ") || !strings.Contains(got, word) {
				p.t.Errorf("poll %d: %q, want a complaint about %q", i+1, got, word)
			}
			continue
		}
		if got != want {
			p.t.Errorf("poll %d: %q, want %q", i+1, got, want)
		}
	}
}

func TestAWatchedFile(t *testing.T) {
	t.Parallel()
	// seeds: G26 G35
	const malformed = "a\n[vram=lots] b\n"
	tests := []struct {
		name  string
		first string
		play  func(*poller)
	}{
		{"does not change by being looked at", "a\n", func(p *poller) {
			p.want("-", "-")
		}},
		{"is read again when it changed, once", "a\n", func(p *poller) {
			p.save("a\nb\n")
			p.want("a b", "-")
		}},
		{"is not a new version when it was only touched", "a\n", func(p *poller) {
			p.touch()
			p.want("-")
			p.save("a\n")
			p.want("-")
		}},
		{"may lose all its lines", "a\n", func(p *poller) {
			p.save("# nothing today\n")
			p.want("", "-")
		}},
		{"has a last line that counts once it stayed so for a poll", "a\n", func(p *poller) {
			p.save("a\nb\nc")
			p.want("a b", "a b c", "-")
		}},
		{"has a last line that grows from poll to poll", "a\n", func(p *poller) {
			p.save("a\npyth")
			p.want("a")
			p.save("a\npython tra")
			p.want("a")
			p.save("a\npython train.py\n")
			p.want("a python train.py", "-")
		}},
		{"has a last line that counts though the file was touched", "a\n", func(p *poller) {
			p.save("a\nb")
			p.want("a")
			p.touch()
			p.want("a b", "-")
		}},
		{"is not malformed while its last line is in the making", "a\n", func(p *poller) {
			p.save("a\nb\n[vram=")
			p.want("a b")
			p.save("a\nb\n[vram=2G] c\n")
			p.want("a b c")
		}},
		{"is malformed when that line stays so", "a\n", func(p *poller) {
			p.save("a\nb\n[vram=")
			p.want("a b", "! .txt:3:", "-")
		}},
		{"never ends in a newline: the last line stays while others are edited", "a\nb", func(p *poller) {
			p.save("a2\nb")
			p.want("a2 b", "-")
			p.save("a2\nb\nc")
			p.want("a2 b", "a2 b c")
			p.save("c")
			p.want("c")
		}},
		{"is complained about once when it is malformed", "a\n", func(p *poller) {
			p.save(malformed)
			p.want("! .txt:2:", "-", "-")
			p.touch()
			p.want("-")
			p.save(malformed + "# a comment below\n")
			p.want("-") // the same fault
		}},
		{"is complained about again when it is malformed in another way", "a\n", func(p *poller) {
			p.save(malformed)
			p.want("! vram")
			p.save("a\n[colour=red] b\n")
			p.want("! colour")
		}},
		{"is taken up again when it is mended", "a\n", func(p *poller) {
			p.save(malformed)
			p.want("! .txt:2:")
			p.save("a\nb\n")
			p.want("a b")
			p.save(malformed)
			p.want("! .txt:2:") // news again
		}},
		{"may vanish and come back as it was", "a\n", func(p *poller) {
			elsewhere := p.w.opt.File + ".away"
			p.move(p.w.opt.File, elsewhere)
			p.want("! keeping the last good queue", "-")
			p.move(elsewhere, p.w.opt.File)
			p.want("-")
			p.move(p.w.opt.File, elsewhere)
			p.want("! keeping the last good queue")
		}},
		{"may vanish and come back as another", "a\n", func(p *poller) {
			p.move(p.w.opt.File, p.w.opt.File+".away")
			p.want("! no such file")
			p.save("b\n")
			p.want("b")
		}},
		{"may become a pipe, which is not waited for", "a\n", func(p *poller) {
			p.move(p.w.opt.File, p.w.opt.File+".away")
			mkfifo(p.t, p.w.opt.File)
			p.want("! found a pipe", "-")
			if err := os.Remove(p.w.opt.File); err != nil {
				p.t.Fatal(err)
			}
			p.save("b\n")
			p.want("b")
		}},
		{"may become a directory", "a\n", func(p *poller) {
			p.move(p.w.opt.File, p.w.opt.File+".away")
			if err := os.Mkdir(p.w.opt.File, 0o755); err != nil {
				p.t.Fatal(err)
			}
			p.want("! found a directory", "-")
		}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) { test.play(newPoller(t, test.first)) })
	}
}

func (p *poller) move(from, to string) {
	p.t.Helper()
	if err := os.Rename(from, to); err != nil {
		p.t.Fatal(err)
	}
}

func TestTheFirstReadWaitsForALineThatIsBeingWritten(t *testing.T) {
	t.Parallel()
	fresh := func(text string) *Source {
		w := sourceAt(filepath.Join(t.TempDir(), "jobs.txt"))
		testkit.Write(t, w.opt.File, text)
		now := time.Now()
		if err := os.Chtimes(w.opt.File, now, now); err != nil {
			t.Fatal(err)
		}
		return w
	}
	t.Run("it may be finished by then", func(t *testing.T) {
		w := fresh("a\n[vram=1")
		file, err := w.read(context.Background(), func(d time.Duration) {
			if d <= 0 || d > time.Hour {
				t.Errorf("it waits %s", d)
			}
			testkit.Write(t, w.opt.File, "a\n[vram=1G] b\n")
		})
		if err != nil || commands(file) != "a b" {
			t.Errorf("%q, %v", commands(file), err)
		}
	})
	t.Run("or be what it is", func(t *testing.T) {
		file, err := fresh("a\nb").read(context.Background(), func(time.Duration) {})
		if err != nil || commands(file) != "a b" {
			t.Errorf("%q, %v", commands(file), err)
		}
	})
	t.Run("a file that has been there for long is not waited for", func(t *testing.T) {
		w := fresh("a\nb")
		if err := os.Chtimes(w.opt.File, at0.AddDate(-1, 0, 0), at0.AddDate(-1, 0, 0)); err != nil {
			t.Fatal(err)
		}
		if _, err := w.read(context.Background(), func(time.Duration) { t.Error("it was") }); err != nil {
			t.Error(err)
		}
	})
	t.Run("an interrupt ends the wait, and all of it", func(t *testing.T) {
		ctx, cancel := context.WithCancelCause(context.Background())
		_, err := fresh("a\nb").read(ctx, func(time.Duration) { cancel(errInterrupted) })
		if !errors.Is(err, errInterrupted) {
			t.Errorf("it says %v", err)
		}
	})
	t.Run("a malformed file is an error", func(t *testing.T) {
		if _, err := fresh("[vram=] a\n").read(context.Background(), func(time.Duration) { t.Error("it waits") }); err == nil {
			t.Error("it is not")
		}
	})
	t.Run("as is one that is not there", func(t *testing.T) {
		w := sourceAt(filepath.Join(t.TempDir(), "none"))
		if _, err := w.read(context.Background(), nil); err == nil {
			t.Error("it is not")
		}
	})
}

func TestAFileThatIsTooLargeIsNotRead(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "huge")
	testkit.Write(t, path, "")
	if err := os.Truncate(path, maxFileBytes+1); err != nil {
		t.Fatal(err)
	}
	if _, _, err := readFile(path); err == nil || !strings.Contains(err.Error(), "at most") {
		t.Errorf("it says %v", err)
	}
}

func mkfifo(t *testing.T, path string) {
	t.Helper()
	if err := syscall.Mkfifo(path, 0o644); err != nil {
		t.Fatal(err)
	}
}

func TestAPipeIsReadOnce(t *testing.T) {
	t.Parallel()
	w := sourceAt(filepath.Join(t.TempDir(), "pipe"))
	mkfifo(t, w.opt.File)
	go func() {
		// It comes in two pieces, and without a last newline.
		file, err := os.OpenFile(w.opt.File, os.O_WRONLY, 0)
		if err != nil {
			return
		}
		defer file.Close()
		file.WriteString("a\nb")
		file.WriteString("c")
	}()
	file, err := w.read(context.Background(), func(time.Duration) { t.Error("it waits for a second version") })
	if err != nil || commands(file) != "a bc" {
		t.Fatalf("%q, %v", commands(file), err)
	}
	// Whoever writes to it now writes to nobody, and nothing hangs.
	if file, changed, complaint := w.Look(); changed || complaint != "" {
		t.Errorf("then %q, %q", commands(file), complaint)
	}
}

func TestAPipeThatNobodyWritesCanBeInterrupted(t *testing.T) {
	t.Parallel()
	w := sourceAt(filepath.Join(t.TempDir(), "pipe"))
	mkfifo(t, w.opt.File)
	ctx, cancel := context.WithCancelCause(context.Background())
	cancel(errInterrupted)
	if _, err := w.read(ctx, nil); !errors.Is(err, errInterrupted) {
		t.Errorf("it says %v", err)
	}
	// Let the one who still waits go.
	if file, err := os.OpenFile(w.opt.File, os.O_RDWR, 0); err == nil {
		file.Close()
	}
}

func TestWhatIsNeitherAFileNorAPipeIsRefused(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "socket")
	listener, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	w := sourceAt(path)
	if _, err := w.read(context.Background(), nil); err == nil || !strings.Contains(err.Error(), "expected a file or a pipe") {
		t.Errorf("it says %v", err)
	}
}
