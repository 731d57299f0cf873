package api

import (
	"encoding/json"
	"strconv"
	"time"
	"unicode/utf8"

	"berth/internal/job"
)

// decodePage reads a page as the server writes it, and any other with encoding/json.
func decodePage(data []byte, page *JobPage) error {
	r := reader{rest: data}
	r.list(`{"jobs":[`, "]", func() { page.Jobs = append(page.Jobs, r.view()) })
	if r.odd || len(page.Jobs) == 0 || !r.skip(",") {
		*page = JobPage{}
		return json.Unmarshal(data, page)
	}
	return json.Unmarshal(append([]byte("{"), r.rest...), page)
}

// decodeEvent reads an event likewise.
func decodeEvent(data []byte, e *Event) error {
	r := reader{rest: data}
	r.want("{")
	if r.skip(`"seq":`) {
		e.Seq = readInt[int64](&r)
		r.want(",")
	}
	e.Time = readTime(r.after(`"time":`))
	e.Kind = readText[job.EventKind](r.after(`,"event":`))
	if r.skip(`,"job":`) {
		v := r.view()
		e.Job = &v
	}
	if r.skip(`,"text":`) {
		e.Text = readText[string](&r)
	}
	if r.want("}"); r.odd || len(r.rest) > 0 {
		*e = Event{}
		return json.Unmarshal(data, e)
	}
	return nil
}

// reader reads back what appendView wrote, in its order: asking for the name and the
// type of each field took a client most of its time.
type reader struct {
	rest []byte
	odd  bool // it was written in another way, by a newer daemon perhaps
}

func (r *reader) view() job.View {
	v := job.View{
		ID:          readText[string](r.after(`{"id":`)),
		Name:        readText[string](r.after(`,"name":`)),
		User:        readText[string](r.after(`,"user":`)),
		State:       readText[job.State](r.after(`,"state":`)),
		Outcome:     orNil(r.after(`,"outcome":`), readText[job.Outcome]),
		Reason:      orNil(r.after(`,"reason":`), readText[string]),
		Priority:    readInt[int](r.after(`,"priority":`)),
		Command:     orNil(r.after(`,"command":`), readText[string]),
		GPUs:        readInt[int](r.after(`,"gpus":`)),
		Share:       orNil(r.after(`,"share":`), readFloat),
		VRAMMiB:     orNil(r.after(`,"vram_mib":`), readInt[int64]),
		GPUIDs:      readInts(r.after(`,"gpu_ids":`)),
		AskedIDs:    readInts(r.after(`,"asked_ids":`)),
		Attempt:     readInt[int](r.after(`,"attempt":`)),
		SubmittedAt: orNil(r.after(`,"submitted_at":`), readTime),
		StartedAt:   orNil(r.after(`,"started_at":`), readTime),
		EndedAt:     orNil(r.after(`,"ended_at":`), readTime),
		ExitCode:    orNil(r.after(`,"exit_code":`), readInt[int]),
		Signal:      orNil(r.after(`,"signal":`), readText[string]),
		PeakVRAMMiB: readMap(r.after(`,"peak_vram_mib":`), readInt[int64]),
		AvgUtil:     orNil(r.after(`,"avg_util":`), readFloat),
		ChargedGPUs: orNil(r.after(`,"charged_gpus":`), readFloat),
		Log:         orNil(r.after(`,"log":`), readText[string]),
		IdleSince:   orNil(r.after(`,"idle_since":`), readTime),
		Preemptions: readInt[int](r.after(`,"preemptions":`)),
		Held:        readBool(r.after(`,"held":`)),
		Group:       orNil(r.after(`,"group":`), readText[string]),
		Batch:       orNil(r.after(`,"batch":`), readText[string]),
		Parkings:    readInt[int](r.after(`,"parkings":`)),
		ParkedS:     readFloat(r.after(`,"parked_s":`)),
		ParkedSince: orNil(r.after(`,"parked_since":`), readTime),
		HostMiB:     orNil(r.after(`,"host_mib":`), readInt[int64]),
		Parking:     orNil(r.after(`,"parking":`), readText[job.ParkPhase]),
		ParkRefused: orNil(r.after(`,"park_refused":`), readText[string]),
		Checkpoints: orNil(r.after(`,"checkpoints":`), readCheckpoints),
		Slurm:       orNil(r.after(`,"slurm":`), readSlurm),
		Sweep:       orNil(r.after(`,"sweep":`), readText[string]),
		Params:      readMap(r.after(`,"params":`), readText[string]),
	}
	r.want("}")
	return v
}

