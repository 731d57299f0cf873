package keep

import (
	"errors"
	"os"
	"strconv"
	"syscall"
	"time"
)

// partingBudget bounds the last look at a log. A file system that does not
// answer must not delay the report of the job's end.
const partingBudget = 10 * time.Second

// lastWords is what the end of the log says when the job is gone.
type lastWords struct {
	oom     bool
	dropped int64
	note    string
	silent  bool // it did not answer, and a goroutine still waits for it
	saved   time.Time
	stuck   bool // a process of the supervisor still waits for the answer to that
}

// part is called when no process of the job is left. Most ends are reported at
// once; if the log has to be read, the report waits for that.
func (k *keeper) part() {
	h := k.held
	failed := k.record.ExitCode != 0 || k.record.Signal != 0
	if h.order.SavesTo != "" && h.log != nil && (failed || h.ending.stop != "") {
		go h.look(failed, k.parted)
		return
	}
	if h.log == nil || (!failed && h.cap == nil && h.pty == nil) {
		k.end(h.launch)
		return
	}
	go h.listen(failed, k.parted)
}

// listen reads the end of the log, within partingBudget.
func (h *held) listen(failed bool, to chan<- lastWords) {
	heard := make(chan lastWords, 1)
	go func() { heard <- h.lastWords(failed) }()
	select {
	case w := <-heard:
		to <- w
	case <-time.After(partingBudget):
		to <- lastWords{note: "the log could not be read in time", silent: true}
	}
}

// look is listen, and looks when the job last saved. A job that has ended well does
// not go on.
func (h *held) look(failed bool, to chan<- lastWords) {
	heard := make(chan lastWords, 1)
	go h.listen(failed, heard)
	saved, stuck := h.order.lastSave()
	w := <-heard
	if w.saved, w.stuck = saved, stuck; stuck {
		w.note = note(w.note, "the checkpoint file could not be looked at in time")
	}
	to <- w
}

// lookBudget bounds the look at a checkpoint file, likewise.
const lookBudget = 5 * time.Second

// lastSave is when the job's checkpoint file was last written to. A process that has
// become the job's user looks, and is left alone if it does not come back: stuck.
func (o *Order) lastSave() (at time.Time, stuck bool) {
	request, err := Frame{frameLook, OpenFrame(o.Credential, o.SavesTo).Fields}.Encode()
	if err != nil {
		return at, false
	}
	ours, theirs, err := newStage()
	if err != nil {
		return at, false
	}
	defer ours.file.Close()
	null, err := syscall.Open("/dev/null", syscall.O_RDWR|syscall.O_CLOEXEC, 0)
	if err != nil {
		syscall.Close(theirs)
		return at, false
	}
	fds := []uintptr{uintptr(null), uintptr(null), uintptr(null), uintptr(theirs)}
	pid, err := startProcess("/proc/self/exe", selfArgv(DoorWord), &syscall.ProcAttr{Dir: "/", Env: os.Environ(), Files: fds, Sys: &syscall.SysProcAttr{Setsid: true}})
	syscall.Close(null)
	syscall.Close(theirs)
	if err != nil {
		return at, false
	}
	_ = ours.file.SetDeadline(time.Now().Add(lookBudget))
	_, _ = ours.file.Write(request) // if nobody reads it, the read below notices
	answer, err := ReadFrame(ours.file)
	if errors.Is(err, os.ErrDeadlineExceeded) {
		_ = syscall.Kill(pid, syscall.SIGKILL)
		return at, true
	}
	_, _ = syscall.Wait4(pid, nil, 0, nil)
	if n, _ := strconv.ParseInt(answer.Get("modified_ns"), 10, 64); n > 0 {
		at = time.Unix(0, n)
	}
	return at, false
}

func (h *held) lastWords(failed bool) (w lastWords) {
	if h.pty != nil {
		h.pty.drain()
		w.note = h.pty.note
	}
	if h.cap != nil {
		h.cap.stop()
		w.dropped, w.note = h.cap.dropped, note(w.note, h.cap.note)
	}
	if failed {
		w.oom = outOfMemory(h.log.tail(oomWindow))
	}
	return w
}

func (k *keeper) heardLast(w lastWords) {
	k.record.OOM, k.record.LogDropped, k.record.Saved = w.oom, w.dropped, w.saved
	k.useless = k.useless || w.stuck // the next job would end only with that process
	k.record.remark(w.note)
	if w.silent {
		k.held.log = nil // left open: its descriptor must not be reused
	}
	k.end("")
}
