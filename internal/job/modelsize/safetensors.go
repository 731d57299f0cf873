package modelsize

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"slices"
	"strings"

	"berth/internal/text"
)

const (
	// maxHeader bounds the header of one file. The format allows 100 MB, which
	// no model comes near: a thousand tensors take 0.1 MB.
	maxHeader = 16 << 20
	// MaxIndex bounds model.safetensors.index.json.
	MaxIndex = 32 << 20
	// MaxShards bounds the files of one model.
	MaxShards = 1024

	maxDims = 16
)

// Weights are the tensors of a model, summed up.
type Weights struct {
	Params int64 // numbers in all tensors
	Bytes  int64 // as stored
	Float  int64 // params of the types that --dtype converts
	Kept   int64 // bytes of the other tensors
	Matrix int64 // params of the matrices of linear layers, without the last
	Head   int64 // params of the last: one column for each word of the vocabulary
	// LoRA is the sum of rows and columns of these matrices: each takes that many
	// params for each rank.
	LoRA  int64
	Gated bool            // the MLP has a gate beside its first matrix, as Llama's has
	Types map[string]bool // as the file calls them
}

func (w *Weights) add(name, kind string, dims []int64, params, size int64, float bool) {
	w.Params += params
	w.Bytes += size
	if float {
		w.Float += params
	} else {
		w.Kept += size
	}
	if len(dims) == 2 && !strings.Contains(name, "embed") && !strings.Contains(name, "wte") && !strings.Contains(name, "wpe") {
		if strings.Contains(name, "lm_head") {
			w.Head += params
		} else {
			w.Matrix += params
			w.LoRA += dims[0] + dims[1]
		}
	}
	for _, gate := range []string{"gate_proj", "gate_up_proj", "ffn_gate", ".w3."} {
		w.Gated = w.Gated || strings.Contains(name, gate)
	}
	if w.Types == nil {
		w.Types = map[string]bool{}
	}
	w.Types[kind] = true
}

// TypeNames are the types of the tensors, as their files call them.
func (w Weights) TypeNames() []string { return slices.Sorted(maps.Keys(w.Types)) }

// Add adds the tensors of another file of the same model.
func (w *Weights) Add(other Weights) error {
	for _, sum := range []struct{ to, of *int64 }{
		{&w.Params, &other.Params}, {&w.Bytes, &other.Bytes}, {&w.Float, &other.Float}, {&w.Kept, &other.Kept}, {&w.Matrix, &other.Matrix}, {&w.Head, &other.Head}, {&w.LoRA, &other.LoRA},
	} {
		if *sum.to > math.MaxInt64-*sum.of {
			return errors.New("expected a model that fits into a file system, found more")
		}
		*sum.to += *sum.of
	}
	w.Gated = w.Gated || other.Gated
	for kind := range other.Types {
		if w.Types == nil {
			w.Types = map[string]bool{}
		}
		w.Types[kind] = true
	}
	return nil
}

// safetensorsBits is how long one number of a type is.
var safetensorsBits = map[string]int64{
	"BOOL": 8, "U8": 8, "I8": 8, "F8_E5M2": 8, "F8_E4M3": 8, "F8_E8M0": 8, "I16": 16, "U16": 16, "F16": 16, "BF16": 16,
	"I32": 32, "U32": 32, "F32": 32, "F64": 64, "I64": 64, "U64": 64, "F4": 4, "F6_E2M3": 6, "F6_E3M2": 6, "C64": 64,
}

// ReadSafetensors reads the header of a safetensors file of this size.
func ReadSafetensors(file io.ReaderAt, size int64) (Weights, error) {
	var first [8]byte
	if _, err := file.ReadAt(first[:], 0); err != nil {
		return Weights{}, fmt.Errorf("expected a safetensors file, found %s", text.Count(size, "byte"))
	}
	if string(first[:]) == "version " {
		return Weights{}, errors.New("expected a safetensors file, found a pointer of Git LFS; git lfs pull fetches the file")
	}
	length := binary.LittleEndian.Uint64(first[:])
	switch {
	case length > maxHeader:
		return Weights{}, fmt.Errorf("expected a header of at most %d MiB, found a claim of %d bytes", maxHeader>>20, length)
	case int64(length) > size-8:
		return Weights{}, fmt.Errorf("expected a header of %d bytes, found a file of %d", length, size)
	}
	header := make([]byte, length)
	if _, err := file.ReadAt(header, 8); err != nil {
		return Weights{}, fmt.Errorf("read the header: %w", err)
	}
	return parseHeader(header, size-8-int64(length))
}

