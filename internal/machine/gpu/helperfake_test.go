package gpu

import (
	"bufio"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"berth/internal/tests/testkit"
)

// fakeHelper is a berth-gpu that this test binary plays: it speaks the real
// protocol, and fails in every way that one can.
type fakeHelper struct {
	t    *testing.T
	dir  string
	path string // of the program
	box  fakeBox
}

// fakeBox is what its driver shows and how it behaves, looked up at every
// request.
type fakeBox struct {
	Cards      []fakeCard
	NoNVML     string // hello is refused with this
	NoLib      bool   // because there is no library
	HangHello  bool
	Protocol   int    // other than ours
	Rubbish    string // written instead of a reply
	Flood      bool   // a line without end instead of a reply
	Extra      bool   // a second reply that nobody asked for
	WrongID    bool
	Mute       bool // closes its output instead of replying
	DieAt      string
	IgnoreTerm bool
	IgnoreEOF  bool
	Xids       []Xid
	Refuse     string // what samples are refused with
	Frozen     bool   // shows what was there when it started, as NVML does
	Words      string // said on standard error
	Limits     bool
	Slow       time.Duration // of a sample
	SlowCard   time.Duration // of each card in it
}

type fakeCard struct {
	UUID, BusID string
	Hang, Abort bool
	Lost        bool
	Unreadable  bool
	AbortHello  bool
	Parts       []string
	Links       map[int]int
}

func newFakeHelper(t *testing.T, cards ...fakeCard) *fakeHelper {
	t.Helper()
	f := &fakeHelper{t: t, dir: t.TempDir(), box: fakeBox{Cards: cards}}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	f.path = filepath.Join(f.dir, "berth-gpu")
	script := fmt.Sprintf("#!/bin/sh\nGPU_TEST_HELPER=berth-gpu FAKE_DIR=%s exec %s \"$@\"\n", f.dir, self)
	if err := os.WriteFile(f.path, []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	f.write()
	t.Cleanup(f.killAll)
	return f
}

// set changes the box.
func (f *fakeHelper) set(change func(*fakeBox)) {
	change(&f.box)
	f.write()
}

func (f *fakeHelper) write() {
	f.t.Helper()
	data, err := json.Marshal(f.box)
	if err != nil {
		f.t.Fatal(err)
	}
	name := filepath.Join(f.dir, "box")
	if err := os.WriteFile(name+".new", data, 0o644); err != nil {
		f.t.Fatal(err)
	}
	if err := os.Rename(name+".new", name); err != nil {
		f.t.Fatal(err)
	}
}

// starts are the processes that were started: a pid and arguments each.
func (f *fakeHelper) starts() []string {
	data, err := os.ReadFile(filepath.Join(f.dir, "starts"))
	if err != nil {
		return nil
	}
	return strings.Split(strings.TrimSpace(string(data)), "\n")
}

func (f *fakeHelper) pids() []int {
	var pids []int
	for _, start := range f.starts() {
		pid, err := strconv.Atoi(strings.Fields(start)[0])
		if err == nil && unix.Kill(pid, 0) == nil {
			pids = append(pids, pid)
		}
	}
	return pids
}

func (f *fakeHelper) killAll() {
	for _, pid := range f.pids() {
		_ = unix.Kill(pid, unix.SIGKILL) // it may just have ended
	}
}

// open is a Helper of this program. Its patience is a test's; pass a change to
// have less of it.
func (f *fakeHelper) open(less func(*helperTiming)) *helperSource {
	timing := helperTiming{
		start: 20 * time.Second, sample: 20 * time.Second, grace: 200 * time.Millisecond, idle: time.Minute,
		retry: 10 * time.Millisecond, retryMax: 100 * time.Millisecond,
		probe: time.Hour, probeMax: time.Hour,
	}
	if less != nil {
		less(&timing)
	}
	h := newHelper(f.path, slog.New(slog.DiscardHandler), timing)
	f.t.Cleanup(func() { f.close(h) })
	return h
}

func (f *fakeHelper) close(h *helperSource) {
	f.t.Helper()
	late := time.AfterFunc(testkit.Patience, func() { f.t.Error("closing waits for what hangs"); f.killAll() })
	if err := h.Close(); err != nil {
		f.t.Error(err)
	}
	late.Stop()
	f.killAll() // what was made to hang would be waited for
	testkit.Eventually(f.t, "the helpers to be gone", func() bool { return h.living() == 0 })
}

func (h *helperSource) living() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.alive)
}

// eight are as many cards, each on its own place.
func eight() []fakeCard {
	var cards []fakeCard
	for i := range 8 {
		cards = append(cards, fakeCard{UUID: fmt.Sprintf("GPU-%d", i), BusID: fmt.Sprintf("00000000:%02X:00.0", 0x10+i)})
	}
	return cards
}

