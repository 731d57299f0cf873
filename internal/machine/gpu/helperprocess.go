package gpu

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"berth/internal/text"
)

const (
	maxHelperLine = 4 << 20 // bytes of one reply; a sample of a full machine has about 50 KiB
	pageBytes     = 4096
	maxPageCard   = 1024 // a larger driver index is invalid
	noCard        = -1
	// leaveTime is how long a helper may take to close the driver once its
	// input has ended.
	leaveTime = time.Second
)

// The failures of a helper, each handled in its own way. None wraps a
// context's error: a caller whose own time is up gets a different one.
var (
	errHelperHangs   = errors.New("did not answer")
	errHelperDied    = errors.New("ended")
	errHelperRubbish = errors.New("unexpected output")
)

// helperProcess is one running berth-gpu. It handles one request at a time.
type helperProcess struct {
	log     *helperLog
	in      *os.File
	page    *os.File
	replies chan HelperReply // holds one; unsolicited ones wait in the pipe
	quit    chan struct{}    // closed when there will be no more requests
	spoilt  chan struct{}    // closed when its output has ended or is invalid
	spoilBy error            // why, set before spoilt is closed; nil: it ended
	over    chan struct{}    // closed when the process has ended and was reaped
	state   *os.ProcessState // set before over is closed
	since   time.Time
	pid     int

	quitOnce sync.Once
	mu       sync.Mutex // orders signals against the wait that frees the pid
	gone     bool
	endedOn  int
	nextID   int64

	// Owned by the helperSource that started it.
	stuckSince time.Time // zero: it is not stuck
	stuckOn    int       // the card it hangs on, or noCard
}

// startHelperProcess starts "berth-gpu serve" in a process group of its own,
// so that Ctrl-C in a terminal does not reach it.
func startHelperProcess(path string, log *helperLog, args ...string) (p *helperProcess, err error) {
	var opened []*os.File // belongs to the helper alone once it runs
	defer func() {
		for _, f := range opened {
			_ = f.Close() // the helper has its own copy
		}
	}()
	page, err := newPage()
	if err != nil {
		return nil, err
	}
	p = &helperProcess{
		log: log, page: page, stuckOn: noCard, since: time.Now(), replies: make(chan HelperReply, 1),
		quit: make(chan struct{}), spoilt: make(chan struct{}), over: make(chan struct{}),
	}
	var ends [6]*os.File
	for i := 0; i < len(ends); i += 2 {
		if ends[i], ends[i+1], err = os.Pipe(); err != nil {
			for _, f := range ends[:i] {
				_ = f.Close() // nothing was written
			}
			return nil, errors.Join(fmt.Errorf("start %s: %w", path, err), page.Close())
		}
	}
	inHere, outHere, wordsHere := ends[1], ends[2], ends[4]
	opened = append(opened, ends[0], ends[3], ends[5])
	cmd := exec.Command(path, append([]string{"serve"}, args...)...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = ends[0], ends[3], ends[5]
	cmd.ExtraFiles = []*os.File{page}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		for _, f := range []*os.File{inHere, outHere, wordsHere} {
			_ = f.Close() // nothing was written
		}
		return nil, errors.Join(fmt.Errorf("start %s: %w", path, err), page.Close())
	}
	p.in, p.pid = inHere, cmd.Process.Pid
	heard := make(chan struct{}) // closed when all its output is in the log
	go func() { defer close(heard); p.log.copy(wordsHere) }()
	go p.read(outHere)
	go p.wait(cmd, heard, outHere, wordsHere)
	return p, nil
}

// newPage is the memory that a helper shares. It is read as a file and not
// mapped, so a helper that truncates it does no harm.
func newPage() (*os.File, error) {
	fd, err := unix.MemfdCreate("berth-gpu", unix.MFD_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("share memory with berth-gpu: %w", err)
	}
	page := os.NewFile(uintptr(fd), "berth-gpu")
	if err := page.Truncate(pageBytes); err != nil {
		return nil, errors.Join(fmt.Errorf("share memory with berth-gpu: %w", err), page.Close())
	}
	return page, nil
}

// card is the driver index of the card that the helper is calling the driver
// about, or was when it ended.
func (p *helperProcess) card() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.gone {
		return p.endedOn
	}
	return p.readPage()
}

func (p *helperProcess) readPage() int {
	var word [4]byte
	if _, err := p.page.ReadAt(word[:], 0); err != nil {
		return noCard
	}
	card := binary.NativeEndian.Uint32(word[:])
	if card == 0 || card > maxPageCard {
		return noCard
	}
	return int(card) - 1
}

// read takes replies from the helper's output, one per line, until it ends or
// is invalid.
func (p *helperProcess) read(out *os.File) {
	defer close(p.spoilt)
	lines := bufio.NewReaderSize(out, 64<<10)
	for {
		line, err := readLine(lines)
		if err != nil { // an incomplete line is not a reply
			if errors.Is(err, errHelperRubbish) {
				p.spoilBy = err
			}
			return
		}
		var reply HelperReply
		if err := json.Unmarshal(line, &reply); err != nil {
			p.spoilBy = fmt.Errorf("%w: berth-gpu wrote %q", errHelperRubbish, text.Said(string(line[:min(len(line), 80)])))
			return
		}
		select {
		case p.replies <- reply: // even the last reply of a process that has ended
			continue
		default:
		}
		select {
		case p.replies <- reply:
		case <-p.quit:
			return
		}
	}
}

