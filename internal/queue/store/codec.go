package store

import (
	"bytes"
	"encoding/json"
	"reflect"
	"time"
	"unicode/utf8"

	"berth/internal/job"
)

// rest is what is neither in a column nor in the spec.
type rest struct {
	Detail       string        `json:"detail,omitempty"`
	NotBefore    int64         `json:"not_before,omitempty"`
	RetriesUsed  int           `json:"retries_used,omitempty"`
	Requeues     int           `json:"requeues,omitempty"`
	Preemptions  int           `json:"preemptions,omitempty"`
	WaitsSince   int64         `json:"waits_since,omitempty"`
	PreemptedFor string        `json:"aside_for,omitempty"`
	PreemptAt    int64         `json:"aside_at,omitempty"`
	Grant        job.Grant     `json:"grant,omitzero"`
	Keep         string        `json:"keep,omitempty"`
	Stop         job.Stop      `json:"stop,omitempty"`
	ExitCode     *int          `json:"exit_code,omitempty"`
	Signal       string        `json:"signal,omitempty"`
	PeakMiB      map[int]int64 `json:"peak_mib,omitzero"` // nil and empty differ
	AvgUtil      *float64      `json:"avg_util,omitempty"`
	OverGPUs     float64       `json:"over_gpus,omitempty"`
	Log          string        `json:"log,omitempty"`
	LogDropped   int64         `json:"log_dropped,omitempty"`
	UID          int           `json:"uid,omitempty"`
	Environ      string        `json:"environ,omitempty"`
	Umask        int           `json:"umask,omitempty"`
	Held         bool          `json:"held,omitempty"`
	Parking      parking       `json:"parking,omitzero"`
	Checkpoints  *checkpoints  `json:"kept,omitempty"`
	Handover     handover      `json:"handover,omitzero"`
	// Bytes means that some text of this job is not UTF-8, so every text has one
	// character per byte. See bytes.go.
	Bytes bool `json:"bytes,omitempty"`
}

// parking is a job.Parking.
type parking struct {
	Phase   job.ParkPhase `json:"phase,omitempty"`
	By      string        `json:"by,omitempty"`
	CardMiB map[int]int64 `json:"card_mib,omitempty"`
	Since   int64         `json:"since,omitempty"`
	Resumed int64         `json:"resumed,omitempty"`
	Served  time.Duration `json:"served,omitempty"`
	Times   int           `json:"times,omitempty"`
	Refused string        `json:"refused,omitempty"`
	Sliced  time.Duration `json:"sliced,omitempty"`
}

func parkingOf(p *job.Parking) parking {
	return parking{p.Phase, p.By, p.CardMiB, nanos(p.Since), nanos(p.Resumed), p.Served, p.Times, p.Refused, p.Sliced}
}

func (p *parking) value() job.Parking {
	return job.Parking{
		Phase: p.Phase, By: p.By, CardMiB: p.CardMiB, Since: moment(p.Since), Resumed: moment(p.Resumed),
		Served: p.Served, Times: p.Times, Refused: p.Refused, Sliced: p.Sliced,
	}
}

// checkpoints is a job.Checkpoints.
type checkpoints struct {
	Ran      time.Duration `json:"ran,omitempty"`
	Lost     time.Duration `json:"lost,omitempty"`
	Stopping time.Duration `json:"stopping,omitempty"`
	Saved    int64         `json:"saved,omitempty"`
}

func checkpointsOf(c *job.Checkpoints) *checkpoints {
	if *c == (job.Checkpoints{}) {
		return nil
	}
	return &checkpoints{c.Ran, c.Lost, c.Stopping, nanos(c.Saved)}
}

func (c *checkpoints) value() job.Checkpoints {
	if c == nil {
		return job.Checkpoints{}
	}
	return job.Checkpoints{Ran: c.Ran, Lost: c.Lost, Stopping: c.Stopping, Saved: moment(c.Saved)}
}

// handover is a job.Handover.
type handover struct {
	Batch string `json:"batch,omitempty"`
	Dir   string `json:"dir,omitempty"`
	Index int    `json:"index,omitempty"`
	Slurm string `json:"slurm,omitempty"`
	Alone bool   `json:"alone,omitempty"`
	Held  bool   `json:"held,omitempty"`
	At    int64  `json:"at,omitempty"`
	Node  string `json:"node,omitempty"`
}

func handoverOf(h *job.Handover) handover {
	return handover{h.Batch, h.Dir, h.Index, h.Slurm, h.Alone, h.Held, nanos(h.At), h.Node}
}

func (h *handover) value() job.Handover {
	return job.Handover{Batch: h.Batch, Dir: h.Dir, Index: h.Index, Slurm: h.Slurm, Alone: h.Alone, Held: h.Held, At: moment(h.At), Node: h.Node}
}

