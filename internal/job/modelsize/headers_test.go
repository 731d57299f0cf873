package modelsize

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"runtime"
	"strings"
	"testing"
)

// safetensors is a file with this header and so many bytes of tensors.
func safetensors(header string, data int) []byte {
	file := binary.LittleEndian.AppendUint64(nil, uint64(len(header)))
	return append(append(file, header...), make([]byte, data)...)
}

const oneTensor = `{"__metadata__":{"format":"pt"},"model.layers.0.mlp.gate_proj.weight":{"dtype":"BF16","shape":[4,8],"data_offsets":[0,64]},` +
	`"lm_head.weight":{"dtype":"F16","shape":[2,8],"data_offsets":[64,96]},"model.embed_tokens.weight":{"dtype":"F32","shape":[2,2],"data_offsets":[96,112]},"q":{"dtype":"U8","shape":[16],"data_offsets":[112,128]}}`

func TestASafetensorsHeaderIsSummedUp(t *testing.T) {
	t.Parallel()
	file := safetensors(oneTensor, 128)
	w, err := ReadSafetensors(bytes.NewReader(file), int64(len(file)))
	if err != nil || w.Params != 32+16+4+16 || w.Bytes != 128 || w.Float != 52 || w.Kept != 16 || w.Matrix != 32 || w.Head != 16 || w.LoRA != 12 || !w.Gated || strings.Join(w.TypeNames(), " ") != "BF16 F16 F32 U8" {
		t.Errorf("%+v %v", w, err)
	}
}

func TestAHostileSafetensorsFileIsRefused(t *testing.T) {
	t.Parallel()
	one := func(entry string) []byte { return safetensors(`{"a":`+entry+`}`, 64) }
	for _, row := range []struct {
		sentence string
		file     []byte
		says     string
	}{
		{"nothing", nil, "found 0 bytes"},
		{"a claim of 100 MB", binary.LittleEndian.AppendUint64(nil, 100_000_000), "at most 16 MiB"},
		{"a claim beyond the file", append(binary.LittleEndian.AppendUint64(nil, 1000), "{}"...), "found a file of 10"},
		{"a claim with the sign bit", binary.LittleEndian.AppendUint64(nil, 1<<63), "at most 16 MiB"},
		{"a pointer of Git LFS", []byte("version https://git-lfs.github.com/spec/v1\n"), "git lfs pull"},
		{"no JSON", safetensors("[]", 0), "expected a header in JSON"},
		{"half of it", safetensors(`{"a":{"dtype":"F32"`, 0), "tensor"},
		{"a negative size", one(`{"dtype":"F32","shape":[-4],"data_offsets":[0,16]}`), "expected a shape"},
		{"a negative offset", one(`{"dtype":"F32","shape":[4],"data_offsets":[-16,0]}`), "data_offsets"},
		{"a fraction", one(`{"dtype":"F32","shape":[1.5],"data_offsets":[0,6]}`), "cannot unmarshal"},
		{"an end before its beginning", one(`{"dtype":"F32","shape":[4],"data_offsets":[16,0]}`), "data_offsets"},
		{"a file that is cut off", one(`{"dtype":"F32","shape":[100],"data_offsets":[0,400]}`), "it is cut off"},
		{"a size that overflows", one(`{"dtype":"F32","shape":[4294967296,4294967296,4],"data_offsets":[0,16]}`), "expected a shape"},
		{"sizes that disagree", one(`{"dtype":"F32","shape":[5],"data_offsets":[0,16]}`), "5 numbers of type F32, found 16 bytes"},
		{"many dimensions", one(`{"dtype":"F32","shape":[` + strings.Repeat("1,", 99) + `1],"data_offsets":[0,4]}`), "dimensions"},
		{"tensors in the same place", safetensors(`{"a":{"dtype":"U8","shape":[64],"data_offsets":[0,64]},"b":{"dtype":"U8","shape":[64],"data_offsets":[0,64]}}`, 64), "expected 128 bytes"},
		{"deep JSON", one(strings.Repeat("[", 1<<20)), "tensor"},
		{"deep metadata", safetensors(`{"__metadata__":`+strings.Repeat(`{"a":`, 1<<20), 0), "damaged"},
	} {
		if w, err := ReadSafetensors(bytes.NewReader(row.file), int64(len(row.file))); err == nil || !strings.Contains(err.Error(), row.says) {
			t.Errorf("%s: %+v %v", row.sentence, w, err)
		}
	}
}

