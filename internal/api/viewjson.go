package api

import (
	"encoding/json"
	"maps"
	"math"
	"slices"
	"strconv"
	"time"

	"berth/internal/job"
)

// appendView writes a job as encoding/json does, which a test holds: a list of ten
// thousand jobs took most of its encoding to ask each field for its type.
func appendView(b []byte, v *job.View) []byte {
	b = appendText(append(b, `{"id":`...), v.ID)
	b = appendText(append(b, `,"name":`...), v.Name)
	b = appendText(append(b, `,"user":`...), v.User)
	b = appendText(append(b, `,"state":`...), v.State)
	b = orNull(append(b, `,"outcome":`...), v.Outcome, appendText)
	b = orNull(append(b, `,"reason":`...), v.Reason, appendText)
	b = appendInt(append(b, `,"priority":`...), v.Priority)
	b = orNull(append(b, `,"command":`...), v.Command, appendText)
	b = appendInt(append(b, `,"gpus":`...), v.GPUs)
	b = orNull(append(b, `,"share":`...), v.Share, appendFloat)
	b = orNull(append(b, `,"vram_mib":`...), v.VRAMMiB, appendInt)
	b = appendInts(append(b, `,"gpu_ids":`...), v.GPUIDs)
	b = appendInts(append(b, `,"asked_ids":`...), v.AskedIDs)
	b = appendInt(append(b, `,"attempt":`...), v.Attempt)
	b = orNull(append(b, `,"submitted_at":`...), v.SubmittedAt, appendTime)
	b = orNull(append(b, `,"started_at":`...), v.StartedAt, appendTime)
	b = orNull(append(b, `,"ended_at":`...), v.EndedAt, appendTime)
	b = orNull(append(b, `,"exit_code":`...), v.ExitCode, appendInt)
	b = orNull(append(b, `,"signal":`...), v.Signal, appendText)
	b = appendMap(append(b, `,"peak_vram_mib":`...), v.PeakVRAMMiB, appendInt)
	b = orNull(append(b, `,"avg_util":`...), v.AvgUtil, appendFloat)
	b = orNull(append(b, `,"charged_gpus":`...), v.ChargedGPUs, appendFloat)
	b = orNull(append(b, `,"log":`...), v.Log, appendText)
	b = orNull(append(b, `,"idle_since":`...), v.IdleSince, appendTime)
	b = appendInt(append(b, `,"preemptions":`...), v.Preemptions)
	b = strconv.AppendBool(append(b, `,"held":`...), v.Held)
	b = orNull(append(b, `,"group":`...), v.Group, appendText)
	b = orNull(append(b, `,"batch":`...), v.Batch, appendText)
	b = appendInt(append(b, `,"parkings":`...), v.Parkings)
	b = appendFloat(append(b, `,"parked_s":`...), v.ParkedS)
	b = orNull(append(b, `,"parked_since":`...), v.ParkedSince, appendTime)
	b = orNull(append(b, `,"host_mib":`...), v.HostMiB, appendInt)
	b = orNull(append(b, `,"parking":`...), v.Parking, appendText)
	b = orNull(append(b, `,"park_refused":`...), v.ParkRefused, appendText)
	b = orNull(append(b, `,"checkpoints":`...), v.Checkpoints, appendCheckpoints)
	b = orNull(append(b, `,"slurm":`...), v.Slurm, appendSlurm)
	b = orNull(append(b, `,"sweep":`...), v.Sweep, appendText)
	b = appendMap(append(b, `,"params":`...), v.Params, appendText)
	return append(b, '}')
}

// Written is the event with its JSON, so that sending it again costs little.
func (e Event) Written() Event {
	e.written = appendEvent(nil, &e)
	return e
}