// snapshot is a whole job inside an event.
type snapshot struct {
	ID          string      `json:"id"`
	Seq         int64       `json:"seq"`
	Key         string      `json:"key,omitempty"`
	User        string      `json:"user,omitempty"`
	State       job.State   `json:"state"`
	Outcome     job.Outcome `json:"outcome,omitempty"`
	Rank        int64       `json:"rank,omitempty"`
	VRAMMiB     int64       `json:"vram_mib,omitempty"`
	Attempt     int         `json:"attempt,omitempty"`
	SubmittedAt int64       `json:"submitted_at,omitempty"`
	StartedAt   int64       `json:"started_at,omitempty"`
	EndedAt     int64       `json:"ended_at,omitempty"`
	Spec        job.Spec    `json:"spec"`
	rest
}

func restOf(j *job.Job, wide bool) rest {
	return rest{
		Detail: j.Detail, NotBefore: nanos(j.NotBefore), RetriesUsed: j.RetriesUsed, Requeues: j.Requeues,
		Grant: j.Grant, Keep: j.Keep, Stop: j.Stop, ExitCode: j.ExitCode, Signal: j.Signal,
		PeakMiB: j.PeakMiB, AvgUtil: j.AvgUtil, OverGPUs: j.OverGPUs, Log: j.Log, LogDropped: j.LogDropped, Bytes: wide,
		UID: j.UID, Environ: j.Environ, Umask: j.Umask, Held: j.Held, Parking: parkingOf(&j.Parking),
		Preemptions: j.Preemptions, WaitsSince: nanos(j.WaitsSince), PreemptedFor: j.PreemptedFor, PreemptAt: nanos(j.PreemptAt),
		Handover: handoverOf(&j.Handover), Checkpoints: checkpointsOf(&j.Checkpoints),
	}
}

func (r *rest) into(j *job.Job) {
	j.Detail, j.NotBefore, j.RetriesUsed, j.Requeues = r.Detail, moment(r.NotBefore), r.RetriesUsed, r.Requeues
	j.Grant, j.Keep, j.Stop, j.ExitCode, j.Signal = r.Grant, r.Keep, r.Stop, r.ExitCode, r.Signal
	j.PeakMiB, j.AvgUtil, j.OverGPUs, j.Log, j.LogDropped = r.PeakMiB, r.AvgUtil, r.OverGPUs, r.Log, r.LogDropped
	j.Preemptions, j.WaitsSince, j.PreemptedFor, j.PreemptAt = r.Preemptions, moment(r.WaitsSince), r.PreemptedFor, moment(r.PreemptAt)
	j.UID, j.Environ, j.Umask, j.Held, j.Parking = r.UID, r.Environ, r.Umask, r.Held, r.Parking.value()
	j.Handover, j.Checkpoints = r.Handover.value(), r.Checkpoints.value()
}

func (r *rest) empty() bool { return reflect.ValueOf(r).Elem().IsZero() }

// encodeSpec encodes a spec without its shell line, which has its own column.
func encodeSpec(spec job.Spec) ([]byte, error) {
	spec.Shell = ""
	return json.Marshal(&spec)
}

func encodeRest(j *job.Job, wide bool) ([]byte, error) {
	r := restOf(j, wide)
	if r.empty() {
		return nothing, nil
	}
	return json.Marshal(&r)
}

// nothing is the rest of a newly queued job.
var nothing = []byte("{}")

// decoder caches decoded columns by their JSON, because many jobs of a queue differ
// only in their name and command, and the last long text, because the tasks of an
// array share it. Without maps it caches none.
type decoder struct {
	specs map[string]job.Spec
	rests map[string]rest
	blob  string
	long  longText
}

const maxCached = 256

// decode fills a job from its two JSON columns.
func (d *decoder) decode(j *job.Job, spec, others []byte) error {
	specs, name := d.specs, ""
	if specs != nil {
		name, spec = cutName(spec)
	}
	cached, known := specs[string(spec)]
	if known {
		j.Spec = cached
	} else if err := json.Unmarshal(spec, &j.Spec); err != nil {
		return err
	}
	if !known && specs != nil && len(specs) < maxCached && !hasLists(&j.Spec) {
		specs[string(spec)] = j.Spec
	}
	if name != "" {
		j.Spec.Name = name
	}
	r, known := d.rests[string(others)]
	if !known && !bytes.Equal(others, nothing) {
		if err := json.Unmarshal(others, &r); err != nil {
			return err
		}
	}
	if !known && d.rests != nil && len(d.rests) < maxCached && r.shares() {
		d.rests[string(others)] = r
	}
	r.into(j)
	if r.Bytes {
		narrow(j)
	}
	return nil
}

