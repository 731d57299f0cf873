package keep

import (
	"bytes"
	"errors"
	"io"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

func TestAFrameReadsBackAsItWasSent(t *testing.T) {
	t.Parallel()
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
		// Truncated anywhere, it is not a frame: half an order runs nothing.
		at := rapid.IntRange(0, len(sent)-1).Draw(t, "cut")
		if _, err := ReadFrame(bytes.NewReader(sent[:at])); err == nil {
			t.Fatalf("a frame cut at %d of %d was read", at, len(sent))
		}
	})
}

func TestFramesThatAreRefused(t *testing.T) {
	t.Parallel()
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
	t.Parallel()
	want := Order{
		Job: "17_2", Attempt: 3, Argv: []string{"python", "", "a b"}, Env: []string{"A=1", "B="}, Dir: "/d", Log: "/l",
		Setup: true, CgroupParent: "/c", Limit: time.Hour, Grace: 1500 * time.Millisecond, WarnBefore: time.Minute, WarnSignal: 10,
	}
	careful := want
	careful.Pty, careful.LogMaxBytes, careful.CPUs, careful.MemMiB = true, 1<<30, 8, 65536
	careful.MemoryParent, careful.CPUParent = "/m", "/c"
	careful.Credential = &Credential{
		UID: 1000, GID: 100, Groups: []int{100, 27, 4294967294}, Umask: -1, Home: "/home/x",
		Rlimits: []Rlimit{{7, 1024, Infinity}, {0, 0, 0}},
	}
	root := want
	root.Credential = &Credential{}
	pinned, capped := want, want
	pinned.Affinity = "0-7,16"
	capped.MPS = &MPS{Control: "/usr/bin/nvidia-cuda-mps-control", Dir: "/run/berth/mps/t.1", Cards: []string{"GPU-a", "MIG-b"}, LimitMiB: 4096, Threads: 50}
	for kind, want := range map[FrameKind][]Order{FrameGo: {want}, FrameGoCarefully: {careful, root, pinned, capped}} {
		for _, want := range want {
			f := want.Frame()
			if f.Kind != kind {
				t.Errorf("a frame of kind %c, not %c", f.Kind, kind)
			}
			f.Fields = append(f.Fields, Field{"from_a_later_version", "yes"})
			got, err := orderOf(f)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Error(diff)
			}
		}
	}
}

// A field that visit forgets would be lost on the way to the supervisor.
func TestEveryFieldOfAnOrderIsSent(t *testing.T) {
	t.Parallel()
	for i := range reflect.TypeFor[Order]().NumField() {
		var sent, got Order
		field, name := reflect.ValueOf(&sent).Elem().Field(i), reflect.TypeFor[Order]().Field(i).Name
		switch field.Kind() {
		case reflect.String:
			field.SetString("x")
		case reflect.Bool:
			field.SetBool(true)
		case reflect.Slice:
			field.Set(reflect.MakeSlice(field.Type(), 1, 1))
		case reflect.Pointer:
			field.Set(reflect.New(field.Type().Elem()))
			if first := field.Elem().Field(0); first.Kind() == reflect.String {
				first.SetString("x") // an MPS server without its program is none
			}
		default:
			field.SetInt(7)
		}
		var out codec
		sent.visit(&out)
		got.visit(&codec{fields: out.fields, reading: true})
		if notSent := name == "Devices" || name == "Copy"; reflect.DeepEqual(sent, got) == notSent {
			t.Errorf("%s: sent %+v, arrived %+v", name, sent, got)
		}
	}
}

// Whatever an earlier supervisor would leave out makes the order one that it
// does not know.
func TestWhatMakesAnOrderCareful(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*Order){
		"a credential": func(o *Order) { o.Credential = &Credential{UID: 1} },
		"a terminal":   func(o *Order) { o.Pty = true },
		"a log's size": func(o *Order) { o.LogMaxBytes = 1 },
		"CPUs":         func(o *Order) { o.CPUs = 1 },
		"memory":       func(o *Order) { o.MemMiB = 1 },
		"its own CPUs": func(o *Order) { o.Affinity = "0" },
		"MPS":          func(o *Order) { o.MPS = &MPS{} },
	} {
		o := Order{Job: "1", Argv: []string{"true"}}
		change(&o)
		if o.Frame().Kind != FrameGoCarefully {
			t.Errorf("%s does not", name)
		}
	}
}

func TestOrdersThatAreRefused(t *testing.T) {
	t.Parallel()
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
	good.Dir, good.Log, good.Credential = "/d", "/l", &Credential{UID: 1, GID: 1}
	if err := good.Check(); err != nil {
		t.Fatal(err)
	}
	for name, spoil := range map[string]func(*Order){
		"nobody":              func(o *Order) { o.Credential.UID = -1 },
		"no group":            func(o *Order) { o.Credential.GID = 1<<32 - 1 },
		"a group that is -1":  func(o *Order) { o.Credential.Groups = []int{5, -1} },
		"endless groups":      func(o *Order) { o.Credential.Groups = make([]int, 65537) },
		"no umask":            func(o *Order) { o.Credential.Umask = 0o1000 },
		"no resource":         func(o *Order) { o.Credential.Rlimits = []Rlimit{{16, 0, 0}} },
		"soft above hard":     func(o *Order) { o.Credential.Rlimits = []Rlimit{{7, 2, 1}} },
		"half a directory":    func(o *Order) { o.Dir = "d" },
		"half a log":          func(o *Order) { o.Log = "l" },
		"less than no memory": func(o *Order) { o.MemMiB = -1 },
		"endless memory":      func(o *Order) { o.MemMiB = 1 << 62 },
		"less than no CPU":    func(o *Order) { o.CPUs = -1 },
		"a log below nothing": func(o *Order) { o.LogMaxBytes = -1 },
	} {
		o := good
		credential := *good.Credential
		o.Credential = &credential
		spoil(&o)
		if _, err := orderOf(o.Frame()); err == nil {
			t.Errorf("%s was accepted", name)
		}
	}
	for _, field := range []Field{{"limit_ns", "soon"}, {"uid", "root"}, {"gid", "5"}, {"uid", "5"}} {
		if _, err := orderOf(Frame{FrameGo, []Field{{"job", "7"}, {"arg", "x"}, {"dir", "/"}, {"log", "/l"}, field}}); err == nil {
			t.Errorf("%v was accepted", field)
		}
	}
}

func FuzzFrame(f *testing.F) {
	seed, _ := Order{Job: "1", Argv: []string{"a"}, Env: []string{"A=B"}}.Frame().Encode()
	f.Add(seed)
	seed, _ = Order{Job: "1", Argv: []string{"a"}, Dir: "/", Log: "/l", Pty: true, Credential: &Credential{UID: 1, GID: 2, Groups: []int{3}, Rlimits: []Rlimit{{1, 2, 3}}}}.Frame().Encode()
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
		o, err := orderOf(frame)
		if err != nil {
			return
		}
		if len(o.Argv) == 0 {
			t.Fatal("an order without a command")
		}
		if !o.Careful() {
			o.MemoryParent, o.CPUParent = "", "" // of no use without a limit
		}
		// What a supervisor hands on to a stage is what it was given.
		twice, err := orderOf(o.Frame())
		if diff := cmp.Diff(o, twice); diff != "" || err != nil {
			t.Fatalf("%v %s", err, diff)
		}
	})
}
