package keep

import (
	"bytes"
	"errors"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

func TestAFrameReadsBackAsItWasSent(t *testing.T) {
	text := rapid.StringOfN(rapid.Rune(), 0, 40, -1)
	rapid.Check(t, func(t *rapid.T) {
		want := Frame{Kind: FrameKind(rapid.Byte().Draw(t, "kind"))}
		for range rapid.IntRange(0, 8).Draw(t, "fields") {
			want.Fields = append(want.Fields, Field{text.Draw(t, "key"), text.Draw(t, "value")})
		}
		sent, err := want.Encode()
		if err != nil {
			t.Fatal(err)
		}
		got, err := ReadFrame(bytes.NewReader(sent))
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Fatal(diff)
		}
		// Cut anywhere, it is no frame: half an order runs nothing.
		at := rapid.IntRange(0, len(sent)-1).Draw(t, "cut")
		if _, err := ReadFrame(bytes.NewReader(sent[:at])); err == nil {
			t.Fatalf("a frame cut at %d of %d was read", at, len(sent))
		}
	})
}

func TestFramesThatAreRefused(t *testing.T) {
	huge := Frame{Kind: FrameGo, Fields: []Field{{"env", strings.Repeat("x", MaxFrame)}}}
	if _, err := huge.Encode(); !errors.Is(err, ErrFrame) {
		t.Errorf("a frame above the bound: %v", err)
	}
	rows := []struct {
		name  string
		bytes string
		want  error
	}{
		{"nothing more", "", io.EOF},
		{"half a header", "\x01g", io.ErrUnexpectedEOF},
		{"another version", "\x02g\x00\x00\x00\x00", ErrFrame},
		{"a length above the bound", "\x01g\xff\xff\xff\xff", ErrFrame},
		{"a length without its bytes", "\x01g\x00\x00\x00\x04", io.ErrUnexpectedEOF},
		{"a key longer than the frame", "\x01g\x00\x00\x00\x04\x00\x00\x00\x01", ErrFrame},
		{"a key without a value", "\x01g\x00\x00\x00\x05\x00\x00\x00\x01k", ErrFrame},
	}
	for _, row := range rows {
		if _, err := ReadFrame(strings.NewReader(row.bytes)); !errors.Is(err, row.want) {
			t.Errorf("%s: got %v, want %v", row.name, err, row.want)
		}
	}
}

func TestAnOrderArrivesAsItWasGiven(t *testing.T) {
	want := Order{
		Job: "17_2", Attempt: 3, Argv: []string{"python", "", "a b"}, Env: []string{"A=1", "B="}, Dir: "/d", Log: "/l",
		Setup: true, CgroupParent: "/c", Limit: time.Hour, Grace: 1500 * time.Millisecond, WarnBefore: time.Minute, WarnSignal: 10,
	}
	f := want.Frame()
	f.Fields = append(f.Fields, Field{"from_a_later_version", "yes"})
	got, err := orderOf(f)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestOrdersThatAreRefused(t *testing.T) {
	good := Order{Job: "7", Argv: []string{"true"}}
	if err := good.Check(); err != nil {
		t.Fatal(err)
	}
	for name, spoil := range map[string]func(*Order){
		"no command":        func(o *Order) { o.Argv = nil },
		"no id":             func(o *Order) { o.Job = "" },
		"an id that climbs": func(o *Order) { o.Job = "../7" },
		"an endless id":     func(o *Order) { o.Job = strings.Repeat("7", 101) },
		"no such signal":    func(o *Order) { o.WarnSignal = 65 },
	} {
		o := good
		spoil(&o)
		if _, err := orderOf(o.Frame()); err == nil {
			t.Errorf("%s was accepted", name)
		}
	}
	if _, err := orderOf(Frame{FrameGo, []Field{{"job", "7"}, {"arg", "x"}, {"limit_ns", "soon"}}}); err == nil {
		t.Error("a limit that is no number was accepted")
	}
}

func FuzzFrame(f *testing.F) {
	seed, _ := Order{Job: "1", Argv: []string{"a"}, Env: []string{"A=B"}}.Frame().Encode()
	f.Add(seed)
	f.Add([]byte("\x01g\x00\x00\x00\x04\x00\x00\x00\x01"))
	f.Fuzz(func(t *testing.T, sent []byte) {
		frame, err := ReadFrame(bytes.NewReader(sent))
		if err != nil {
			return
		}
		again, err := frame.Encode()
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.HasPrefix(sent, again) {
			t.Fatalf("%q was read as %q", sent, again)
		}
		if o, err := orderOf(frame); err == nil && len(o.Argv) == 0 {
			t.Fatal("an order without a command")
		}
	})
}