func TestAnIndexNamesFilesBesideIt(t *testing.T) {
	t.Parallel()
	files, err := ParseIndex([]byte(`{"weight_map":{"a":"m-2.safetensors","b":"m-1.safetensors","c":"m-2.safetensors"}}`))
	if err != nil || strings.Join(files, " ") != "m-1.safetensors m-2.safetensors" {
		t.Errorf("%v %v", files, err)
	}
	var many strings.Builder
	for i := range MaxShards + 1 {
		fmt.Fprintf(&many, `"%d":"%d.safetensors",`, i, i)
	}
	for text, says := range map[string]string{
		`{}`: "found no file", `[]`: "weight_map", `{"weight_map":{"a":"../x.safetensors"}}`: "same directory", `{"weight_map":{"a":"/etc/passwd"}}`: "same directory",
		`{"weight_map":{"a":"model.safetensors.index.json"}}`: "same directory", `{"weight_map":{"a":""}}`: "found nothing",
		`{"weight_map":{` + many.String() + `"x":"x.safetensors"}}`: "at most 1024 files",
	} {
		if files, err := ParseIndex([]byte(text)); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%.60s: %v %v", text, files, err)
		}
	}
}

func TestAConfigIsReadUnderItsArchitecturesNames(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]Shape{
		`{"architectures":["LlamaForCausalLM"],"torch_dtype":"bfloat16","hidden_size":64,"num_hidden_layers":2,"num_attention_heads":4,"num_key_value_heads":2,"intermediate_size":128,"vocab_size":100,"max_position_embeddings":512}`: {"LlamaForCausalLM", "bfloat16", 2, 64, 4, 2, 16, 128, 100, 512, 0},
		`{"n_embd":64,"n_layer":2,"n_head":4,"n_inner":null,"vocab_size":100,"n_positions":512}`:                                                                                                                    {"", "", 2, 64, 4, 4, 16, 256, 100, 512, 0},
		`{"architectures":["X"],"text_config":{"hidden_size":64,"num_hidden_layers":2,"num_attention_heads":4,"head_dim":32,"intermediate_size":128,"vocab_size":100,"sliding_window":64,"dtype":"float16"}}`:       {"X", "float16", 2, 64, 4, 4, 32, 128, 100, 0, 64},
		`{"hidden_size":64,"num_hidden_layers":2,"num_attention_heads":4,"intermediate_size":32,"moe_intermediate_size":16,"num_experts_per_tok":8,"vocab_size":100,"sliding_window":9,"use_sliding_window":false}`: {"", "", 2, 64, 4, 4, 16, 128, 100, 0, 0},
	} {
		if got, err := ParseConfig([]byte(text)); err != nil || got != want {
			t.Errorf("%s:\n%+v %v", text, got, err)
		}
	}
	for text, says := range map[string]string{
		`{"hidden_size":-1}`: "expected a whole number", `{"hidden_size":1e300}`: "expected a whole number", `{"num_hidden_layers":1.5}`: "expected a whole number",
		`{"vocab_size":"many"}`: "expected a whole number", `[]`: "expected a JSON object", strings.Repeat(`{"a":`, 1<<19): "expected a JSON object",
		strings.Repeat(" ", MaxConfig+1): "at most 4 MiB",
	} {
		if got, err := ParseConfig([]byte(text)); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%.60s: %+v %v", text, got, err)
		}
	}
}

// gguf writes a GGUF file.
type gguf struct{ bytes.Buffer }

func (g *gguf) u32(n uint32) *gguf { g.Write(binary.LittleEndian.AppendUint32(nil, n)); return g }
func (g *gguf) u64(n uint64) *gguf { g.Write(binary.LittleEndian.AppendUint64(nil, n)); return g }
func (g *gguf) text(s string) *gguf {
	g.u64(uint64(len(s))).WriteString(s)
	return g
}
func (g *gguf) head(tensors, keys uint64) *gguf {
	g.WriteString("GGUF")
	return g.u32(3).u64(tensors).u64(keys)
}
func (g *gguf) number(key string, n uint32) *gguf { return g.text(key).u32(4).u32(n) }

func (g *gguf) tensor(name string, kind uint32, offset uint64, dims ...uint64) *gguf {
	g.text(name).u32(uint32(len(dims)))
	for _, d := range dims {
		g.u64(d)
	}
	return g.u32(kind).u64(offset)
}

func smallGGUF() []byte {
	g := (&gguf{}).head(2, 9)
	g.text("general.architecture").u32(8).text("llama")
	g.number("llama.block_count", 2).number("llama.embedding_length", 64).number("llama.attention.head_count", 4)
	g.text("llama.attention.head_count_kv").u32(9).u32(5).u64(2).u32(1).u32(2) // a list: one for each layer
	g.number("llama.feed_forward_length", 128).number("llama.context_length", 512)
	g.text("tokenizer.ggml.tokens").u32(9).u32(8).u64(3).text("a").text("b").text("c")
	g.text("nested").u32(9).u32(9).u64(1).u32(4).u64(2).u32(1).u32(2)
	g.tensor("blk.0.ffn_gate.weight", 2, 0, 64, 2).tensor("output.weight", 1, 96, 8)
	for g.Len()%32 != 0 {
		g.WriteByte(0)
	}
	g.Write(make([]byte, 96+16))
	return g.Bytes()
}

