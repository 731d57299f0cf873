package modelsize

import (
	"bufio"
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"strings"

	"berth/internal/text"
)

const (
	maxGGUFHeader = 128 << 20 // read, not kept: a vocabulary takes some MB
	maxGGUFKeys   = 1 << 16
	maxTensors    = 1 << 18
	maxGGUFText   = 1 << 12 // of a key, a name or the architecture
	maxNesting    = 4       // lists in lists
)

// GGUF is what the header of a GGUF file says.
type GGUF struct {
	Shape   Shape
	Weights Weights
	Split   int // how many files the model has; 0 or 1: this one
}

// ggmlType is a type of numbers, stored in blocks.
type ggmlType struct {
	name         string
	block, bytes int64
}

var ggmlTypes = map[uint32]ggmlType{
	0: {"F32", 1, 4}, 1: {"F16", 1, 2}, 2: {"Q4_0", 32, 18}, 3: {"Q4_1", 32, 20}, 6: {"Q5_0", 32, 22}, 7: {"Q5_1", 32, 24},
	8: {"Q8_0", 32, 34}, 9: {"Q8_1", 32, 36}, 10: {"Q2_K", 256, 84}, 11: {"Q3_K", 256, 110}, 12: {"Q4_K", 256, 144},
	13: {"Q5_K", 256, 176}, 14: {"Q6_K", 256, 210}, 15: {"Q8_K", 256, 292}, 16: {"IQ2_XXS", 256, 66}, 17: {"IQ2_XS", 256, 74},
	18: {"IQ3_XXS", 256, 98}, 19: {"IQ1_S", 256, 50}, 20: {"IQ4_NL", 32, 18}, 21: {"IQ3_S", 256, 110}, 22: {"IQ2_S", 256, 82},
	23: {"IQ4_XS", 256, 136}, 24: {"I8", 1, 1}, 25: {"I16", 1, 2}, 26: {"I32", 1, 4}, 27: {"I64", 1, 8}, 28: {"F64", 1, 8},
	29: {"IQ1_M", 256, 56}, 30: {"BF16", 1, 2}, 34: {"TQ1_0", 256, 54}, 35: {"TQ2_0", 256, 66}, 39: {"MXFP4", 32, 17},
}

// ReadGGUF reads the header of a GGUF file of this size.
func ReadGGUF(file io.ReaderAt, size int64) (GGUF, error) {
	header := io.NewSectionReader(file, 0, min(size, maxGGUFHeader))
	r := &ggufReader{in: bufio.NewReaderSize(header, 1<<16), size: size, numbers: map[string]float64{}}
	g := r.read()
	switch {
	case r.err == nil:
		return g, nil
	case !errors.Is(r.err, io.EOF) && !errors.Is(r.err, io.ErrUnexpectedEOF):
		return GGUF{}, r.err
	case size > maxGGUFHeader:
		return GGUF{}, fmt.Errorf("expected a header of at most %d MiB, found more", maxGGUFHeader>>20)
	}
	return GGUF{}, fmt.Errorf("expected more of the header after %d bytes: the file is cut off", size)
}

// ggufReader keeps the first error; later reads return zeros.
type ggufReader struct {
	in      *bufio.Reader
	size    int64
	at      int64 // bytes read
	err     error
	wide    bool // counts have 64 bits
	numbers map[string]float64
	arch    string
}

func (r *ggufReader) fail(format string, args ...any) {
	if r.err == nil {
		r.err = fmt.Errorf(format, args...)
	}
}