// cutName is a spec without its name, where that begins it and needs no decoding.
func cutName(spec []byte) (name string, rest []byte) {
	const before, after = `{"name":"`, `",`
	text, named := bytes.CutPrefix(spec, []byte(before))
	end := bytes.IndexByte(text, '"')
	if !named || end < 1 || !bytes.HasPrefix(text[end:], []byte(after)) || bytes.IndexByte(text[:end], '\\') >= 0 {
		return "", spec
	}
	// The rest of the spec becomes an object again in place: the row is a copy.
	at := len(before) + end + len(after) - 1
	name, spec[at] = string(text[:end]), '{'
	return name, spec[at:]
}

// decodeLong adds the long text from its blob.
func (d *decoder) decodeLong(j *job.Job, blob string, data []byte) (err error) {
	if d.blob != blob {
		if d.long, err = decodeLongText(data); err != nil {
			return err
		}
		d.blob = blob
	}
	d.long.into(&j.Spec)
	return nil
}

// Every event has a copy of its job, shortened so that a long job that changes
// often does not fill the disk. The full text is with the job.
const (
	maxSnapshot = maxInline // the largest spec that an event has in full
	snapshotCut = 1 << 10   // how much of a longer command it keeps
)

// brief is a job as stored in an event.
func brief(j *job.Job) *job.Job {
	if longBytes(&j.Spec)+len(j.Spec.Dir)+len(j.Spec.Type)+len(j.Spec.After)*16+j.Spec.Trial.TextBytes() <= maxSnapshot {
		return j
	}
	short := *j
	short.Spec = job.Spec{
		Shell: cutText(j.Spec.CommandHead(2 * snapshotCut)), Name: j.Spec.Name, GPUs: j.Spec.GPUs, Share: j.Spec.Share, VRAMMiB: j.Spec.VRAMMiB,
		Priority: j.Spec.Priority, TimeLimit: j.Spec.TimeLimit, Retries: j.Spec.Retries, ArrayLimit: j.Spec.ArrayLimit, Pty: j.Spec.Pty, Group: j.Spec.Group,
		Notify: j.Spec.Notify, // bounded, and messages are made of events
	}
	short.Detail, short.Log = cutText(j.Detail), cutText(j.Log)
	return &short
}

func cutText(text string) string {
	if len(text) <= snapshotCut {
		return text
	}
	end := snapshotCut
	for end > snapshotCut-utf8.UTFMax && !utf8.RuneStart(text[end]) {
		end--
	}
	return text[:end] + "…"
}

func encodeSnapshot(j *job.Job) ([]byte, error) { return EncodeJob(brief(j)) }

// EncodeJob is a whole job outside the store, for DecodeJob.
func EncodeJob(j *job.Job) ([]byte, error) {
	wide := !isText(j)
	if wide {
		j = widened(j)
	}
	return json.Marshal(&snapshot{
		ID: j.ID, Seq: j.Seq, Key: j.Key, User: j.User, State: j.State, Outcome: j.Outcome,
		Rank: j.Rank, VRAMMiB: j.VRAMMiB, Attempt: j.Attempt.Number,
		SubmittedAt: nanos(j.SubmittedAt), StartedAt: nanos(j.StartedAt), EndedAt: nanos(j.EndedAt),
		Spec: j.Spec, rest: restOf(j, wide),
	})
}

// DecodeJob reads what EncodeJob wrote.
func DecodeJob(text []byte) (*job.Job, error) {
	var s snapshot
	if err := json.Unmarshal(text, &s); err != nil {
		return nil, err
	}
	j := &job.Job{
		ID: s.ID, Seq: s.Seq, Key: s.Key, User: s.User, State: s.State, Outcome: s.Outcome,
		Rank: s.Rank, VRAMMiB: s.VRAMMiB, Attempt: job.Attempt{Number: s.Attempt, StartedAt: moment(s.StartedAt), EndedAt: moment(s.EndedAt)},
		SubmittedAt: moment(s.SubmittedAt),
		Spec:        s.Spec,
	}
	s.rest.into(j)
	if s.Bytes {
		narrow(j)
	}
	return j, nil
}

// nanos and moment convert a time to an integer and back; the zero time is 0.
func nanos(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixNano()
}

func moment(nanos int64) time.Time {
	if nanos == 0 {
		return time.Time{}
	}
	return time.Unix(0, nanos)
}

func isText(j *job.Job) bool {
	valid := true
	texts(j, func(s *string) { valid = valid && utf8.ValidString(*s) })
	return valid
}

// shares reports whether copies of it share no memory that a job changes.
func (r *rest) shares() bool {
	return r.ExitCode == nil && r.AvgUtil == nil && r.PeakMiB == nil && r.Parking.CardMiB == nil && r.Grant.GPUs == nil && r.Grant.UUIDs == nil
}

// hasLists reports a spec whose copies would share memory.
func hasLists(s *job.Spec) bool {
	return s.Argv != nil || s.IDs != nil || s.Allow != nil || s.After != nil || s.Env != nil || s.Notify != nil || s.Trial.Params != nil
}
