package keep

import "time"

// partingBudget bounds the last look at a log. A file system that does not
// answer must not delay the report of the job's end.
const partingBudget = 10 * time.Second

// lastWords is what the end of the log says when the job is gone.
type lastWords struct {
	oom     bool
	dropped int64
	note    string
	silent  bool // it did not answer, and a goroutine still waits for it
}

// part is called when no process of the job is left. Most ends are reported at
// once; if the log has to be read, the report waits for that.
func (k *keeper) part() {
	h := k.held
	failed := k.record.ExitCode != 0 || k.record.Signal != 0
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
	k.record.OOM, k.record.LogDropped = w.oom, w.dropped
	k.remark(w.note)
	if w.silent {
		k.held.log = nil // left open: its descriptor must not be reused
	}
	k.end("")
}
