package keep

import (
	"os"
	"sync"
	"syscall"
	"time"
)

const (
	// ringBytes is how much earlier output a new connection is shown.
	ringBytes = 64 << 10
	// readBytes is more than the kernel has ready at a time.
	readBytes = 16 << 10
)

// terminal is the supervisor's end of a job's pseudo-terminal: output goes to
// the log and to all connections, and their input goes to the job.
type terminal struct {
	master *os.File
	// slave stays open until no process of the job is left: a job may close its
	// terminal and open it again.
	slave int

	done chan struct{} // closed when the last byte has been copied

	mu       sync.Mutex
	ring     []byte
	attached map[*attacher]bool
	over     bool
	note     string
}

func newTerminal(master, slave int) *terminal {
	t := &terminal{
		master: os.NewFile(uintptr(master), "terminal"), slave: slave,
		done: make(chan struct{}), attached: make(map[*attacher]bool),
	}
	setWindow(t.master, defaultRows, defaultCols)
	return t
}

// copy moves the job's output until the terminal is closed for good. A log
// that cannot be written must not stop the job.
func (t *terminal) copy(log *logFile) {
	defer close(t.done)
	buffer := make([]byte, readBytes)
	for {
		n, err := t.master.Read(buffer)
		if n > 0 {
			if writeErr := log.write(buffer[:n]); writeErr != nil {
				t.remark("output is missing from the log: " + writeErr.Error())
			}
			t.show(buffer[:n])
		}
		if err != nil {
			return // no process has the other end
		}
	}
}

func (t *terminal) remark(text string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.note == "" {
		t.note = text
	}
}

// drain waits for the last byte. No process of the job is left by then.
func (t *terminal) drain() {
	syscall.Close(t.slave)
	t.slave = -1
	<-t.done
}

// show passes output on. A connection that does not keep up is closed, since
// the job does not wait.
func (t *terminal) show(data []byte) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.ring = append(t.ring, data...)
	if len(t.ring) > 2*ringBytes {
		t.ring = append(t.ring[:0], t.ring[len(t.ring)-ringBytes:]...)
	}
	if len(t.attached) == 0 {
		return
	}
	frame := outputFrame(data)
	for a := range t.attached {
		select {
		case a.out <- frame:
		default:
			t.letGo(a)
			a.conn.shut(syscall.SHUT_RDWR)
		}
	}
}

// recent is what a new connection gets first.
func (t *terminal) recent() []byte { return t.ring[max(0, len(t.ring)-ringBytes):] }

// letGo detaches. The mutex is held.
func (t *terminal) letGo(a *attacher) {
	if t.attached[a] {
		delete(t.attached, a)
		close(a.out)
	}
}

// inputPatience is how long a job may leave input unread before it is lost, as
// with a full terminal buffer.
const inputPatience = 5 * time.Second

func (t *terminal) input(data string) {
	t.master.SetWriteDeadline(time.Now().Add(inputPatience))
	_, _ = t.master.WriteString(data)
}

// close ends the terminal, and tells its connections.
func (t *terminal) close() {
	t.mu.Lock()
	t.over = true
	for a := range t.attached {
		a.ended = true
		t.letGo(a)
	}
	t.mu.Unlock()
	if t.slave >= 0 {
		syscall.Close(t.slave)
	}
	t.master.Close()
}