// spec reads a spec whose command is a line or words, and whose other values are texts.
func (r *reader) spec(s *Spec) {
	texts, at := s.texts(), 0
	r.list("{", "}", func() {
		key := r.value()
		r.want(":")
		if string(key) == `"command"` {
			if len(r.rest) > 0 && r.rest[0] == '[' {
				r.list("[", "]", func() { s.Command.Argv = append(s.Command.Argv, readText[string](r)) })
				return
			}
			s.Command.Shell = readText[string](r)
			return
		}
		// They mostly come in this order.
		for range textKeys {
			if k := textKeys[at]; len(key) == len(k)+2 && string(key[1:len(k)+1]) == k {
				*texts[at] = readText[Text](r)
				return
			}
			at = (at + 1) % len(textKeys)
		}
		r.odd, r.rest = true, nil
	})
}

func readCheckpoints(r *reader) job.CheckpointsView {
	k := job.CheckpointsView{
		EveryS:    orNil(r.after(`{"every_s":`), readFloat),
		RanS:      readFloat(r.after(`,"ran_s":`)),
		LostS:     readFloat(r.after(`,"lost_s":`)),
		GraceS:    readFloat(r.after(`,"grace_s":`)),
		StoppingS: readFloat(r.after(`,"stopping_s":`)),
		SavedAt:   orNil(r.after(`,"saved_at":`), readTime),
	}
	r.want("}")
	return k
}

func readSlurm(r *reader) job.SlurmView {
	s := job.SlurmView{
		ID:     orNil(r.after(`{"id":`), readText[string]),
		Node:   orNil(r.after(`,"node":`), readText[string]),
		GPUIDs: readInts(r.after(`,"gpu_ids":`)),
	}
	r.want("}")
	return s
}

// skip passes a text if it comes next, and reports whether it did.
func (r *reader) skip(text string) bool {
	if len(r.rest) < len(text) || string(r.rest[:len(text)]) != text {
		return false
	}
	r.rest = r.rest[len(text):]
	return true
}

func (r *reader) want(text string) {
	if !r.skip(text) {
		r.odd, r.rest = true, nil
	}
}

func (r *reader) after(text string) *reader {
	r.want(text)
	return r
}

// list calls read for each value between two brackets.
func (r *reader) list(open, end string, read func()) {
	if r.want(open); r.skip(end) {
		return
	}
	for read(); r.skip(","); read() {
	}
	r.want(end)
}

// value is the next number, or the next text with its quotes.
func (r *reader) value() []byte {
	end, quoted := 1, len(r.rest) > 0 && r.rest[0] == '"'
	for ; end < len(r.rest); end++ {
		c := r.rest[end]
		if quoted && c == '"' {
			end++
			break
		}
		if quoted && c == '\\' {
			end++
		}
		if !quoted && (c == ',' || c == '}' || c == ']') {
			break
		}
	}
	end = min(end, len(r.rest))
	value := r.rest[:end]
	r.rest = r.rest[end:]
	return value
}

func orNil[T any](r *reader, read func(*reader) T) *T {
	if r.skip("null") {
		return nil
	}
	value := read(r)
	return &value
}

// readText leaves texts with escapes to encoding/json.
func readText[S ~string](r *reader) S {
	value := r.value()
	if len(value) < 2 || value[0] != '"' {
		r.odd = true
		return ""
	}
	for _, c := range value {
		if c == '\\' || c < ' ' || c >= utf8.RuneSelf {
			var text S
			r.odd = json.Unmarshal(value, &text) != nil || r.odd
			return text
		}
	}
	return S(value[1 : len(value)-1])
}

func readInt[N int | int64](r *reader) N {
	n, err := strconv.ParseInt(string(r.value()), 10, 64)
	r.odd = r.odd || err != nil
	return N(n)
}

func readFloat(r *reader) float64 {
	f, err := strconv.ParseFloat(string(r.value()), 64)
	r.odd = r.odd || err != nil
	return f
}

func readBool(r *reader) bool {
	is := r.skip("true")
	r.odd = !is && !r.skip("false") || r.odd
	return is
}

func readTime(r *reader) (t time.Time) {
	r.odd = t.UnmarshalJSON(r.value()) != nil || r.odd
	return t
}

func readInts(r *reader) []int {
	if r.skip("null") {
		return nil
	}
	list := []int{}
	r.list("[", "]", func() { list = append(list, readInt[int](r)) })
	return list
}

func readMap[T any](r *reader, read func(*reader) T) map[string]T {
	if r.skip("null") {
		return nil
	}
	values := map[string]T{}
	r.list("{", "}", func() {
		key := readText[string](r)
		values[key] = read(r.after(":"))
	})
	return values
}
