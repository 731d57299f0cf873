package fakenvml

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

// Box is the cards of a simulation. Cards are identified by their
// position in New, whatever the driver's number is now. Every program with the
// library sees changes at its next call.
type Box struct {
	t     testing.TB
	dir   string // of the library
	state string // the file it reads

	mu         sync.Mutex
	cards      []Card
	driver     string
	slowMS     int
	initResult int
	initHangs  int
	eventsHang int
	claims     string
	xids       []string
	xidSerial  int
	changes    int
}

// New is a box of 1 to 16 cards.
func New(t testing.TB, cards ...Card) *Box {
	t.Helper()
	if len(cards) > 16 {
		t.Fatalf("expected 1 to 16 cards, found %d", len(cards))
	}
	b := &Box{t: t, dir: Build(t), state: filepath.Join(t.TempDir(), "nvml"), cards: append([]Card(nil), cards...), driver: "580.159.04"}
	// Programs of other users may use the box, too.
	if err := os.Chmod(filepath.Dir(b.state), 0o755); err != nil {
		t.Fatal(err)
	}
	b.change(func() {})
	return b
}

// Miss removes symbols from the library, as in an older driver. It applies to
// programs started with Env from now on.
func (b *Box) Miss(symbols ...string) {
	b.t.Helper()
	b.dir = Build(b.t, symbols...)
}

// Env is the environment with which a program sees this box.
func (b *Box) Env() []string {
	return []string{"LD_LIBRARY_PATH=" + b.dir, "FAKE_NVML=" + b.state}
}

// change alters the box and publishes it, all at once.
func (b *Box) change(alter func()) {
	b.t.Helper()
	b.mu.Lock()
	defer b.mu.Unlock()
	alter()
	var out bytes.Buffer
	// A reader recognises a new file by its size, too: its inode may be that of
	// one just deleted, and the file system's clock is coarse.
	b.changes++
	fmt.Fprintf(&out, "changes %s\n", strings.Repeat("+", b.changes%97))
	fmt.Fprintf(&out, "driver %s\nnvml 13.%s\ncuda 13000\n", b.driver, b.driver)
	fmt.Fprintf(&out, "slow %d\ninit %d %d\neventshang %d\nclaims %s\n", b.slowMS, b.initResult, b.initHangs, b.eventsHang, b.claims)
	for _, xid := range b.xids {
		fmt.Fprintln(&out, xid)
	}
	for slot := range b.cards {
		if !b.cards[slot].removed {
			b.cards[slot].write(&out, slot)
		}
	}
	next := b.state + ".next"
	if err := os.WriteFile(next, out.Bytes(), 0o644); err != nil {
		b.t.Fatal(err)
	}
	if err := os.Rename(next, b.state); err != nil {
		b.t.Fatal(err)
	}
}

// Change alters a card.
func (b *Box) Change(i int, alter func(card *Card)) {
	b.t.Helper()
	b.change(func() { alter(&b.cards[i]) })
}

// SetMemory sets the memory in use that no listed process holds.
func (b *Box) SetMemory(i int, strayMiB int64) {
	b.t.Helper()
	b.Change(i, func(card *Card) { card.StrayMiB = strayMiB })
}

// SetProcesses puts these processes on a card, with their memory.
func (b *Box) SetProcesses(i int, processes ...Process) {
	b.t.Helper()
	b.Change(i, func(card *Card) { card.Processes = processes })
}

// Claims is a directory in which a process can claim memory, as if it had
// allocated it: a file named after its pid with the card (its position in New,
// or its UUID) and the MiB, such as `echo "$CUDA_VISIBLE_DEVICES 2048" >
// DIR/$$`. A claim ends with its process.
func (b *Box) Claims() string {
	b.t.Helper()
	dir := b.state + ".claims"
	if err := os.MkdirAll(dir, 0o777); err != nil {
		b.t.Fatal(err)
	}
	if err := os.Chmod(dir, 0o777); err != nil {
		b.t.Fatal(err)
	}
	b.change(func() { b.claims = dir })
	return dir
}

// Limit is a memory limit that a program set.
type Limit struct {
	UUID, Cgroup     string
	SoftMiB, HardMiB int64 // HardMiB 0: without limit
}

// Limits are those set so far, in order.
func (b *Box) Limits() []Limit {
	b.t.Helper()
	var limits []Limit
	for _, line := range b.log("limit") {
		var l Limit
		var soft, hard int64
		if _, err := fmt.Sscanf(line, "%s %d %d %s", &l.UUID, &soft, &hard, &l.Cgroup); err != nil {
			b.t.Fatalf("limit %q: %v", line, err)
		}
		l.SoftMiB, l.HardMiB = soft/mib, hard/mib
		limits = append(limits, l)
	}
	return limits
}

// log are the library's log lines that begin with a word, without it.
func (b *Box) log(word string) []string {
	text, err := os.ReadFile(b.state + ".log")
	if err != nil && !os.IsNotExist(err) {
		b.t.Fatal(err)
	}
	var lines []string
	for line := range strings.Lines(string(text)) {
		if rest, is := strings.CutPrefix(strings.TrimSpace(line), word+" "); is {
			lines = append(lines, rest)
		}
	}
	return lines
}

func (b *Box) pids(word string) []int {
	var pids []int
	for _, line := range b.log(word) {
		var pid int
		if _, err := fmt.Sscan(line, &pid); err != nil {
			b.t.Fatalf("%s %q: %v", word, line, err)
		}
		pids = append(pids, pid)
	}
	return pids
}

// Inits are the processes that initialised the driver so far, in order.
func (b *Box) Inits() []int { return b.pids("init") }

// Shutdowns are those that shut it down properly.
func (b *Box) Shutdowns() []int { return b.pids("shutdown") }

// Stuck are those whose call hung, alive or not.
func (b *Box) Stuck() []int { return b.pids("hang") }