func TestAGGUFHeaderIsRead(t *testing.T) {
	t.Parallel()
	file := smallGGUF()
	g, err := ReadGGUF(bytes.NewReader(file), int64(len(file)))
	want := Shape{"llama", "", 2, 64, 4, 2, 16, 128, 3, 512, 0}
	if err != nil || g.Shape != want || g.Weights.Params != 136 || g.Weights.Bytes != 72+16 {
		t.Errorf("%+v %v", g, err)
	}
	for cut := range len(file) { // every part of it is missed
		if g, err := ReadGGUF(bytes.NewReader(file[:cut]), int64(cut)); err == nil {
			t.Fatalf("%d of %d bytes: %+v", cut, len(file), g)
		}
	}
}

func TestAHostileGGUFFileIsRefused(t *testing.T) {
	t.Parallel()
	deep := (&gguf{}).head(0, 1).text("k").u32(9)
	for range 1000 {
		deep.u32(9).u64(1)
	}
	for _, row := range []struct {
		sentence string
		file     *gguf
		says     string
	}{
		{"another file", func() *gguf { g := &gguf{}; g.WriteString("GGML0000"); return g }(), "expected a GGUF file"},
		{"a version to come", (&gguf{}), "cut off"},
		{"huge counts of keys", (&gguf{}).head(0, 1<<60), "at most 65536 keys"},
		{"huge counts of tensors", (&gguf{}).head(1<<60, 0), "tensors"},
		{"a huge name", (&gguf{}).head(0, 1).u64(1 << 60), "name of at most"},
		{"a huge text", (&gguf{}).head(0, 1).text("k").u32(8).u64(1 << 60), "cut off"},
		{"a huge list", (&gguf{}).head(0, 1).text("k").u32(9).u32(4).u64(1 << 60), "list of at most"},
		{"a huge list of texts", (&gguf{}).head(0, 1).text("k").u32(9).u32(8).u64(1 << 60), "cut off"},
		{"lists in lists", deep, "lists 4 deep"},
		{"an unknown value", (&gguf{}).head(0, 1).text("k").u32(77), "known type"},
		{"an unknown type", (&gguf{}).head(1, 0).tensor("t", 77, 0, 8), "number 77, is unknown"},
		{"a size that overflows", (&gguf{}).head(1, 0).tensor("t", 0, 0, 1<<40, 1<<40), "expected a shape"},
		{"a negative size", (&gguf{}).head(1, 0).tensor("t", 0, 0, 1<<63), "expected a dimension"},
		{"many dimensions", (&gguf{}).head(1, 0).tensor("t", 0, 0, make([]uint64, 99)...), "dimensions"},
		{"a tensor beyond the file", (&gguf{}).head(1, 0).tensor("t", 0, 0, 1<<30), "cut off"},
	} {
		file := row.file.Bytes()
		if g, err := ReadGGUF(bytes.NewReader(file), int64(len(file))); err == nil || !strings.Contains(err.Error(), row.says) {
			t.Errorf("%s: %+v %v", row.sentence, g, err)
		}
	}
}

// FuzzHeaders: no file panics, takes much memory, or has negative sums, and what
// is read can be estimated or is refused.
func FuzzHeaders(f *testing.F) {
	f.Add(safetensors(oneTensor, 128))
	f.Add(smallGGUF())
	f.Add([]byte(`{"hidden_size":64,"num_hidden_layers":2,"num_attention_heads":4,"vocab_size":100}`))
	f.Add([]byte(`{"weight_map":{"a":"b.safetensors"}}`))
	f.Fuzz(func(t *testing.T, file []byte) {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		var models []Model
		if w, err := ReadSafetensors(bytes.NewReader(file), int64(len(file))); err == nil {
			models = append(models, Model{Weights: w}, Model{Weights: w, Shape: llama8B.Shape})
		}
		if g, err := ReadGGUF(bytes.NewReader(file), int64(len(file))); err == nil {
			models = append(models, Model{Weights: g.Weights, Shape: g.Shape, GGUF: true})
		}
		if s, err := ParseConfig(file); err == nil {
			models = append(models, Model{Shape: s, Weights: llama8B.Weights})
		}
		_, _ = ParseIndex(file)
		runtime.ReadMemStats(&after)
		if took := after.TotalAlloc - before.TotalAlloc; took > 1<<20+uint64(200*len(file)) {
			t.Fatalf("%d bytes of a file took %d bytes of memory", len(file), took)
		}
		for _, m := range models {
			if m.Weights.Params < 0 || m.Weights.Bytes < 0 || m.Weights.Bytes > max(int64(len(file)), llama8B.Weights.Bytes) {
				t.Fatalf("%+v", m.Weights)
			}
			for _, use := range []Use{{}, {Train: Full}, {Train: LoRA, DType: "int4", Recompute: true}} {
				if e, err := m.Estimate(use); err == nil && !(e.Low >= 0 && e.Low <= e.Expected && e.Expected <= e.High) {
					t.Fatalf("%+v", e)
				}
			}
		}
	})
}