func (r *ggufReader) read() (g GGUF) {
	var magic [4]byte
	r.fill(magic[:])
	if r.err == nil && string(magic[:]) != "GGUF" {
		r.fail("expected a GGUF file, found %s", text.Found(string(magic[:])))
	}
	version := r.u32()
	if r.err == nil && (version < 1 || version > 3) {
		r.fail("expected GGUF version 1, 2 or 3, found %d", version)
	}
	r.wide = version > 1
	tensors := r.count("tensors", maxTensors)
	keys := r.count("keys", maxGGUFKeys)
	for i := uint64(0); i < keys && r.err == nil; i++ {
		r.pair()
	}
	end := int64(0) // of the tensors, from the first
	for i := uint64(0); i < tensors && r.err == nil; i++ {
		end = max(end, r.tensor(&g.Weights))
	}
	if r.err != nil {
		return g
	}
	align := int64(32)
	if n := r.numbers["general.alignment"]; n >= 1 && n <= 1<<20 {
		align = int64(n)
	}
	start := (r.at + align - 1) / align * align
	if end > r.size-start {
		r.fail("expected %d bytes of tensors, found %d: the file is cut off", end, max(r.size-start, 0))
	}
	g.Shape, g.Split = r.shape(), int(r.numbers["split.count"])
	if g.Split < 0 || g.Split > MaxShards {
		r.fail("expected at most %d files, found a claim of %g", MaxShards, r.numbers["split.count"])
	}
	return g
}

// shape takes the network from the keys, which begin with the architecture.
func (r *ggufReader) shape() Shape {
	arch := r.arch
	count := func(key string) float64 {
		if n := r.numbers[arch+"."+key]; n > 0 && n <= maxCount && n == math.Trunc(n) {
			return n
		}
		return 0
	}
	s := Shape{
		Architecture: arch, Layers: count("block_count"), Hidden: count("embedding_length"),
		Heads: count("attention.head_count"), KVHeads: count("attention.head_count_kv"), HeadDim: count("attention.key_length"),
		Intermediate: count("feed_forward_length"), Vocab: count("vocab_size"), MaxContext: count("context_length"),
		Window: count("attention.sliding_window"),
	}
	if s.Vocab == 0 {
		s.Vocab = r.numbers["tokenizer.ggml.tokens"]
	}
	if used := count("expert_used_count"); used > 0 {
		expert := count("expert_feed_forward_length")
		expert = cmp.Or(expert, s.Intermediate)
		s.Intermediate = max(s.Intermediate, expert*used)
	}
	s.complete()
	return s
}

// tensor reads one entry and returns where its data ends.
func (r *ggufReader) tensor(w *Weights) (end int64) {
	name := r.text()
	n := r.u32()
	if r.err == nil && n > maxDims {
		r.fail("tensor %s: expected at most %d dimensions, found %d", text.Found(name), maxDims, n)
	}
	dims := make([]int64, 0, maxDims)
	for i := uint32(0); i < n && r.err == nil; i++ {
		d := r.size64()
		if d > math.MaxInt64 {
			r.fail("tensor %s: expected a dimension, found %d", text.Found(name), d)
		}
		dims = append(dims, int64(d))
	}
	kind := r.u32()
	offset := r.u64()
	if r.err != nil {
		return 0
	}
	params, err := product(dims)
	t, known := ggmlTypes[kind]
	switch {
	case err != nil:
		r.fail("tensor %s: %w", text.Found(name), err)
	case !known:
		r.fail("tensor %s: its type, number %d, is unknown to this version of berth", text.Found(name), kind)
	case params/t.block > r.size/t.bytes || offset > uint64(r.size):
		r.fail("tensor %s: %d numbers of type %s at byte %d do not fit into the file: it is cut off", text.Found(name), params, t.name, offset)
	}
	if r.err != nil {
		return 0
	}
	size := (params + t.block - 1) / t.block * t.bytes
	if w.Bytes > math.MaxInt64-size || w.Params > math.MaxInt64-params {
		r.fail("tensor %s: its size and those before it overflow", text.Found(name))
		return 0
	}
	w.add(name, t.name, dims, params, size, false)
	return int64(offset) + size
}

// The types of a key's value.
const (
	ggufText = 8
	ggufList = 9
)

