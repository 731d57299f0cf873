package batch

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"berth/internal/job"
)

// terminal plays what is written to it, so that a test sees what a person
// would. It knows the few sequences the live view uses.
type terminal struct {
	lines  []string
	rows   int // 0: more than enough
	broken error
}

var moveUp = regexp.MustCompile(`^\x1b\[(\d+)A\r\x1b\[J`)

func (tm *terminal) Write(p []byte) (int, error) {
	if tm.broken != nil {
		return 0, tm.broken
	}
	text := string(p)
	if up := moveUp.FindStringSubmatch(text); up != nil {
		var n int
		fmt.Sscan(up[1], &n)
		if tm.rows > 0 {
			n = min(n, tm.rows-1) // what has scrolled away cannot be reached
		}
		tm.lines = tm.lines[:len(tm.lines)-n]
		text = text[len(up[0]):]
	}
	for line := range strings.Lines(text) {
		tm.lines = append(tm.lines, strings.TrimSuffix(line, "\n"))
	}
	return len(p), nil
}

func TestTheLiveBlockStaysBelowTheLines(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		tm := &terminal{}
		s := &screen{out: tm, live: true, width: func() int { return 60 }, height: func() int { return 24 }}
		s.print("first")
		snap := snapshot{total: 4, tally: tally{ok: 1, queued: 3}, paused: "berth is stopping"}
		s.show(&snap)
		s.print("second", "third")
		s.flush()
		want := []string{"first", "second", "third", "no job can start: berth is stopping", "█████░░░░░░░░░░░░░░░ 1/4 done · 0 running · 3 queued"}
		if got := strings.Join(tm.lines, "\n"); got != strings.Join(want, "\n") {
			t.Errorf("on the screen:\n%s", got)
		}
		snap2 := snapshot{total: 4, tally: tally{ok: 2, queued: 2}}
		s.show(&snap2)
		s.flush()
		if n := len(tm.lines); n != 4 {
			t.Errorf("after a smaller block: %q", tm.lines)
		}
		s.finish("summary")
		if got := strings.Join(tm.lines, " "); got != "first second third summary" {
			t.Errorf("what stays: %s", got)
		}
	})
}

func TestTheLiveBlockLeavesNothingBehindOnASmallTerminal(t *testing.T) {
	t.Parallel()
	for _, rows := range []int{1, 2, 3, 5, 10} {
		tm := &terminal{rows: rows}
		s := &screen{out: tm, live: true, width: func() int { return 60 }, height: func() int { return rows }}
		snap := busy()
		for len(snap.running) < 40 {
			snap.running = append(snap.running, snap.running[0])
		}
		s.print("first")
		for range 3 {
			s.show(&snap)
			s.flush()
		}
		s.print("second")
		s.finish()
		if got := strings.Join(tm.lines, " "); got != "first second" {
			t.Errorf("on %d rows there stays: %s", rows, got)
		}
	}
}

func TestWithoutATerminalThereIsNoBlock(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	s := &screen{out: &out}
	snap := busy()
	s.show(&snap)
	s.print("a line")
	s.finish()
	if out.String() != "a line\n" {
		t.Errorf("%q", out.String())
	}
}

func TestATerminalThatIsGoneIsLeftAlone(t *testing.T) {
	t.Parallel()
	tm := &terminal{broken: errors.New("input/output error")}
	s := &screen{out: tm}
	s.print("into the void")
	s.flush()
	tm.broken = nil
	s.print("nobody is there")
	s.finish("nor at the end")
	if len(tm.lines) != 0 {
		t.Errorf("%q", tm.lines)
	}
}

// numbered is a line that can be told from all others, of a given length.
func numbered(n, length int) string {
	line := fmt.Sprintf("line %d ", n)
	return line + strings.Repeat("x", max(0, length-len(line)))
}

// listen reads lines until the end, with a pause after each so many bytes.
func listen(from io.Reader, piece int, pause time.Duration) (lines []string) {
	slow := bufio.NewReaderSize(&slowReader{from, piece, pause}, 4096)
	for {
		line, err := slow.ReadString('\n')
		if err != nil {
			return lines
		}
		lines = append(lines, strings.TrimSuffix(line, "\n"))
	}
}

type slowReader struct {
	from  io.Reader
	piece int
	pause time.Duration
}

