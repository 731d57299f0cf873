package keep

import (
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"time"
)

// Main is the supervisor process. args are the arguments after the program's
// name (and after the hidden command, if berth itself is the program): the
// token, and nothing else. It returns the exit status.
func Main(args []string) int {
	if len(args) != 1 {
		fmt.Fprintln(os.Stderr, "berth-keep: this program is started by berth, not by hand")
		return 2
	}
	switch args[0] {
	case stageWord:
		return begin()
	case hostWord:
		return host()
	case DoorWord:
		return door()
	}
	if err := inherit(); err != nil {
		fmt.Fprintln(os.Stderr, "berth-keep:", err)
		return 2
	}
	// Hundreds of these may wait beside the machine's real work.
	runtime.GOMAXPROCS(1)
	debug.SetGCPercent(25)
	ReserveThreads(spareThreads)
	k, err := newKeeper(args[0])
	if err != nil {
		fmt.Fprintln(os.Stderr, "berth-keep:", err)
		return 1
	}
	k.loop()
	if k.cgroup != "" {
		// A later berth removes what cannot be removed now.
		_ = RemoveCgroup(k.cgroup)
	}
	return 0
}

// keeper is the supervisor: one loop that owns all of this, and goroutines
// that only wait for something to report to it.
type keeper struct {
	record recordFile
	conn   *conn // the current berth
	next   *conn // a newer one, greeted once the old one's frames are read
	held   *held // the job; nil between jobs

	cgroup     string // of its jobs, one after another
	privileged bool   // it has privileges that its jobs must not have
	useless    bool   // it cannot run another job, for example because its cgroup was killed

	conns  chan *conn
	visits chan visit
	frames chan incoming
	begun  chan report
	hosts  chan hostSaid
	reaped chan reaped
	parted chan lastWords
	moves  chan manoeuvreNews
	timer  *time.Timer // for the plan of the job's ending
	tidy   *time.Timer // for returning memory
	look   *time.Timer // for the remains of a job with an MPS server
	vigil  *time.Timer // for the remains of every other
}

// tidyAfter is when a job has run long enough to make returning memory
// worthwhile: it may run for a month, while short jobs follow each other
// quickly.
const tidyAfter = time.Second

func newKeeper(token string) (*keeper, error) {
	k := &keeper{
		record: recordFile{file: os.NewFile(fdRecord, "record"), unsaved: unsaved{timer: time.NewTimer(time.Hour)}},
		conns:  make(chan *conn), visits: make(chan visit), frames: make(chan incoming),
		begun: make(chan report), hosts: make(chan hostSaid), reaped: make(chan reaped, 2), parted: make(chan lastWords),
		moves: make(chan manoeuvreNews),
		timer: time.NewTimer(time.Hour), tidy: time.NewTimer(tidyAfter), look: time.NewTimer(time.Hour),
		vigil: time.NewTimer(time.Hour),
	}
	start, err := StartTicks(os.Getpid())
	if err != nil {
		return nil, fmt.Errorf("read own start time: %w", err)
	}
	nice, oomScoreAdj := ownPriority()
	k.privileged = nice < 0 || oomScoreAdj < 0
	k.record.Record = Record{State: Idle, Protocol: Protocol, Token: token, BootID: BootID(), KeepPID: os.Getpid(), KeepStart: start}
	if err := k.record.write(); err != nil {
		return nil, err
	}
	if err := listen(k.conns, k.visits); err != nil {
		return nil, fmt.Errorf("listen: %w", err)
	}
	k.greet(newConn(fdController))
	return k, nil
}

// loop ends when there is neither a job nor a berth, or no job and no way to
// run another. An end that was not acknowledged stays in the record file for
// the next berth; the loop goes on until it is there.
func (k *keeper) loop() {
	for (k.conn != nil || k.held != nil || k.record.unsaved.is()) && !(k.useless && k.record.State == Idle) {
		select {
		case c := <-k.conns:
			k.connected(c)
		case v := <-k.visits:
			k.visited(v)
		case in := <-k.frames:
			k.heard(in)
		case r := <-k.begun:
			k.began(r)
		case said := <-k.hosts:
			k.hostSaid(said)
		case r := <-k.reaped:
			k.bury(r)
		case w := <-k.parted:
			k.heardLast(w)
		case news := <-k.moves:
			k.moved(news)
		case <-k.timer.C:
			k.settle()
		case <-k.record.unsaved.timer.C:
			k.record.save()
		case <-k.look.C:
		case <-k.vigil.C:
		case <-k.tidy.C:
			giveBack()
		}
		k.act()
	}
}

// giveBack returns memory that a large order or many small ones used. If there
// is little, a collection would use more than it frees.
func giveBack() {
	const worthIt = 1 << 20
	var memory runtime.MemStats
	runtime.ReadMemStats(&memory)
	if memory.HeapSys-memory.HeapReleased > worthIt {
		debug.FreeOSMemory()
	}
}

// act does what is due for the job and sets the timer for what comes next. Of a job
// that is over, only the look at what it left may be at work, which nothing may end.
func (k *keeper) act() {
	if k.held != nil {
		k.held.heedParking()
	}
	if k.held == nil || k.held.alone {
		k.timer.Stop()
		return
	}
	for {
		begun := time.Now()
		what := k.held.ending.due(begun)
		if what == nothing {
			break
		}
		k.held.do(what)
		k.held.ending.took(what, time.Since(begun))
	}
	if at, planned := k.held.ending.next(); planned {
		k.timer.Reset(time.Until(at))
	}
	k.held.heedMPS(k.look)
	k.heedRemains()
}

func (k *keeper) greet(c *conn) {
	k.conn = c
	go c.read(k.frames)
	c.send(k.record.hello())
	if k.held != nil && k.held.vigil.stuck != nil {
		c.send(k.held.vigil.stuck.frame(k.record.Record))
	}
	if k.held != nil && len(k.held.order.Driver) > 0 {
		c.send(k.held.parkedFrame(k.record.Record, "", 0))
	}
	if k.record.unsaved.is() {
		c.send(k.record.frame(FrameEnded))
	}
}

// connected takes on a newer berth. What the old one sent before it died comes
// first: its last order must not arrive after the new one was told "idle".
func (k *keeper) connected(c *conn) {
	if k.conn == nil {
		k.greet(c)
		return
	}
	if k.next != nil {
		k.next.close()
	}
	k.next = c
	k.conn.drain()
}

func (k *keeper) disconnected() {
	k.conn.close()
	k.conn = nil
	if c := k.next; c != nil {
		k.next = nil
		k.greet(c)
		return
	}
	k.record.save()
}
