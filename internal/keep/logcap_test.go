package keep

import (
	"bytes"
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
			if _, err := c.look(); err != nil {
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

func TestALogThatCannotBeCutIsNoted(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log")
	os.WriteFile(path, bytes.Repeat([]byte("x"), 1<<20), 0o644)
	fd, err := syscall.Open(path, syscall.O_RDONLY|syscall.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	log := &logFile{fd: fd, regular: true}
	defer log.close()
	c := newLogCap(log, 64<<10)
	c.stop()
	if !strings.HasPrefix(c.note, "log size limit not enforced: ") || c.dropped != 0 {
		t.Errorf("note %q, dropped %d", c.note, c.dropped)
	}
}
