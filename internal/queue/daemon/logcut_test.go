package daemon

import (
	"context"
	"fmt"
	"io"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"berth/internal/api"
	"berth/internal/job"
	"berth/internal/queue/config"
	"berth/internal/tests/testkit"
)

var dropMark = regexp.MustCompile(`\[berth: ([0-9,]+) bytes were dropped here to keep the log within its limit]\n`)

func droppedMark(bytes int) string {
	digits := strconv.Itoa(bytes)
	for at := len(digits) - 3; at > 0; at -= 3 {
		digits = digits[:at] + "," + digits[at:]
	}
	return "[berth: " + digits + " bytes were dropped here to keep the log within its limit]\n"
}

// openLog is a job's log, to do with as its supervisor would.
func (l *lab) openLog(id string) *os.File {
	l.t.Helper()
	file, err := os.OpenFile(value(l.job(id).Log), os.O_RDWR, 0)
	if err != nil {
		l.t.Fatal(err)
	}
	l.t.Cleanup(func() { file.Close() })
	return file
}

// punch takes a part out of a file.
func punch(t *testing.T, file *os.File, from, to int64) {
	t.Helper()
	if err := unix.Fallocate(int(file.Fd()), unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, from, to-from); err != nil {
		t.Skipf("this file system makes no holes: %v", err)
	}
}

func TestWhatWasTakenOutOfALogIsMarked(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	id := l.one(sh("true", "gpus", "0"))
	l.finished(id)
	const block = 1 << 16
	head, tail := strings.Repeat("header\n", block/7)+"x\n", strings.Repeat("tail\n", 100)
	file := l.openLog(id)
	if _, err := file.WriteString(head + strings.Repeat("x", 15*block) + tail); err != nil {
		t.Fatal(err)
	}
	punch(t, file, block, 16*block)
	check := func(rows map[api.LogQuery]string) {
		for q, want := range rows {
			if got, err := l.read(q); err != nil || got != want {
				t.Errorf("%+v: %d bytes ending in %.80q, %v; want %d", q, len(got), got[max(0, len(got)-80):], err, len(want))
			}
		}
	}
	check(map[api.LogQuery]string{
		{ID: id}:                    head + droppedMark(15*block) + tail,
		{ID: id, Follow: true}:      head + droppedMark(15*block) + tail,
		{ID: id, Lines: 2}:          "tail\ntail\n",
		{ID: id, Lines: 100}:        droppedMark(15*block) + tail,
		{ID: id, Lines: 101}:        "x\n" + droppedMark(15*block) + tail,
		{ID: id, Offset: 2 * block}: droppedMark(14*block) + tail,
		{ID: id, Offset: block - 5}: head[block-5:] + droppedMark(15*block) + tail,
	})
	// Where only a hole is left at the end, and it begins within a line.
	punch(t, file, block-4096, 17*block)
	check(map[api.LogQuery]string{
		{ID: id}:           head[:block-4096] + "\n" + droppedMark(4096+15*block+len(tail)),
		{ID: id, Lines: 1}: "h\n" + droppedMark(4096+15*block+len(tail)),
	})
}

// TestALogIsCutWhileItIsRead: whatever is cut away under a reader, it reads no
// byte that the job did not write, and knows where the others stood.
func TestALogIsCutWhileItIsRead(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	line, open := l.gate("gate")
	id := l.one(sh(line, "gpus", "0"))
	l.untilState(id, job.Running)
	l.until("there is a log", func() bool { _, err := os.Stat(value(l.job(id).Log)); return err == nil })
	file := l.openLog(id)
	const readers = 3
	results := make(chan string, readers)
	for range readers {
		go func() {
			text, err := l.read(api.LogQuery{ID: id, Follow: true})
			if err != nil {
				text = err.Error()
			}
			results <- text
		}()
	}
	l.until("all listen", func() bool { return l.d.svc.hub.count() == readers })
	// Each line says where it stands, so a byte that is elsewhere is seen.
	const width, block = 16, 4096
	end := int64(0)
	for range 400 {
		var part strings.Builder
		for range 1024 {
			fmt.Fprintf(&part, "%0*d\n", width-1, end+int64(part.Len()))
		}
		if _, err := file.WriteString(part.String()); err != nil {
			t.Fatal(err)
		}
		end += int64(part.Len())
		if end > 32*block {
			punch(t, file, 4*block, end-block)
		}
	}
	open()
	for range readers {
		wantPlaces(t, <-results, end, width)
	}
	l.finished(id)
}

// wantPlaces checks that every line stands where it says, and every mark leads
// to the next.
func wantPlaces(t *testing.T, text string, end int64, width int) {
	t.Helper()
	at := int64(0)
	for rest := text; rest != ""; {
		if found := dropMark.FindStringSubmatchIndex(rest); found != nil && found[0] == 0 {
			dropped, _ := strconv.ParseInt(strings.ReplaceAll(rest[found[2]:found[3]], ",", ""), 10, 64)
			at, rest = at+dropped, rest[found[1]:]
			continue
		}
		line, after, _ := strings.Cut(rest, "\n")
		if place, err := strconv.ParseInt(line, 10, 64); err != nil || place != at || len(line) != width-1 {
			t.Errorf("at byte %d of %d stands %.60q", at, end, line)
			return
		}
		at, rest = at+int64(width), after
	}
	if at != end {
		t.Errorf("it ends at byte %d of %d", at, end)
	}
}

// TestACutLogIsToldOf: with a limit on logs, from the job to the caller.
func TestACutLogIsToldOf(t *testing.T) {
	t.Parallel()
	l := newLab(t, with(func(c *config.Config) { c.MaxLog = 1 << 20 }))
	id := l.one(sh("seq 400000; printf end", "gpus", "0"))
	got := l.finished(id)
	marks := dropMark.FindAllStringSubmatch(got, -1)
	dropped := l.job(id).LogDropped
	if dropped == 0 {
		t.Skip("this file system makes no holes")
	}
	if len(marks) != 1 || marks[0][0] != droppedMark(int(dropped)) {
		t.Fatalf("%d bytes were dropped, and the log says %q", dropped, marks)
	}
	if !strings.HasPrefix(got, "1\n2\n") || !strings.HasSuffix(got, "\n400000\nend") {
		t.Errorf("it begins %.20q and ends %q", got, got[len(got)-20:])
	}
	for _, line := range strings.Split(dropMark.ReplaceAllString(got, ""), "\n") {
		if n, _ := strconv.Atoi(line); n > 400000 {
			t.Errorf("the job never printed the line %q", line)
		}
	}
	if whole := l.one(sh("echo x", "gpus", "0")); l.finished(whole) != "x\n" || l.job(whole).LogDropped != 0 {
		t.Errorf("a small log was cut: %+v", l.job(whole))
	}
	ctx, cancel := context.WithTimeout(l.ctx, testkit.Patience)
	defer cancel()
	r, err := l.Client.Log(ctx, api.LogQuery{ID: id})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if _, err := io.Copy(io.Discard, r); err != nil || r.Offset() != int64(len(got)-len(marks[0][0])-1)+dropped {
		t.Errorf("the reader stands at %d, %v", r.Offset(), err)
	}
}
