package keep

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// Order is all a supervisor has to know to run a job. It arrives in one frame,
// and a complete frame starts the job: half an order runs nothing.
type Order struct {
	Job     string
	Attempt int

	Argv []string // Argv[0] without a slash is looked up in the PATH of Env
	Env  []string // the whole environment except BERTH_TOKEN, which the supervisor adds
	Dir  string
	Code string // the snapshot of its code, which must exist; "": none
	Log  string // appended to; its directories are created

	// LogAlone means that no other attempt of this queue has this log: an
	// existing one is another queue's, and is renamed to NAME.old.
	LogAlone bool

	// LogKept means that the log is in a directory of berth's own. Nothing there
	// is followed, and directory and log must be the job's user's alone.
	LogKept bool

	// Setup means that the command is a wrapper that writes "ok" to descriptor
	// 3 once its set-up has succeeded.
	Setup bool

	// LeaveRest means that the job ends with its main process: what that leaves
	// in the background neither delays the end nor is ended. An older supervisor
	// does not know it.
	LeaveRest bool

	// Credential is the user to run as; nil: the supervisor's own.
	Credential *Credential

	// Mask is the umask of a job without a credential, in octal; "": the
	// supervisor's own.
	Mask string

	// Pty gives the job a terminal of its own. The supervisor holds the other
	// end, copies its output to the log, and accepts connections to it.
	Pty bool

	// LogMaxBytes bounds the size of the log: beyond it, the middle is dropped,
	// and its beginning and its newest part stay. 0: no bound.
	LogMaxBytes int64

	// LogFreeBytes is what should stay free on the log's file system: while less
	// is free, a log that grows is cut. 0: nothing. An older supervisor does not
	// know it.
	LogFreeBytes int64

	// CgroupParent is the parent of the job's cgroup; "": no cgroup.
	CgroupParent string

	// CPUs and MemMiB are enforced if the host allows it, and noted otherwise;
	// 0: no limit.
	CPUs   int
	MemMiB int64

	// MemoryParent and CPUParent are version 1 directories, for hosts whose
	// version 2 cgroups cannot enforce these limits.
	MemoryParent, CPUParent string

	// Affinity is the CPUs that the job may run on, "0-7,16-23"; "": all.
	Affinity string

	// Helper means that the command is one of berth's own, run by a door: it has
	// the door's input and output, and no log. No supervisor gets such an order.
	Helper bool

	// Pids bounds the processes and threads of a helper, if the host allows it;
	// 0: no limit. PidsParent is the version 1 directory for that.
	Pids       int
	PidsParent string

	// MPS gives the job an MPS server of its own, which the supervisor starts
	// before the job and stops after it.
	MPS *MPS

	// Driver is the program that parks the job, with its arguments; nil: it cannot
	// be parked. An older supervisor does not know it.
	Driver []string

	// SavesTo is what the job saves its own work to, if it says so: an absolute
	// path. A supervisor of an earlier berth does not look at it.
	SavesTo string

	// Devices are the GPUs that the job may open; nil: all. They are not sent:
	// berth puts the filter on CgroupParent before it sends the order, and the
	// supervisor only has to keep the job below it.
	Devices *Devices

	// Copy is the job as berth knows it. It is not sent: berth leaves it in the
	// supervisor's directory, for a later berth whose store does not know the
	// job.
	Copy []byte

	// Note is what berth could not do for the job, for its record.
	Note string

	Limit      time.Duration // 0: none
	Grace      time.Duration // between TERM and KILL, and for what outlives the main process
	WarnBefore time.Duration
	WarnSignal int // sent WarnBefore ahead of the limit; 0: none
}

// Devices are GPUs by the minors of their device files.
type Devices struct {
	Minors []int // of /dev/nvidiaN
	Caps   []int // of /dev/nvidia-caps, for MIG parts
}

// TokenVariable is in the environment of every process of a job, so that they
// can be found after the death of the supervisor. Its value is TokenValue's.
const TokenVariable = "BERTH_TOKEN"

// TokenValue identifies one attempt of one job under one supervisor.
func TokenValue(token, job string, attempt int) string {
	return token + ":" + job + ":" + strconv.Itoa(attempt)
}

// maxJobID makes a job's id fit into a record and a file name.
const maxJobID = 100

// No machine has more, and the values written to the kernel must not overflow.
const (
	maxCPUs   = 1 << 16
	maxMemMiB = 1 << 40
)