var ggufWidth = map[uint32]int64{0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}

// pair reads a key with its value, and keeps numbers: of a list of numbers the
// largest, of another its length.
func (r *ggufReader) pair() {
	key := r.text()
	switch kind := r.u32(); kind {
	case ggufText:
		if key == "general.architecture" {
			r.arch = r.text()
		} else {
			r.skip(r.size64())
		}
	case ggufList:
		r.numbers[key] = r.list(0)
	default:
		r.numbers[key] = r.number(kind)
	}
}

func (r *ggufReader) list(depth int) (most float64) {
	kind := r.u32()
	n := r.size64()
	switch width := ggufWidth[kind]; {
	case r.err != nil:
	case depth == maxNesting:
		r.fail("expected lists %d deep, found deeper ones", maxNesting)
	case width > 0 && n > maxTensors: // no list of layers is that long
		if n > maxGGUFHeader {
			r.fail("expected a list of at most %d items, found a claim of %d", maxGGUFHeader, n)
			return 0
		}
		r.skip(n * uint64(width))
		return float64(n)
	case width > 0:
		for i := uint64(0); i < n && r.err == nil; i++ {
			most = max(most, r.number(kind))
		}
		return most
	case kind == ggufText || kind == ggufList:
		for i := uint64(0); i < n && r.err == nil; i++ {
			if kind == ggufText {
				r.skip(r.size64())
			} else {
				r.list(depth + 1)
			}
		}
		return float64(n)
	default:
		r.fail("expected a list of a known type, found type %d", kind)
	}
	return 0
}

func (r *ggufReader) number(kind uint32) float64 {
	var raw [8]byte
	width, known := ggufWidth[kind]
	if !known {
		r.fail("expected a value of a known type, found type %d", kind)
		return 0
	}
	r.fill(raw[:width])
	bits := binary.LittleEndian.Uint64(raw[:])
	switch kind {
	case 1:
		return float64(int8(bits))
	case 3:
		return float64(int16(bits))
	case 5:
		return float64(int32(bits))
	case 6:
		return float64(math.Float32frombits(uint32(bits)))
	case 11:
		return float64(int64(bits))
	case 12:
		return math.Float64frombits(bits)
	}
	return float64(bits)
}

func (r *ggufReader) count(what string, most uint64) uint64 {
	n := r.size64()
	if r.err == nil && n > most {
		r.fail("expected at most %d %s, found a claim of %d", most, what, n)
	}
	return n
}

// text reads a short text: a key or a name.
func (r *ggufReader) text() string {
	n := r.size64()
	if r.err == nil && n > maxGGUFText {
		r.fail("expected a name of at most %d bytes, found a claim of %d", maxGGUFText, n)
	}
	if r.err != nil {
		return ""
	}
	word := make([]byte, n)
	r.fill(word)
	return strings.ToValidUTF8(string(word), "?")
}

func (r *ggufReader) size64() uint64 {
	if r.wide {
		return r.u64()
	}
	return uint64(r.u32())
}

func (r *ggufReader) u32() uint32 {
	var raw [4]byte
	r.fill(raw[:])
	return binary.LittleEndian.Uint32(raw[:])
}

func (r *ggufReader) u64() uint64 {
	var raw [8]byte
	r.fill(raw[:])
	return binary.LittleEndian.Uint64(raw[:])
}

func (r *ggufReader) fill(to []byte) {
	if r.err != nil {
		return
	}
	n, err := io.ReadFull(r.in, to)
	r.at += int64(n)
	if r.err = err; err != nil {
		clear(to)
	}
}

func (r *ggufReader) skip(n uint64) {
	if r.err == nil && n > maxGGUFHeader {
		r.err = io.ErrUnexpectedEOF
	}
	if r.err != nil {
		return
	}
	skipped, err := r.in.Discard(int(n))
	r.at += int64(skipped)
	r.err = err
}