// readLine reads one line, up to maxHelperLine.
func readLine(r *bufio.Reader) ([]byte, error) {
	var line []byte
	for {
		part, err := r.ReadSlice('\n')
		if len(line)+len(part) > maxHelperLine {
			return nil, fmt.Errorf("%w: berth-gpu wrote a line of more than %d bytes", errHelperRubbish, maxHelperLine)
		}
		line = append(line, part...)
		if !errors.Is(err, bufio.ErrBufferFull) {
			return bytes.TrimSpace(line), err
		}
	}
}

// wait reaps the process. Before that, while its id cannot be reused, it kills
// what may be left in its group.
func (p *helperProcess) wait(cmd *exec.Cmd, heard <-chan struct{}, out, words *os.File) {
	for {
		err := unix.Waitid(unix.P_PID, p.pid, nil, unix.WEXITED|unix.WNOWAIT, nil)
		if !errors.Is(err, unix.EINTR) {
			break
		}
	}
	p.mu.Lock()
	p.endedOn = p.readPage()
	_ = unix.Kill(-p.pid, unix.SIGKILL) // usually the group is empty
	_ = cmd.Wait()                      // its state says how it ended
	p.gone = true
	p.mu.Unlock()
	p.dismiss()
	// What was written before the end is still in the pipes. Another process
	// may hold them open, so reading has a deadline.
	bound := time.Now().Add(leaveTime)
	_ = out.SetReadDeadline(bound) // pipes support deadlines
	_ = words.SetReadDeadline(bound)
	<-p.spoilt
	<-heard
	for _, f := range []*os.File{out, words, p.page} {
		_ = f.Close() // it was only read
	}
	p.state = cmd.ProcessState
	close(p.over)
}

// dismiss closes the helper's input, which asks it to end.
func (p *helperProcess) dismiss() {
	p.quitOnce.Do(func() {
		close(p.quit)
		_ = p.in.Close() // it is a pipe
	})
}

// end stops the helper: by closing its input, by SIGTERM after that, and
// finally by SIGKILL, because killing a process in the middle of a driver call
// has taken cards down. It returns when the process is gone, which may be
// never if it hangs in the kernel.
func (p *helperProcess) end(patience, grace time.Duration) {
	p.dismiss()
	for _, step := range []struct {
		wait time.Duration
		sig  unix.Signal
	}{{patience, unix.SIGTERM}, {grace, unix.SIGKILL}} {
		timer := time.NewTimer(step.wait)
		select {
		case <-p.over:
			timer.Stop()
			return
		case <-timer.C:
			p.signal(step.sig)
		}
	}
	<-p.over
}

func (p *helperProcess) signal(sig unix.Signal) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.gone {
		_ = unix.Kill(-p.pid, sig) // it may just have ended
	}
}

// ask sends a request and waits for its reply. The deadline applies to the
// time on one card, as the shared page shows it: a driver that is slow with
// every card hangs on none, and is bounded by the start deadline.
func (p *helperProcess) ask(req HelperRequest, timing helperTiming) (HelperReply, error) {
	p.nextID++
	req.ID = p.nextID
	line := text.MustJSON(req)
	p.log.listen()
	_ = p.in.SetWriteDeadline(time.Now().Add(timing.sample)) // pipes support deadlines
	if _, err := p.in.Write(append(line, '\n')); errors.Is(err, os.ErrDeadlineExceeded) {
		return HelperReply{}, p.hangs(timing.sample)
	} // any other error means that the helper has ended
	onNone := timing.sample
	if req.Do == HelperHello {
		onNone = timing.start
	}
	reply, err := p.reply(timing, onNone)
	if err == nil && reply.ID != req.ID {
		err = fmt.Errorf("%w: expected the reply to request %d, found that to request %d", errHelperRubbish, req.ID, reply.ID)
	}
	return reply, err
}

func (p *helperProcess) reply(timing helperTiming, onNone time.Duration) (HelperReply, error) {
	timer := time.NewTimer(max(timing.start, onNone))
	defer timer.Stop()
	glance := time.NewTicker(max(min(timing.sample, onNone)/20, time.Millisecond))
	defer glance.Stop()
	card, since := noCard, time.Now()
	for {
		select {
		case reply := <-p.replies:
			return reply, nil
		case <-p.spoilt:
			select {
			case reply := <-p.replies: // its last reply
				return reply, nil
			default:
				return HelperReply{}, p.spoiltBy()
			}
		case <-timer.C:
			return HelperReply{}, p.hangs(timing.start)
		case now := <-glance.C:
			limit := timing.sample
			if card == noCard {
				limit = onNone
			}
			if was := card; p.card() != was {
				card, since = p.card(), now
			} else if now.Sub(since) >= limit {
				return HelperReply{}, p.hangs(limit)
			}
		}
	}
}

func (p *helperProcess) hangs(deadline time.Duration) error {
	return fmt.Errorf("berth-gpu (process %d) %w within %s", p.pid, errHelperHangs, deadline)
}

func (p *helperProcess) isSpoilt() bool {
	select {
	case <-p.spoilt:
		return true
	default:
		return false
	}
}

// spoiltBy is why no more replies will come. The output of a process that dies
// ends a moment before the process.
func (p *helperProcess) spoiltBy() error {
	if p.spoilBy != nil {
		return p.spoilBy
	}
	timer := time.NewTimer(leaveTime)
	defer timer.Stop()
	select {
	case <-p.over:
		return fmt.Errorf("berth-gpu %w (%s)%s", errHelperDied, p.state, p.log.said())
	case <-timer.C:
		return fmt.Errorf("%w: berth-gpu closed its output", errHelperRubbish)
	}
}
