package keep

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"pgregory.net/rapid"
)

// Whatever is appended in whatever pieces: the log never takes up more than it
// may after a look, and its beginning and its newest part are as written.
func TestACutLogKeepsItsBeginningAndItsEnd(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	rapid.Check(t, func(t *rapid.T) {
		path := filepath.Join(dir, "log")
		os.Remove(path)
		log, err := openLog(path)
		if err != nil {
			t.Fatal(err)
		}
		defer log.close()
		c := &logCap{log: log, max: int64(rapid.IntRange(16<<10, 512<<10).Draw(t, "max"))}
		var whole bytes.Buffer
		for range rapid.IntRange(1, 12).Draw(t, "pieces") {
			piece := bytes.Repeat([]byte{byte(rapid.IntRange('a', 'z').Draw(t, "letter"))}, rapid.IntRange(0, 300<<10).Draw(t, "size"))
			whole.Write(piece)
			if err := log.write(piece); err != nil {
				t.Fatal(err)
			}
			if _, err := c.look(0); err != nil {
				t.Fatal(err)
			}
			var stat syscall.Stat_t
			syscall.Fstat(log.fd, &stat)
			if stat.Blocks*512 > c.max+2*logAlign || stat.Size != int64(whole.Len()) {
				t.Fatalf("%d bytes taken up of %d, size %d", stat.Blocks*512, c.max, stat.Size)
			}
		}
		text, _ := os.ReadFile(path)
		head, tail := min(len(text), int(c.max/4)), max(0, len(text)-int(c.max/2))
		if !bytes.Equal(text[:head], whole.Bytes()[:head]) || !bytes.Equal(text[tail:], whole.Bytes()[tail:]) {
			t.Fatal("its beginning or its end was changed")
		}
		if kept := bytes.Count(text, []byte{0}); int64(kept) != c.dropped {
			t.Fatalf("%d bytes are gone, %d were counted", kept, c.dropped)
		}
	})
}

// A job may write its log through a descriptor of its own, make it sparse, and
// reserve room in it and behind it.
func TestALogTakesNoMoreRoomWhateverItsJobDoesToIt(t *testing.T) {
	t.Parallel()
	const most = 1 << 20
	for name, attack := range map[string]func(fd int) error{
		"reserve room behind its end": func(fd int) error { return syscall.Fallocate(fd, 1, 0, 16<<20) },
		"the same after making it long": func(fd int) error {
			return errors.Join(syscall.Ftruncate(fd, 64<<20), syscall.Fallocate(fd, 1, 64<<20, 16<<20))
		},
		"reserve room in it": func(fd int) error { return syscall.Fallocate(fd, 0, 0, 16<<20) },
		"write all over it":  func(fd int) error { _, err := syscall.Pwrite(fd, make([]byte, 16<<20), 0); return err },
		"write at its beginning after its end": func(fd int) error {
			_, err := syscall.Pwrite(fd, []byte("x"), 64<<20)
			_, again := syscall.Pwrite(fd, make([]byte, 16<<20), 0)
			return errors.Join(err, again)
		},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "log")
			log, err := openLog(path)
			if err != nil {
				t.Fatal(err)
			}
			defer log.close()
			own, err := os.OpenFile(path, os.O_RDWR, 0)
			if err != nil {
				t.Fatal(err)
			}
			defer own.Close()
			if err := attack(int(own.Fd())); errors.Is(err, syscall.EOPNOTSUPP) {
				t.Skip(err)
			} else if err != nil {
				t.Fatal(err)
			}
			c := &logCap{log: log, max: most}
			if _, err := c.look(0); err != nil {
				t.Fatal(err)
			}
			var stat syscall.Stat_t
			syscall.Fstat(log.fd, &stat)
			if stat.Blocks*statBlock > 2*most {
				t.Errorf("it takes %d bytes", stat.Blocks*statBlock)
			}
		})
	}
}

func TestALogThatCannotBeCutIsNoted(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "log")
	os.WriteFile(path, bytes.Repeat([]byte("x"), 1<<20), 0o644)
	fd, err := syscall.Open(path, syscall.O_RDONLY|syscall.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	log := &logFile{fd: fd, regular: true}
	defer log.close()
	c := newLogCap(log, 64<<10, 0)
	c.stop()
	if !strings.HasPrefix(c.note, "log size limit not enforced: ") || c.dropped != 0 {
		t.Errorf("note %q, dropped %d", c.note, c.dropped)
	}
}

// TestAGrowingLogIsCutWhileTheDiskIsNearlyFull: it says so, and keeps its beginning
// and its end; a log that does not grow is left alone.
func TestAGrowingLogIsCutWhileTheDiskIsNearlyFull(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := syscall.Mount("berth-test", dir, "tmpfs", 0, "size=8m"); err != nil {
		t.Skipf("a small disk: %v", err)
	}
	defer syscall.Unmount(dir, syscall.MNT_DETACH)
	open := func(name string) *logFile {
		log, err := openLog(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(log.close)
		return log
	}
	look := func(log *logFile, last int64) (c *logCap, usedBytes int64) {
		c = &logCap{log: log, free: 256 << 20}
		if _, err := c.look(last); err != nil {
			t.Fatal(err)
		}
		var stat syscall.Stat_t
		if err := syscall.Fstat(log.fd, &stat); err != nil {
			t.Fatal(err)
		}
		return c, stat.Blocks * statBlock
	}
	quiet, noisy := open("quiet"), open("noisy")
	if err := quiet.write(bytes.Repeat([]byte("q"), 1<<20)); err != nil {
		t.Fatal(err)
	}
	if err := noisy.write(append([]byte("first\n"), bytes.Repeat([]byte("n"), 1<<20)...)); err != nil {
		t.Fatal(err)
	}
	if _, used := look(noisy, 0); used < 1<<20 {
		t.Errorf("with room, it was cut to %d bytes", used)
	}
	for noisy.write(bytes.Repeat([]byte("n"), 1<<14)) == nil {
	}
	if _, used := look(quiet, 1<<20); used != 1<<20 {
		t.Errorf("the quiet log was cut to %d bytes", used)
	}
	c, used := look(noisy, 1<<20)
	if used > 4<<20 || c.dropped == 0 || !strings.Contains(c.note, "nearly full") {
		t.Errorf("the noisy log takes %d bytes; %d dropped, %q", used, c.dropped, c.note)
	}
	text, err := os.ReadFile(filepath.Join(dir, "noisy"))
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.HasPrefix(text, []byte("first\nnn")) || !bytes.HasSuffix(text, []byte("nn\nberth: the disk is nearly full; the middle of this log was dropped\n")) {
		t.Errorf("it begins with %q and ends with %q", text[:20], text[len(text)-80:])
	}
}