// playHelper is the program itself.
func playHelper() {
	dir := os.Getenv("FAKE_DIR")
	starts, err := os.OpenFile(filepath.Join(dir, "starts"), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
	if err != nil {
		panic(err)
	}
	_, _ = fmt.Fprintln(starts, os.Getpid(), strings.Join(os.Args[1:], " "))
	only := -1
	if len(os.Args) == 4 && os.Args[2] == "-only" {
		only, _ = strconv.Atoi(os.Args[3])
	}
	lines := bufio.NewScanner(os.Stdin)
	box := readFakeBox(dir)
	if box.IgnoreTerm {
		signal.Ignore(syscall.SIGTERM)
	}
	for lines.Scan() {
		var req HelperRequest
		if err := json.Unmarshal(lines.Bytes(), &req); err != nil {
			panic(err)
		}
		was := box
		if box = readFakeBox(dir); box.Frozen {
			box = was
		}
		box.answer(req, only)
	}
	if box.IgnoreEOF {
		hangForEver()
	}
}

func readFakeBox(dir string) fakeBox {
	var box fakeBox
	data, err := os.ReadFile(filepath.Join(dir, "box"))
	if err == nil {
		err = json.Unmarshal(data, &box)
	}
	if err != nil {
		panic(err)
	}
	return box
}

func hangForEver() {
	for {
		<-time.After(time.Hour)
	}
}

func setPage(word uint32) {
	var bytes [4]byte
	binary.NativeEndian.PutUint32(bytes[:], word)
	if _, err := unix.Pwrite(3, bytes[:], 0); err != nil { // an os.File would close it when it is collected
		panic(err)
	}
}

func (b fakeBox) answer(req HelperRequest, only int) {
	if b.Words != "" {
		fmt.Fprintln(os.Stderr, b.Words)
	}
	if b.DieAt == req.Do {
		_ = unix.Kill(os.Getpid(), unix.SIGKILL)
	}
	reply := HelperReply{ID: req.ID}
	if b.WrongID {
		reply.ID += 7
	}
	switch req.Do {
	case HelperHello:
		if b.HangHello {
			setPage(0xffffffff)
			hangForEver()
		}
		for i, card := range b.Cards {
			if card.AbortHello && !slices.Contains(req.Skip, i) {
				setPage(uint32(i) + 1)
				_ = unix.Kill(os.Getpid(), unix.SIGABRT)
				hangForEver()
			}
		}
		reply.Hello = &HelperHi{Protocol: HelperProtocol, Facts: Facts{Driver: "600.1", MemoryLimits: b.Limits}}
		if b.Protocol != 0 {
			reply.Hello.Protocol = b.Protocol
		}
		if b.NoNVML != "" {
			reply.Hello, reply.Error, reply.NoLib = nil, b.NoNVML, b.NoLib
		}
	case HelperSample:
		<-time.After(b.Slow)
		reply.Sample, reply.Error = b.sample(req.Skip, only), b.Refuse
	case HelperLimit:
		b.sample(req.Skip, only) // it looks for the card
		if !b.Limits {
			reply.Error = "this driver does not support memory limits"
		}
	}
	switch {
	case req.Do == HelperHello:
	case b.Rubbish != "":
		fmt.Println(b.Rubbish)
		return
	case b.Flood:
		for {
			fmt.Print(strings.Repeat("x", 1<<16))
		}
	case b.Mute:
		_ = os.Stdout.Close()
		return
	case b.Extra:
		defer fmt.Println(`{"id":1}`)
	}
	line, err := json.Marshal(reply)
	if err != nil {
		panic(err)
	}
	fmt.Println(string(line))
	if b.NoNVML != "" {
		os.Exit(3)
	}
}

func (b fakeBox) sample(skip []int, only int) *Sample {
	s := &Sample{At: time.Now(), Xids: b.Xids}
	for i, card := range b.Cards {
		if slices.Contains(skip, i) || only >= 0 && i != only {
			continue
		}
		setPage(uint32(i) + 1)
		<-time.After(b.SlowCard)
		if card.Hang {
			hangForEver()
		}
		if card.Abort {
			_ = unix.Kill(os.Getpid(), unix.SIGABRT)
			hangForEver()
		}
		setPage(0)
		if card.Lost {
			s.Faults = append(s.Faults, Fault{Index: i, Kind: FaultLost, Text: "GPU is lost"})
			continue
		}
		if card.Unreadable {
			s.Faults = append(s.Faults, Fault{Index: i, UUID: card.UUID, Kind: FaultUnreadable, Text: "Unknown Error"})
			continue
		}
		d := Unknown(i, card.UUID, "Fake")
		d.BusID, d.TotalMiB, d.ProcessesKnown, d.Links = card.BusID, 1000, true, card.Links
		if len(card.Parts) == 0 {
			s.Devices = append(s.Devices, d)
		}
		for n, uuid := range card.Parts {
			part := d
			part.Index, part.UUID, part.Part = PartIndex(i, n), uuid, &Part{Of: i, Profile: "1g"}
			part.DriverIndex = part.Index
			s.Devices = append(s.Devices, part)
		}
	}
	return s
}