// appendEvent writes an event likewise.
func appendEvent(b []byte, e *Event) []byte {
	if e.written != nil {
		return append(b, e.written...)
	}
	b = append(b, '{')
	if e.Seq != 0 {
		b = append(appendInt(append(b, `"seq":`...), e.Seq), ',')
	}
	b = appendTime(append(b, `"time":`...), e.Time)
	b = appendText(append(b, `,"event":`...), e.Kind)
	if e.Job != nil {
		b = appendView(append(b, `,"job":`...), e.Job)
	}
	if e.Text != "" {
		b = appendText(append(b, `,"text":`...), e.Text)
	}
	if e.GPU != nil {
		b = appendInt(append(b, `,"gpu":`...), *e.GPU)
	}
	if e.By != "" {
		b = appendText(append(b, `,"by":`...), e.By)
	}
	if e.Bad {
		b = append(b, `,"bad":true`...)
	}
	if len(e.GPUs) > 0 {
		b = appendAny(append(b, `,"gpus":`...), e.GPUs)
	}
	return append(b, '}')
}

func appendCheckpoints(b []byte, k job.CheckpointsView) []byte {
	b = orNull(append(b, `{"every_s":`...), k.EveryS, appendFloat)
	b = appendFloat(append(b, `,"ran_s":`...), k.RanS)
	b = appendFloat(append(b, `,"lost_s":`...), k.LostS)
	b = appendFloat(append(b, `,"grace_s":`...), k.GraceS)
	b = appendFloat(append(b, `,"stopping_s":`...), k.StoppingS)
	return append(orNull(append(b, `,"saved_at":`...), k.SavedAt, appendTime), '}')
}

func appendSlurm(b []byte, s job.SlurmView) []byte {
	b = orNull(append(b, `{"id":`...), s.ID, appendText)
	b = orNull(append(b, `,"node":`...), s.Node, appendText)
	return append(appendInts(append(b, `,"gpu_ids":`...), s.GPUIDs), '}')
}

func orNull[T any](b []byte, value *T, write func([]byte, T) []byte) []byte {
	if value == nil {
		return append(b, "null"...)
	}
	return write(b, *value)
}

// appendText leaves what has to be escaped to encoding/json.
func appendText[S ~string](b []byte, s S) []byte {
	for i := range len(s) {
		if c := s[i]; c < ' ' || c >= 0x7f || c == '"' || c == '\\' || c == '<' || c == '>' || c == '&' {
			return appendAny(b, string(s))
		}
	}
	return append(append(append(b, '"'), s...), '"')
}

func appendInt[N int | int64](b []byte, n N) []byte { return strconv.AppendInt(b, int64(n), 10) }

// appendFloat leaves what is written with an exponent to encoding/json.
func appendFloat(b []byte, f float64) []byte {
	if abs := math.Abs(f); abs != 0 && !(abs >= 1e-6 && abs < 1e21) {
		return appendAny(b, f)
	}
	return strconv.AppendFloat(b, f, 'f', -1, 64)
}

func appendTime(b []byte, t time.Time) []byte {
	return append(t.AppendFormat(append(b, '"'), time.RFC3339Nano), '"')
}

func appendInts(b []byte, list []int) []byte {
	if list == nil {
		return append(b, "null"...)
	}
	b = append(b, '[')
	for i, n := range list {
		if i > 0 {
			b = append(b, ',')
		}
		b = appendInt(b, n)
	}
	return append(b, ']')
}

func appendMap[T any](b []byte, values map[string]T, write func([]byte, T) []byte) []byte {
	if values == nil {
		return append(b, "null"...)
	}
	b = append(b, '{')
	for i, key := range slices.Sorted(maps.Keys(values)) {
		if i > 0 {
			b = append(b, ',')
		}
		b = write(append(appendText(b, key), ':'), values[key])
	}
	return append(b, '}')
}

func appendAny(b []byte, value any) []byte {
	text, err := json.Marshal(value)
	if err != nil {
		panic("bug: a job cannot be written as JSON: " + err.Error())
	}
	return append(b, text...)
}
