package api

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"

	"berth/internal/tests/testkit"
)

func TestGaps(t *testing.T) {
	const mark = "[berth: 4 bytes were dropped here to keep the log within its limit]\n"
	for _, test := range []struct {
		name     string
		log      string
		from     int64
		query    LogQuery
		want     string
		atTheEnd int64
	}{
		{"behind a whole line nothing is added", "one\ntwo\nthree\n", 4, LogQuery{}, "one\n" + mark + "three\n", 14},
		{"within a line the mark has one of its own", "one\ntwo\nthree\n", 2, LogQuery{}, "on\n" + mark + "o\nthree\n", 14},
		{"at the beginning", "one\ntwo\n", 0, LogQuery{}, mark + "two\n", 8},
		{"at the end", "one\ntwo\n", 4, LogQuery{}, "one\n" + mark, 8},
		{"followed", "one\ntwo\nthree\n", 4, LogQuery{Follow: true}, "one\n" + mark + "three\n", 14},
		{"who begins within it is told of the rest", "one\ntwo\nthree\n", 4, LogQuery{Offset: 6}, strings.Replace(mark, "4", "2", 1) + "three\n", 14},
		{"who begins behind it is told nothing", "one\ntwo\nthree\n", 4, LogQuery{Offset: 8}, "three\n", 14},
	} {
		t.Run(test.name, func(t *testing.T) {
			f := newFake()
			f.log, f.logOver, f.logGap = []byte(test.log), true, LogGap{From: test.from, Next: test.from + 4}
			s := serve(t, f, Limits{})
			test.query.ID = "17"
			log, err := s.client.Log(background(t), test.query)
			testkit.Must(t, err)
			defer log.Close()
			log.OnRetry = func(err error) { t.Errorf("the connection was lost: %v", err) }
			text, err := io.ReadAll(log)
			if err != nil || string(text) != test.want || log.Offset() != test.atTheEnd {
				t.Errorf("got %q and stands at %d, %v", text, log.Offset(), err)
			}
			// Who does not count bytes has the same in one reply.
			_, v := writeURL("", &test.query)
			r, err := http.NewRequestWithContext(background(t), "GET", "http://berth/v1/jobs/17/log?"+v.Encode(), nil)
			testkit.Must(t, err)
			reply, err := unixHTTP(t, s.socket).Do(r)
			testkit.Must(t, err)
			defer reply.Body.Close()
			text, err = io.ReadAll(reply.Body)
			if err != nil || string(text) != test.want || reply.Trailer.Get(headerLogEnd) != logEndComplete {
				t.Errorf("in one reply: %q, %v, %v", text, err, reply.Trailer)
			}
		})
	}
}

// TestAGapGrowsWhileALogIsFollowed cuts a log again and again while it grows,
// is read, and its daemon comes and goes. Every byte that is read stands where
// the marks before it say, and none is missing that they do not tell of.
func TestAGapGrowsWhileALogIsFollowed(t *testing.T) {
	f := newFake()
	socket := filepath.Join(t.TempDir(), "berth.sock")
	s := serveAt(t, socket, f, Limits{})
	client := Dial(socket)
	defer client.Close()
	log, err := client.Log(background(t), LogQuery{ID: "17", Follow: true})
	testkit.Must(t, err)
	defer log.Close()
	var mu sync.Mutex
	var got bytes.Buffer
	var read sync.WaitGroup
	var readErr error
	read.Go(func() { _, readErr = io.Copy(writerFunc(func(p []byte) { mu.Lock(); got.Write(p); mu.Unlock() }), log) })

	random := rand.New(rand.NewPCG(3, 4))
	seen := func() int { mu.Lock(); defer mu.Unlock(); return got.Len() }
	for round := range 12 {
		before := seen()
		for range 5 {
			f.change(func() {
				for range 1 + random.IntN(100_000) {
					f.log = append(f.log, byte('a'+random.IntN(26))) // no line ends: each is a mark's
				}
				if end := int64(len(f.log)); end > 40_000 {
					f.logGap = LogGap{From: 20_000, Next: max(f.logGap.Next, end-int64(random.IntN(20_000)))}
				}
			})
		}
		testkit.Eventually(t, "some of the log arrives", func() bool { return seen() > before })
		if round%4 == 3 {
			s.kill()
			s = serveAt(t, socket, f, Limits{})
		}
	}
	f.change(func() { f.logOver = true })
	read.Wait()
	testkit.Must(t, readErr)
	testkit.Must(t, followsMarks(got.String(), f.log))
	if marks := strings.Count(got.String(), "[berth: "); marks < 2 {
		t.Errorf("only %d gaps were met", marks)
	}
}

var markLine = regexp.MustCompile(`^\[berth: ([0-9,]+) bytes were dropped here to keep the log within its limit]\n`)

// followsMarks holds what was read against a log without line ends.
func followsMarks(read string, log []byte) error {
	at := 0
	for len(read) > 0 {
		before := read
		read = strings.TrimPrefix(read, "\n")
		if found := markLine.FindStringSubmatch(read); found != nil {
			dropped, err := strconv.Atoi(strings.ReplaceAll(found[1], ",", ""))
			if err != nil {
				return err
			}
			at, read = at+dropped, read[len(found[0]):]
			continue
		}
		if at >= len(log) || before[0] != log[at] {
			return fmt.Errorf("byte %d is not what was written: %.40q", at, before)
		}
		at, read = at+1, before[1:]
	}
	if at != len(log) {
		return errors.New("it ends at byte " + strconv.Itoa(at) + " of " + strconv.Itoa(len(log)))
	}
	return nil
}
