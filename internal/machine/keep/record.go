package keep

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"syscall"
	"time"
)

// StopBroken, as Record.Stop, means that the job was parked and could not be
// resumed.
const StopBroken = "broken"

// State is what a supervisor is doing, in its record and its greeting.
type State string

// The states of a supervisor.
const (
	Idle    State = "idle"
	Started State = "started" // written before the fork: the job may have run
	Ended   State = "ended"   // written when no process of the job is left
)

// Record is what a supervisor writes about a job. A zero PID in a started
// record means that the supervisor died between writing it and knowing the
// process; a zero PID in an ended one means that nothing ran.
type Record struct {
	State   State
	Seq     uint64 // rises with every start and every acknowledged end
	Token   string
	Job     string
	Attempt int

	Protocol int // of the supervisor that wrote it; 0 is the first

	BootID    string
	KeepPID   int
	KeepStart uint64 // start time of the supervisor in clock ticks since boot
	PID       int
	PIDStart  uint64
	Session   int
	UID       int    // the job's user; 0: root, or the supervisor's own user
	Cgroup    string // directory of the job's cgroup; "": none
	Log       string // "" if it was too long for the record
	LogFrom   int64  // where this attempt's output begins
	Pty       bool   // it has a terminal that can be attached to

	StartedAt time.Time
	EndedAt   time.Time
	Elapsed   time.Duration // to the millisecond, and right even if the clock was changed

	ExitCode    int // -1 if a signal killed it or nothing ran
	Signal      int // 0: none
	Core        bool
	Stop        string // why it was stopped: cancel, timeout, interrupt; "": it ended by itself
	Launch      string // why nothing ran; "" if something did
	Scarce      bool   // nothing ran, through no fault of the job: it may start later
	SetupFailed bool
	Stragglers  int // processes that outlived the main one and had to be killed

	OOM          bool  // it failed, and this attempt's log ends in out-of-memory text
	MemoryKilled bool  // the kernel killed one of its processes for its host memory limit
	PeakMemKiB   int64 // of all processes, if a cgroup counted it; 0: unknown
	LogDropped   int64 // bytes dropped from the middle of the log

	Saved time.Time // when its checkpoint file was last written to; zero: never, or not known

	MaxRSSKiB int64
	User, Sys time.Duration // CPU time of all processes, to the millisecond
	Parkings  int           // how often it was parked
	Parked    time.Duration // how long in all, to the millisecond
	Note      string        // what the supervisor could not do, such as a cgroup
}

// BlockSize is the length of an encoded record. If the process dies, a page is
// written as a whole or not at all.
const BlockSize = 4096

// recordSize is the length of a record file: one block for what the supervisor
// is doing, and one for how its last job ended.
const recordSize = 2 * BlockSize

// errDamaged means that a record was written and cannot be read.
var errDamaged = errors.New("damaged record")

// errBlank means that a block was never written.
var errBlank = errors.New("blank record")

// ReadRecords reads a record file and returns the current block: the ended one
// if it belongs to the last job that started, else the other. ok is false if
// nothing was ever written. A damaged first block is an error even if the
// second is good, because the last job is then unknown.
func ReadRecords(path string) (current Record, ok bool, err error) {
	file, err := os.Open(path)
	if err != nil {
		return Record{}, false, fmt.Errorf("open record: %w", err)
	}
	defer file.Close()
	blocks := make([]byte, recordSize)
	if _, err := io.ReadFull(file, blocks); err != nil {
		return Record{}, false, fmt.Errorf("%w: %s: %w", errDamaged, path, err)
	}
	return pick(blocks)
}

func pick(blocks []byte) (current Record, ok bool, err error) {
	doing, doingErr := DecodeRecord(blocks[:BlockSize])
	ended, endedErr := DecodeRecord(blocks[BlockSize:])
	switch {
	case doingErr == nil && endedErr == nil && ended.Seq >= doing.Seq:
		return ended, true, nil
	case doingErr == nil && (endedErr == nil || errors.Is(endedErr, errBlank)):
		return doing, true, nil
	case doingErr == nil:
		// The ended block is incomplete: the job did run.
		if doing.State == Started {
			return doing, true, nil
		}
		return Record{}, false, endedErr
	case errors.Is(doingErr, errBlank) && errors.Is(endedErr, errBlank):
		return Record{}, false, nil
	}
	return Record{}, false, doingErr
}

// next is the record that follows this one, still without a job.
func (r Record) next(state State) Record {
	return Record{
		State: state, Seq: r.Seq + 1, Protocol: Protocol, Token: r.Token, BootID: r.BootID, KeepPID: r.KeepPID, KeepStart: r.KeepStart,
		StartedAt: r.StartedAt, // for a berth whose store is from before this job
	}
}

// concerns reports whether a frame is about the job on record.
func (r Record) concerns(f Frame) bool {
	return f.Get("job") == r.Job && f.Get("attempt") == strconv.Itoa(r.Attempt)
}

// hello is the greeting: the supervisor and its job.
func (r Record) hello() Frame {
	return Message(FrameHello, "protocol", Protocol, "token", r.Token, "pid", r.KeepPID, "start_ticks", r.KeepStart,
		"boot_id", r.BootID, "state", r.State, "job", r.Job, "attempt", r.Attempt)
}

// recordFile is the supervisor's own record, and the file it is in.
type recordFile struct {
	Record
	file    *os.File
	block   []byte // the last encoding, and of what
	of      Record
	unsaved unsaved
}

// encoded is the record as a block. What is written is often sent as well.
func (f *recordFile) encoded() []byte {
	if f.block == nil || f.of != f.Record {
		f.block, f.of = f.Encode(), f.Record
	}
	return f.block
}

// frame carries the whole record.
func (f *recordFile) frame(kind FrameKind) Frame {
	return Frame{kind, []Field{{"record", string(f.encoded())}}}
}

func (f *recordFile) remark(text string) { f.Note = note(f.Note, text) }

// rewrite is write, and a failure is only noted: the job already runs.
func (f *recordFile) rewrite() {
	if err := f.write(); err != nil {
		f.remark(err.Error())
	}
}

// write writes the record to its block: ended ones to the second, all others to
// the first.
func (f *recordFile) write() error {
	offset := int64(0)
	if f.State == Ended {
		offset = BlockSize
	}
	if _, err := f.file.WriteAt(f.encoded(), offset); err != nil {
		return fmt.Errorf("write record: %w", err)
	}
	return nil
}

// writeSynced is write, and returns when the record is on disk. Nothing else
// happens in the supervisor meanwhile, so Go's runtime need not find another thread
// for it.
func (f *recordFile) writeSynced() error {
	if err := f.write(); err != nil {
		return err
	}
	errno := syscall.EINTR
	for errno == syscall.EINTR {
		_, _, errno = syscall.RawSyscall(syscall.SYS_FDATASYNC, f.file.Fd(), 0, 0)
	}
	if errno != 0 {
		return os.NewSyscallError("fdatasync", errno)
	}
	return nil
}

// Prepare fills a new record file, so that every later write finds its space
// allocated, and records the boot it belongs to.
func Prepare(file *os.File, token string) error {
	idle := Record{State: Idle, Token: token, BootID: BootID()}
	if _, err := file.WriteAt(append(idle.Encode(), make([]byte, BlockSize)...), 0); err != nil {
		return fmt.Errorf("prepare record: %w", err)
	}
	if err := file.Sync(); err != nil {
		return fmt.Errorf("prepare record: %w", err)
	}
	return nil
}