// Careful reports whether the order needs something that an older supervisor
// would silently omit. Such an order is sent only to a supervisor of this
// protocol, and as another kind of frame, which the first protocol ignores.
func (o Order) Careful() bool {
	return o.Credential != nil || o.Mask != "" || o.Pty || o.LogMaxBytes != 0 || o.CPUs != 0 || o.MemMiB != 0 ||
		o.Affinity != "" || o.MPS != nil || o.Helper
}

// Check refuses an order that no supervisor could carry out or report on.
func (o Order) Check() error {
	switch {
	case len(o.Argv) == 0:
		return fmt.Errorf("order for job %s has no command", o.Job)
	case o.Job == "" || len(o.Job) > maxJobID || strings.IndexFunc(o.Job, notInID) >= 0:
		return fmt.Errorf("order: expected a job id, found %q", o.Job)
	case o.WarnSignal < 0 || o.WarnSignal > lastSignal:
		return fmt.Errorf("order for job %s: expected a signal, found %d", o.Job, o.WarnSignal)
	case o.LogMaxBytes < 0 || o.LogFreeBytes < 0 || o.CPUs < 0 || o.CPUs > maxCPUs || o.MemMiB < 0 || o.MemMiB > maxMemMiB:
		return fmt.Errorf("order for job %s: expected limits, found %d CPUs, %d MiB, %d bytes of log", o.Job, o.CPUs, o.MemMiB, o.LogMaxBytes)
	}
	if _, err := o.mask(); err != nil {
		return fmt.Errorf("order for job %s: expected a umask, found %q", o.Job, o.Mask)
	}
	err := o.MPS.check()
	if err == nil && o.Affinity != "" {
		_, err = parseAffinity(o.Affinity)
	}
	if c := o.Credential; err == nil && c != nil {
		if err = c.check(); err == nil {
			err = o.checkFiles()
		}
	}
	if err != nil {
		return fmt.Errorf("order for job %s: %w", o.Job, err)
	}
	return nil
}

// mask is the requested umask; -1: none.
func (o Order) mask() (int, error) {
	if o.Mask == "" {
		return -1, nil
	}
	mask, err := strconv.ParseUint(o.Mask, 8, 9)
	return int(mask), err
}

func notInID(r rune) bool {
	return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && r != '_' && r != '-' && r != '.'
}

// visit passes the fields of an order. An older supervisor skips those it does not
// know.
func (o *Order) visit(c *codec) {
	c.text("job", &o.Job)
	c.int("attempt", &o.Attempt)
	c.texts("arg", &o.Argv)
	c.texts("env", &o.Env)
	c.kept("driver", &o.Driver)
	c.text("dir", &o.Dir)
	c.text("code", &o.Code)
	c.text("log", &o.Log)
	c.bool("log_alone", &o.LogAlone)
	c.bool("log_kept", &o.LogKept)
	c.bool("leave_rest", &o.LeaveRest)
	c.text("checkpoint_file", &o.SavesTo)
	c.bool("setup", &o.Setup)
	c.text("cgroup_parent", &o.CgroupParent)
	c.text("note", &o.Note)
	c.span("limit_ns", &o.Limit, 1)
	c.span("grace_ns", &o.Grace, 1)
	c.span("warn_before_ns", &o.WarnBefore, 1)
	c.int("warn_signal", &o.WarnSignal)
	c.int64("log_free_bytes", &o.LogFreeBytes)
	c.bool("pty", &o.Pty)
	c.text("mask", &o.Mask)
	c.int64("log_max_bytes", &o.LogMaxBytes)
	c.int("cpus", &o.CPUs)
	c.int64("mem_mib", &o.MemMiB)
	c.text("memory_parent", &o.MemoryParent)
	c.text("cpu_parent", &o.CPUParent)
	c.text("affinity", &o.Affinity)
	c.bool("helper", &o.Helper)
	c.int("pids", &o.Pids)
	c.text("pids_parent", &o.PidsParent)
	passMPS(c, &o.MPS)
	passCredential(c, &o.Credential)
}

// Frame renders the order.
func (o Order) Frame() Frame {
	kind := FrameGo
	if o.Careful() {
		kind = FrameGoCarefully
	}
	c := codec{fields: make([]Field, 0, len(o.Argv)+len(o.Env)+40)}
	o.visit(&c)
	return Frame{kind, c.fields}
}

// orderOf reads the order back. Words and environment share the frame's memory,
// because they do not outlast the start.
func orderOf(f Frame) (o Order, err error) {
	c := codec{fields: f.Fields, reading: true}
	if o.visit(&c); c.err != nil {
		return Order{}, fmt.Errorf("%w: %w", ErrFrame, c.err)
	}
	o.Grace = max(0, o.Grace)
	return o, o.Check()
}
