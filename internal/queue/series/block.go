package series

import (
	"encoding/binary"
	"errors"
	"hash/crc32"
	"math"
	"time"
)

// A file has the points of one hour: a header, and blocks with some points of
// one track each. Numbers are little endian.
//
//	header  "berth samples 1\n", how far it is thinned (1 byte)
//	block   length of the body (4 bytes), its CRC-32C (4), body
//	body    kind (1), attempt, GPU, owner, id, points (13 bytes each)
//	point   milliseconds of the hour (4), MiB (4), watts (2), utilisation in half
//	        percents (1), degrees (1), flags (1); all bits set: not measured
const (
	magic       = "berth samples 1\n"
	headerBytes = len(magic) + 1
	frameBytes  = 8
	pointBytes  = 13
	maxBody     = 1 << 20
	maxName     = 4 << 10
	flagBegins  = 1
)

// errDamaged means that the rest of a file cannot be read.
var errDamaged = errors.New("damaged")

// appendBlock adds one block. Points outside of the hour are an error of the
// caller.
func appendBlock(buf []byte, hour time.Time, t Track, points []Point) []byte {
	frame := len(buf)
	buf = append(buf, make([]byte, frameBytes)...)
	buf = append(buf, byte(t.Kind))
	buf = binary.AppendUvarint(buf, uint64(t.Attempt))
	buf = binary.AppendUvarint(buf, uint64(t.GPU))
	for _, name := range []string{t.Owner, t.ID} {
		name = name[:min(len(name), maxName)]
		buf = append(binary.AppendUvarint(buf, uint64(len(name))), name...)
	}
	for _, p := range points {
		buf = binary.LittleEndian.AppendUint32(buf, uint32(p.At.Sub(hour).Milliseconds()))
		buf = binary.LittleEndian.AppendUint32(buf, uint32(stored(float64(p.MiB), math.MaxUint32)))
		buf = binary.LittleEndian.AppendUint16(buf, uint16(stored(p.PowerW, math.MaxUint16)))
		flags := byte(0)
		if p.Begins {
			flags = flagBegins
		}
		buf = append(buf, byte(stored(2*p.UtilPct, math.MaxUint8)), byte(stored(p.TempC, math.MaxUint8)), flags)
	}
	body := buf[frame+frameBytes:]
	binary.LittleEndian.PutUint32(buf[frame:], uint32(len(body)))
	binary.LittleEndian.PutUint32(buf[frame+4:], crc32.Checksum(body, crc32.MakeTable(crc32.Castagnoli)))
	return buf
}

// stored is a number as a file has it: rounded, bounded, and the largest one for
// unknown.
func stored(value float64, unknown uint64) uint64 {
	if value < 0 || math.IsNaN(value) {
		return unknown
	}
	return uint64(math.Min(math.Round(value), float64(unknown-1)))
}

func loaded(value, unknown uint64) float64 {
	if value == unknown {
		return Unknown
	}
	return float64(value)
}

// block is one of a file, with its points still encoded.
type block struct {
	track  Track
	points []byte
}

// nextBlock splits off the first block. The end is errDamaged with no bytes left.
func nextBlock(data []byte) (b block, rest []byte, err error) {
	if len(data) < frameBytes {
		return b, data, errDamaged
	}
	size := binary.LittleEndian.Uint32(data)
	sum := binary.LittleEndian.Uint32(data[4:])
	data = data[frameBytes:]
	if size > maxBody || int(size) > len(data) || crc32.Checksum(data[:size], crc32.MakeTable(crc32.Castagnoli)) != sum {
		return b, nil, errDamaged
	}
	body, rest := data[:size], data[size:]
	if len(body) == 0 {
		return b, nil, errDamaged
	}
	b.track.Kind = Kind(body[0])
	body = body[1:]
	number := func() uint64 {
		n, used := binary.Uvarint(body)
		if used <= 0 || n > math.MaxInt32 {
			err, used, n = errDamaged, 0, 0
		}
		body = body[used:]
		return n
	}
	name := func() string {
		n := number()
		if n > uint64(len(body)) {
			err, n = errDamaged, 0
		}
		word := string(body[:n])
		body = body[n:]
		return word
	}
	b.track.Attempt, b.track.GPU = int(number()), int(number())
	b.track.Owner, b.track.ID = name(), name()
	if len(body)%pointBytes != 0 {
		err = errDamaged
	}
	b.points = body
	return b, rest, err
}

// appendPoints decodes the points of a block.
func (b block) appendPoints(points []Point, hour time.Time) []Point {
	for data := b.points; len(data) >= pointBytes; data = data[pointBytes:] {
		points = append(points, Point{
			At:      hour.Add(time.Duration(binary.LittleEndian.Uint32(data)) * time.Millisecond),
			MiB:     int64(loaded(uint64(binary.LittleEndian.Uint32(data[4:])), math.MaxUint32)),
			PowerW:  loaded(uint64(binary.LittleEndian.Uint16(data[8:])), math.MaxUint16),
			UtilPct: half(loaded(uint64(data[10]), math.MaxUint8)),
			TempC:   loaded(uint64(data[11]), math.MaxUint8),
			Begins:  data[12]&flagBegins != 0,
		})
	}
	return points
}

func half(value float64) float64 {
	if value < 0 {
		return Unknown
	}
	return value / 2
}