// tensor is an entry of a header.
type tensor struct {
	DType   string  `json:"dtype"`
	Shape   []int64 `json:"shape"`
	Offsets []int64 `json:"data_offsets"`
}

// parseHeader reads the entries one by one: the header as one value would take
// many times its length.
func parseHeader(header []byte, data int64) (w Weights, err error) {
	d := json.NewDecoder(bytes.NewReader(header))
	if t, err := d.Token(); err != nil || t != json.Delim('{') {
		return w, errors.New("expected a header in JSON, found something else")
	}
	for d.More() {
		key, err := d.Token()
		if err != nil {
			return w, fmt.Errorf("the header is damaged: %w", err)
		}
		name, _ := key.(string) // a key is always a string
		if name == "__metadata__" {
			var skipped json.RawMessage
			if err := d.Decode(&skipped); err != nil {
				return w, fmt.Errorf("the header is damaged: %w", err)
			}
			continue
		}
		var t tensor
		if err := d.Decode(&t); err != nil {
			return w, fmt.Errorf("tensor %s: %w", text.Found(name), err)
		}
		if err := w.addTensor(name, t, data); err != nil {
			return w, fmt.Errorf("tensor %s: %w", text.Found(name), err)
		}
	}
	if _, err := d.Token(); err != nil {
		return w, fmt.Errorf("the header is damaged: %w", err)
	}
	if w.Bytes > data {
		return w, fmt.Errorf("expected %d bytes of tensors, found a file with %d", w.Bytes, data)
	}
	return w, nil
}

func (w *Weights) addTensor(name string, t tensor, data int64) error {
	if len(t.Offsets) != 2 || t.Offsets[0] < 0 || t.Offsets[1] < t.Offsets[0] {
		return fmt.Errorf("expected data_offsets [BEGIN, END], found %v", t.Offsets[:min(len(t.Offsets), 4)])
	}
	if t.Offsets[1] > data {
		return fmt.Errorf("ends at byte %d, but the file has %d bytes of tensors: it is cut off", t.Offsets[1], data)
	}
	params, err := product(t.Shape)
	if err != nil {
		return err
	}
	size := t.Offsets[1] - t.Offsets[0]
	bits := safetensorsBits[t.DType]
	if bits > 0 && (params > math.MaxInt64/bits || (params*bits+7)/8 != size) {
		return fmt.Errorf("expected %d numbers of type %s, found %d bytes", params, t.DType, size)
	}
	if w.Bytes > math.MaxInt64-size || w.Params > math.MaxInt64-params {
		return errors.New("its size and those before it overflow")
	}
	w.add(name, t.DType, t.Shape, params, size, slices.Contains([]string{"F16", "BF16", "F32", "F64"}, t.DType))
	return nil
}

func product(dims []int64) (int64, error) {
	if len(dims) > maxDims {
		return 0, fmt.Errorf("expected at most %d dimensions, found %d", maxDims, len(dims))
	}
	params := int64(1)
	for _, n := range dims {
		if n < 0 || n > 0 && params > math.MaxInt64/n {
			return 0, fmt.Errorf("expected a shape such as [4096, 4096], found %v", dims)
		}
		params *= n
	}
	return params, nil
}

// ParseIndex reads model.safetensors.index.json and returns the files it names,
// each once. They are in the same directory.
func ParseIndex(content []byte) ([]string, error) {
	if len(content) > MaxIndex {
		return nil, fmt.Errorf("expected at most %d MiB, found more", MaxIndex>>20)
	}
	var index struct {
		WeightMap map[string]string `json:"weight_map"`
	}
	if err := json.Unmarshal(content, &index); err != nil {
		return nil, fmt.Errorf("expected {\"weight_map\": {\"TENSOR\": \"FILE\"}}: %w", err)
	}
	seen := map[string]bool{}
	var files []string
	for _, file := range index.WeightMap {
		if seen[file] {
			continue
		}
		if file == "" || file == "." || file == ".." || strings.ContainsAny(file, "/\\\x00") || !strings.HasSuffix(file, ".safetensors") {
			return nil, fmt.Errorf("expected the name of a safetensors file in the same directory, found %s", text.Found(file))
		}
		seen[file] = true
		if files = append(files, file); len(files) > MaxShards {
			return nil, fmt.Errorf("expected at most %d files, found more", MaxShards)
		}
	}
	if len(files) == 0 {
		return nil, errors.New("expected {\"weight_map\": {\"TENSOR\": \"FILE\"}}, found no file")
	}
	slices.Sort(files)
	return files, nil
}