func (r *slowReader) Read(p []byte) (int, error) {
	<-time.After(r.pause) // in the time of the bubble it runs in
	return r.from.Read(p[:min(len(p), r.piece)])
}

func TestASlowReaderMissesNothing(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		from, to := io.Pipe()
		s := &screen{out: to, patience: linePatience}
		heard := make(chan []string)
		go func() { heard <- listen(from, 512, time.Millisecond) }()
		const total = 5000 // more lines and bytes than may wait
		for n := range total {
			s.print(numbered(n, 300))
		}
		s.finish("summary")
		to.Close()
		lines := <-heard
		if len(lines) != total+1 || lines[total] != "summary" {
			t.Fatalf("%d lines, the last %q", len(lines), lines[len(lines)-1])
		}
		for n, line := range lines[:total] {
			if line != numbered(n, 300) {
				t.Fatalf("line %d is %.20q", n, line)
			}
		}
	})
}

func TestAStalledReaderStopsNothingAndIsToldWhatItMissed(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name   string
		length int
		notice func(int) string
		says   string // in the line that replaces the missing ones
	}{
		{"of many lines", 20, nil, "… %d lines not shown"},
		{"of long lines", 5000, nil, "… %d lines not shown"},
		{"of events", 20, missedEvents, `"event":"warning","text":"%d lines not shown because the output was not read`},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				from, to := io.Pipe()
				s := &screen{out: to, patience: linePatience, notice: test.notice}
				const total = 10000
				began := time.Now()
				for n := range total {
					s.print(numbered(n, test.length))
				}
				if waited := time.Since(began); waited > 2*linePatience {
					t.Errorf("it waited %s for the reader", waited)
				}
				heard := make(chan []string)
				go func() { heard <- listen(from, 4096, 0) }()
				s.flush()
				s.print("after")
				s.finish("summary")
				to.Close()
				lines := <-heard
				shown := len(lines) - 3
				for n, line := range lines[:shown] {
					if line != numbered(n, test.length) {
						t.Fatalf("line %d is %.20q", n, line)
					}
				}
				if want := fmt.Sprintf(test.says, total-shown); shown < 100 || !strings.Contains(lines[shown], want) {
					t.Errorf("%d are shown, then it says %q, want %q", shown, lines[shown], want)
				}
				if lines[shown+1] != "after" || lines[shown+2] != "summary" {
					t.Errorf("then %q", lines[shown+1:])
				}
				var r record
				if test.notice != nil && (json.Unmarshal([]byte(lines[shown]), &r) != nil || r.Event != job.EventWarning) {
					t.Errorf("%q is not an event", lines[shown])
				}
			})
		})
	}
}

func TestTheEndComesAfterWhatIsMissingEvenWhenThereIsNoRoom(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		from, to := io.Pipe()
		s := &screen{out: to}
		for n := range 2 * maxWaitingLines {
			s.print(numbered(n, 0))
		}
		heard := make(chan []string)
		go func() { heard <- listen(from, 4096, time.Millisecond) }()
		s.finish("summary")
		to.Close()
		lines := <-heard
		if end := lines[len(lines)-2:]; !strings.HasSuffix(end[0], "not shown") || end[1] != "summary" {
			t.Errorf("it ends in %q", end)
		}
	})
}

func TestTheEndDoesNotWaitForAReaderThatStalled(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name  string
		pause time.Duration // between two reads; 0: it never reads
		most  time.Duration
	}{
		{"and never reads", 0, flushPatience},
		{"and reads far too slowly", 300 * time.Millisecond, flushLimit},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				from, to := io.Pipe()
				s := &screen{out: to}
				for n := range 1000 {
					s.print(numbered(n, 1000))
				}
				over := make(chan struct{})
				go func() {
					defer close(over)
					if test.pause > 0 {
						listen(from, 4096, test.pause)
					}
				}()
				began := time.Now()
				s.finish("summary")
				if waited := time.Since(began); waited != test.most {
					t.Errorf("it waited %s, want %s", waited, test.most)
				}
				began = time.Now()
				s.finish()
				s.print("too late")
				if waited := time.Since(began); waited > 0 {
					t.Errorf("then it waited another %s", waited)
				}
				from.Close() // so that both can leave
				<-over
			})
		})
	}
}
