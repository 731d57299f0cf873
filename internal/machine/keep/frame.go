package keep

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
)

// version of the protocol, in the first byte of every frame.
const version = 1

// MaxFrame bounds a frame's payload. It is more than the kernel allows for
// arguments and environment.
const MaxFrame = 8 << 20

const frameHeader = 6

// FrameKind is the kind of a frame. Readers skip unknown kinds.
type FrameKind byte

// Protocol is the version that a supervisor reports in its greeting and its
// records; none means the first. The second added orders with a credential, a
// terminal and limits, the third orders with an MPS server and a CPU affinity.
// The fourth answers a ping and reports processes that outlive KILL. The fifth
// parks jobs.
const Protocol = 5

// ProtocolCareful is the first version that understands every field that makes an
// order careful (Order.Careful).
const ProtocolCareful = 3

// ProtocolPark is the first version that parks jobs.
const ProtocolPark = 5

// ProtocolPing is the first version that answers a ping.
const ProtocolPing = 4

// ProtocolTerminal is the first version whose terminals can be attached to.
const ProtocolTerminal = 2

// Frames to the supervisor, and from it.
const (
	FrameGo          FrameKind = 'g' // an order: run it
	FrameGoCarefully FrameKind = 'G' // an order for supervisors that understand all of it
	FrameBerth       FrameKind = 'b' // the first frame of a newer berth
	FrameStop        FrameKind = 's' // stop the job: job, attempt, why, grace_ms
	FrameWarn        FrameKind = 'n' // send the job its warning signal, once for each stamp: job, attempt, stamp
	FrameAck         FrameKind = 'a' // its end is on disk: job, attempt
	FramePing        FrameKind = 'p' // answer with the same frame
	FramePark        FrameKind = 'k' // park the job: job, attempt, patience_ms, host_mib
	FrameResume      FrameKind = 'K' // resume it: job, attempt, and for each card hold, "UUID MIB"

	FrameHello   FrameKind = 'h' // the greeting: protocol, token, pid, start_ticks, boot_id, state, job, attempt
	FrameStarted FrameKind = 'r' // the job runs: record
	FrameStuck   FrameKind = 'u' // a process of it outlived KILL: job, attempt, pid, process_state, others
	FrameParked  FrameKind = 'q' // what it is now: job, attempt, parked, busy, why, took_us
	FrameEnded   FrameKind = 'e' // no process of it is left: record
)

// Frames of a connection to a job's terminal, in both directions. The last from
// the supervisor is FrameEnded, with why if there was nothing to attach to.
const (
	FrameAttach FrameKind = 't' // the first: rows, cols, and job and attempt, which must match
	FrameInput  FrameKind = 'i' // typed input: data
	FrameResize FrameKind = 'w' // rows, cols
	FrameOutput FrameKind = 'o' // data: first the recent output, then all new output
)

// Frame is one message. Fields keep their order and may repeat, which is how
// lists are sent; readers skip unknown keys.
type Frame struct {
	Kind   FrameKind
	Fields []Field
}

// Field is one named value.
type Field struct{ Key, Value string }

// Message is a frame of keys and values in turn.
func Message(kind FrameKind, pairs ...any) Frame {
	f := Frame{Kind: kind}
	for i := 0; i < len(pairs); i += 2 {
		f.Fields = append(f.Fields, Field{pairs[i].(string), fmt.Sprint(pairs[i+1])})
	}
	return f
}

// ErrFrame is a malformed frame.
var ErrFrame = errors.New("malformed frame")

// Get is the first value of that key, or "".
func (f Frame) Get(key string) string {
	for _, field := range f.Fields {
		if field.Key == key {
			return field.Value
		}
	}
	return ""
}

// all are the values of that key, in order.
func (f Frame) all(key string) []string {
	var values []string
	for _, field := range f.Fields {
		if field.Key == key {
			values = append(values, field.Value)
		}
	}
	return values
}

// Encode renders the frame. The error is ErrFrame if it is too long.
func (f Frame) Encode() ([]byte, error) {
	size := 0
	for _, field := range f.Fields {
		size += 8 + len(field.Key) + len(field.Value)
	}
	if size > MaxFrame {
		return nil, fmt.Errorf("%w: expected at most %d bytes, found %d", ErrFrame, MaxFrame, size)
	}
	out := make([]byte, 0, frameHeader+size)
	out = append(out, version, byte(f.Kind))
	out = binary.BigEndian.AppendUint32(out, uint32(size))
	for _, field := range f.Fields {
		out = binary.BigEndian.AppendUint32(out, uint32(len(field.Key)))
		out = append(out, field.Key...)
		out = binary.BigEndian.AppendUint32(out, uint32(len(field.Value)))
		out = append(out, field.Value...)
	}
	return out, nil
}

// ReadFrame reads one frame. io.EOF means that the other side closed the
// connection between frames; a truncated frame is io.ErrUnexpectedEOF.
func ReadFrame(r io.Reader) (Frame, error) { return readFrame(r, MaxFrame) }

func readFrame(r io.Reader, most uint32) (Frame, error) {
	var header [frameHeader]byte
	if _, err := io.ReadFull(r, header[:]); err != nil {
		return Frame{}, err
	}
	if header[0] != version {
		return Frame{}, fmt.Errorf("%w: protocol version %d", ErrFrame, header[0])
	}
	size := binary.BigEndian.Uint32(header[2:])
	if size > most {
		return Frame{}, fmt.Errorf("%w: expected at most %d bytes, found %d", ErrFrame, most, size)
	}
	payload := make([]byte, size)
	if _, err := io.ReadFull(r, payload); err != nil {
		if errors.Is(err, io.EOF) {
			err = io.ErrUnexpectedEOF
		}
		return Frame{}, err
	}
	// The values are substrings of one string, so a large order is stored once.
	fields, err := decodeFields(string(payload))
	return Frame{Kind: FrameKind(header[1]), Fields: fields}, err
}

func decodeFields(payload string) ([]Field, error) {
	var fields []Field
	for len(payload) > 0 {
		var f Field
		var ok bool
		if f.Key, payload, ok = cutString(payload); !ok {
			return nil, fmt.Errorf("%w: truncated key", ErrFrame)
		}
		if f.Value, payload, ok = cutString(payload); !ok {
			return nil, fmt.Errorf("%w: truncated value of %q", ErrFrame, f.Key)
		}
		fields = append(fields, f)
	}
	return fields, nil
}

func cutString(b string) (s, rest string, ok bool) {
	if len(b) < 4 {
		return "", "", false
	}
	size := uint64(b[0])<<24 | uint64(b[1])<<16 | uint64(b[2])<<8 | uint64(b[3])
	b = b[4:]
	if size > uint64(len(b)) {
		return "", "", false
	}
	return b[:size], b[size:], true
}
