package api

import (
	"context"
	"io"
	"net"
	"testing"
	"time"

	"berth/internal/tests/testkit"
	"berth/internal/text/problem"
)

// terminal waits for the job's end of an attached terminal.
func (f *fake) terminal(t *testing.T) net.Conn {
	t.Helper()
	testkit.Must(t, f.await(background(t), func() bool { return f.attached != nil }))
	f.attached.SetDeadline(time.Now().Add(testkit.Patience))
	return f.attached
}

func TestAnAttachedTerminalCarriesBothWays(t *testing.T) {
	f := newFake()
	s := serve(t, f, Limits{})
	both, err := s.client.Attach(background(t), "17")
	testkit.Must(t, err)
	defer both.Close()
	end := f.terminal(t)
	for _, text := range []string{"hello\x00\xff\r\n", "again"} {
		_, err = io.WriteString(both, text)
		testkit.Must(t, err)
		exact(t, end, text)
		_, err = io.WriteString(end, text)
		testkit.Must(t, err)
		exact(t, both, text)
	}
	if s.Active() != 1 {
		t.Errorf("%d are in flight", s.Active())
	}
	end.Close()
	if rest, err := io.ReadAll(both); err != nil || len(rest) != 0 {
		t.Errorf("after the job's end: %q, %v", rest, err)
	}
	testkit.Eventually(t, "the stream is given back", func() bool { return s.Active() == 0 })
}

func exact(t *testing.T, from io.Reader, want string) {
	t.Helper()
	got := make([]byte, len(want))
	if _, err := io.ReadFull(from, got); err != nil || string(got) != want {
		t.Errorf("got %q, %v, want %q", got, err, want)
	}
}

func TestWhoeverDetachesLetsGo(t *testing.T) {
	f := newFake()
	s := serve(t, f, Limits{})
	ctx, cancel := context.WithCancel(background(t))
	for _, detach := range []func(io.Closer){
		func(c io.Closer) { c.Close() },
		func(io.Closer) { cancel() },
	} {
		f.change(func() { f.attached = nil })
		both, err := s.client.Attach(ctx, "17")
		testkit.Must(t, err)
		end := f.terminal(t)
		detach(both)
		if _, err := io.ReadAll(end); err != nil {
			t.Error(err)
		}
		testkit.Eventually(t, "the stream is given back", func() bool { return s.Active() == 0 })
		both.Close()
	}
}

func TestAnAttachIsRefusedAsAProblem(t *testing.T) {
	s := serve(t, newFake(), Limits{})
	_, err := s.client.Attach(background(t), "99")
	wantProblem(t, err, problem.NotFound, "there is no job 99")
}

func TestShutdownEndsAttachedTerminals(t *testing.T) {
	f := newFake()
	s := serve(t, f, Limits{})
	both, err := s.client.Attach(background(t), "17")
	testkit.Must(t, err)
	defer both.Close()
	end := f.terminal(t)
	s.end(t)
	if _, err := io.ReadAll(end); err != nil {
		t.Error(err)
	}
	if _, err := io.ReadAll(both); err != nil {
		t.Error(err)
	}
}
