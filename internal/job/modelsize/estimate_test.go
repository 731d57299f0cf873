package modelsize

import (
	"math"
	"strings"
	"testing"
)

// llama8B is Llama 3.1 8B.
var llama8B = Model{
	Shape:   Shape{Layers: 32, Hidden: 4096, Heads: 32, KVHeads: 8, HeadDim: 128, Intermediate: 14336, Vocab: 128256, MaxContext: 131072},
	Weights: Weights{Params: 8030261248, Float: 8030261248, Bytes: 16060522496, Matrix: 6979321856, Head: 525336576, LoRA: 2621440, Gated: true, Types: map[string]bool{"BF16": true}},
}

func TestEveryPartIsItsFormula(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		sentence string
		use      Use
		part     string
		bytes    float64
	}{
		{"weights are as stored", Use{}, "weights", 16060522496},
		{"fp32 takes four bytes", Use{DType: "fp32"}, "weights", 4 * 8030261248},
		{"int8 takes one byte in linear layers, and two elsewhere", Use{DType: "int8"}, "weights", 6979321856 + 2*(8030261248-6979321856)},
		{"int4 takes 4.5 bits", Use{DType: "int4"}, "weights", 6979321856*4.5/8 + 2*(8030261248-6979321856)},
		{"the cache has keys and values of every layer and token", Use{Context: 8192, Batch: 4}, "kv cache", 2 * 32 * 8 * 128 * 8192 * 4 * 2},
		{"4096 tokens are the default", Use{}, "kv cache", 2 * 32 * 8 * 128 * 4096 * 2},
		{"a cache in fp32 is twice as large", Use{DType: "fp32"}, "kv cache", 2 * 32 * 8 * 128 * 4096 * 4},
		{"AdamW has two numbers for each weight", Use{Train: Full}, "optimizer", 2 * 16060522496},
		{"mixed has them in fp32", Use{Train: Full, DType: "mixed"}, "optimizer", 8 * 8030261248},
		{"an adapter has rank times rows and columns", Use{Train: LoRA, Rank: 8}, "adapters", 8 * 2621440 * 2},
	} {
		e, err := llama8B.Estimate(row.use)
		if err != nil {
			t.Errorf("%s: %v", row.sentence, err)
			continue
		}
		found := math.NaN()
		for _, p := range e.Parts {
			if p.Name == row.part {
				found = p.Bytes
			}
		}
		if found != row.bytes {
			t.Errorf("%s: %s is %.0f, not %.0f", row.sentence, row.part, found, row.bytes)
		}
		if !(e.Low <= e.Expected && e.Expected <= e.High && e.Low > 0) {
			t.Errorf("%s: %.0f to %.0f, about %.0f", row.sentence, e.Low, e.High, e.Expected)
		}
	}
}

func TestMoreNeverTakesLess(t *testing.T) {
	t.Parallel()
	total := func(use Use) float64 {
		e, err := llama8B.Estimate(use)
		if err != nil {
			t.Fatal(err)
		}
		return e.Expected
	}
	for _, train := range []Train{Inference, Full, LoRA} {
		if total(Use{Train: train, Context: 8192}) < total(Use{Train: train, Context: 4096}) || total(Use{Train: train, Batch: 16}) <= total(Use{Train: train, Batch: 8}) {
			t.Errorf("%q: a longer context or a larger batch takes less", train)
		}
	}
	if total(Use{Train: LoRA, Batch: 4}) <= total(Use{Train: LoRA, Batch: 4, Recompute: true}) {
		t.Error("checkpointing saves nothing")
	}
}

func TestWhatCannotBeEstimatedIsRefused(t *testing.T) {
	t.Parallel()
	quantised, unknown, gguf := llama8B, llama8B, llama8B
	quantised.Weights.Float, unknown.Shape, gguf.GGUF = 0, Shape{}, true
	huge := llama8B
	huge.Shape.Layers, huge.Shape.Hidden = maxCount, maxCount
	for _, row := range []struct {
		sentence string
		model    Model
		use      Use
		says     string
	}{
		{"a negative context", llama8B, Use{Context: -1}, "expected a context and a batch"},
		{"a huge batch", llama8B, Use{Batch: 1 << 40}, "expected a context and a batch"},
		{"another type", llama8B, Use{DType: "bf8"}, "dtype: expected fp32"},
		{"another way to train", llama8B, Use{Train: "half"}, "train: expected full or lora"},
		{"quantised weights, in full", quantised, Use{Train: Full}, "use lora"},
		{"an unknown network", unknown, Use{Train: LoRA}, "config.json does not say"},
		{"training llama.cpp's files", gguf, Use{Train: LoRA}, "GGUF"},
		{"mixed arithmetic of inference", llama8B, Use{DType: "mixed"}, "mixed is for train full"},
		{"a network beyond every GPU", huge, Use{}, "more than 1 PiB"},
	} {
		if _, err := row.model.Estimate(row.use); err == nil || !strings.Contains(err.Error(), row.says) {
			t.Errorf("%s: %v", row.sentence, err)
		}
	}
	e, err := unknown.Estimate(Use{})
	if err != nil || len(e.Notes) != 1 || e.Expected < 16060522496 {
		t.Errorf("the weights of an unknown network: %+v %v", e, err)
	}
}
