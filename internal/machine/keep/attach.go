package keep

import (
	"strconv"
	"syscall"
)

const (
	// maxAttached bounds the connections to one terminal.
	maxAttached = 32
	// attachQueue is how many pieces of output a connection may be behind.
	attachQueue = 256
	// maxTyped bounds one frame of input.
	maxTyped = 1 << 20
)

// attacher is one connection to a job's terminal.
type attacher struct {
	conn  *conn
	out   chan []byte // closed when it is detached
	ended bool        // because the job has ended; read after out is closed
}

// attach serves a connection until it or the job ends.
func (t *terminal) attach(c *conn, first Frame) {
	a := &attacher{conn: c, out: make(chan []byte, attachQueue)}
	t.mu.Lock()
	if t.over || len(t.attached) >= maxAttached {
		t.mu.Unlock()
		go c.refuse("the terminal is gone, or has too many connections")
		return
	}
	a.out <- outputFrame(t.recent())
	t.attached[a] = true
	t.mu.Unlock()
	go a.write()
	go t.obey(a, first)
}

// write sends the output.
func (a *attacher) write() {
	defer a.conn.close()
	for frame := range a.out {
		if !a.conn.put(frame) {
			// Its reader detaches it; until then nothing waits for it.
			a.conn.shut(syscall.SHUT_RDWR)
			return
		}
	}
	if a.ended {
		a.conn.send(Frame{Kind: FrameEnded})
	}
}

// obey carries out a frame from the attached client.
func (t *terminal) obey(a *attacher, frame Frame) {
	for err := error(nil); err == nil; frame, err = readFrame(a.conn.reader, maxTyped) {
		switch frame.Kind {
		case FrameAttach, FrameResize:
			rows, _ := strconv.Atoi(frame.Get("rows"))
			cols, _ := strconv.Atoi(frame.Get("cols"))
			setWindow(t.master, rows, cols)
		case FrameInput:
			t.input(frame.Get("data"))
		}
	}
	t.mu.Lock()
	t.letGo(a)
	t.mu.Unlock()
}

// refuse says why there is nothing to attach to.
func (c *conn) refuse(why string) {
	defer c.close()
	c.send(Message(FrameEnded, "why", why))
}

// AttachFrame is the first frame of a connection to a job's terminal. A zero
// size leaves the terminal's unchanged.
func AttachFrame(rows, cols int) Frame { return Message(FrameAttach, "rows", rows, "cols", cols) }

// AttachTo is AttachFrame for one attempt of one job. Supervisors hold one job
// after another: a client that comes late must not get the next job's
// terminal.
func AttachTo(job string, attempt int) Frame {
	return Message(FrameAttach, "rows", 0, "cols", 0, "job", job, "attempt", attempt)
}

// ResizeFrame reports a new size of the window.
func ResizeFrame(rows, cols int) Frame { return Message(FrameResize, "rows", rows, "cols", cols) }

// InputFrame is typed input.
func InputFrame(data []byte) Frame { return Frame{FrameInput, []Field{{"data", string(data)}}} }

// outputFrame is encoded once for all connections.
func outputFrame(data []byte) []byte {
	bytes, err := Frame{FrameOutput, []Field{{"data", string(data)}}}.Encode()
	if err != nil {
		panic("bug: " + err.Error())
	}
	return bytes
}
