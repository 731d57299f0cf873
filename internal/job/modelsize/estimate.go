package modelsize

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"

	"berth/internal/text"
)

// Model is what the files of a model say.
type Model struct {
	Shape   Shape
	Weights Weights
	GGUF    bool
}

// Train says how a model is trained.
type Train string

// The ways to train. Inference trains nothing.
const (
	Inference Train = ""
	Full      Train = "full" // every weight, with AdamW
	LoRA      Train = "lora" // adapters on all linear layers, with AdamW
)

// Use says what a model is used for. Zero values stand for the defaults.
type Use struct {
	Context   int64 // tokens of each sequence
	Batch     int64 // sequences at a time
	DType     string
	Train     Train
	Rank      int64 // of LoRA's adapters
	Recompute bool  // activations are computed again in the backward pass
}

// The defaults of Use, and its bounds.
const (
	defaultContext = 4096
	defaultRank    = 16
	maxTokens      = 1 << 30
)

// DTypes are the types that weights can be converted to.
func DTypes() []string { return []string{"fp32", "bf16", "fp16", "fp8", "int8", "int4", "mixed"} }

// Part is one of the things that take memory.
type Part struct {
	Name  string
	Bytes float64
	How   string // the formula, with numbers
}

// Estimate is how much of a GPU's memory a use of a model takes, in bytes.
type Estimate struct {
	Use                 Use // with the defaults
	Parts               []Part
	Low, Expected, High float64
	How                 string // which parts the total is made of
	Notes               []string
}

// What was measured with PyTorch on an H200 (docs/studies/model-sizes.md).
const (
	mib = 1 << 20
	// The context of CUDA with the kernels that a model loads.
	inferenceContext = 700 * mib
	trainingContext  = 765 * mib
	// workspaceBytes is what cuBLAS takes for matrix products.
	workspaceBytes = 33 * mib
	// normBytes is what PyTorch's allocator keeps of each token and each hidden
	// number for the norms, which compute in fp32 with three copies: nothing else
	// has blocks of that size.
	normBytes = 12
	// The same for the logits of each token and word: 2 copies in fp32 for the
	// forward pass, 2 for the backward pass, and one that fits nothing else.
	lossBytes = 16
	// stepSpread is what is lost between blocks while an optimizer steps.
	stepSpread = 0.08
	// spread is by how much a process may differ from the expectation.
	spread = 0.05
	// llama.cpp reads this many tokens of a prompt at a time.
	chunkTokens = 512
	// maxBytes is beyond every GPU.
	maxBytes = 1 << 50
)

// Estimate works out what this use of the model takes.
func (m Model) Estimate(use Use) (Estimate, error) {
	if err := m.check(&use); err != nil {
		return Estimate{}, err
	}
	e := estimate{Estimate: Estimate{Use: use}, model: m, s: m.Shape, tokens: float64(use.Context) * float64(use.Batch)}
	e.width = m.widthOf(use.DType)
	if use.Train == Inference {
		e.inference()
	} else {
		e.training()
	}
	if e.Expected > maxBytes || math.IsNaN(e.Expected) {
		return Estimate{}, errors.New("expected a model that fits into GPUs, found more than 1 PiB; its files or the context are wrong")
	}
	return e.Estimate, nil
}

// check refuses what cannot be worked out, and fills in the defaults.
func (m Model) check(use *Use) error {
	if use.Context == 0 {
		use.Context = defaultContext
		if most := m.Shape.MaxContext; most > 0 && most < defaultContext {
			use.Context = int64(most)
		}
	}
	use.Batch = cmp.Or(use.Batch, 1)
	use.Rank = cmp.Or(use.Rank, defaultRank)
	switch {
	case use.Context < 1 || use.Batch < 1 || use.Context > maxTokens || use.Batch > maxTokens:
		return fmt.Errorf("expected a context and a batch from 1 to %d, found %d and %d", maxTokens, use.Context, use.Batch)
	case use.Rank < 1 || use.Rank > 1<<16:
		return fmt.Errorf("expected a rank from 1 to %d, found %d", 1<<16, use.Rank)
	case use.Train != Inference && use.Train != Full && use.Train != LoRA:
		return fmt.Errorf("train: expected %s or %s, found %s", Full, LoRA, text.Found(string(use.Train)))
	case use.DType != "" && !slices.Contains(DTypes(), use.DType):
		return fmt.Errorf("dtype: expected %s, found %s", text.Or(DTypes()), text.Found(use.DType))
	case m.GGUF && (use.DType != "" || use.Train != Inference):
		return errors.New("a GGUF file is for inference with the numbers that it has; train and dtype need a model in safetensors files")
	case use.DType == "mixed" && use.Train != Full:
		return errors.New("dtype: mixed is for train full: weights in fp32, computed with in bf16")
	case use.Train == Full && slices.Contains([]string{"fp8", "int8", "int4"}, use.DType):
		return fmt.Errorf("dtype: %s cannot be trained in full; use lora", use.DType)
	case use.Train == Full && m.Weights.Float == 0:
		return errors.New("the weights are quantised and cannot be trained in full; use lora")
	case use.Train != Inference && !m.Shape.known():
		return errors.New("config.json does not say how many layers, heads and words the model has, so training cannot be worked out")
	}
	return nil
}

// widthOf is the bytes of a number in the cache and in activations.
func (m Model) widthOf(dtype string) float64 {
	w := m.Weights
	switch {
	case dtype == "fp32", dtype == "" && !m.GGUF && w.Float > 0 && float64(w.Bytes-w.Kept) > 3*float64(w.Float):
		return 4
	}
	return 2
}

// estimate is an estimate while it is worked out.
type estimate struct {
	Estimate
	model  Model
	s      Shape
	tokens float64 // in all sequences
	width  float64
}

func (e *estimate) add(name string, bytes float64, how string, args ...any) float64 {
	e.Parts = append(e.Parts, Part{name, bytes, fmt.Sprintf(how, args...)})
	return bytes
}

// weights is the part of the weights, as they are loaded.
func (e *estimate) weights() float64 {
	w := e.model.Weights
	params := text.Grouped(w.Params) + " parameters"
	kept, float := float64(w.Kept), float64(w.Float)
	linear := float64(w.Matrix)
	switch e.Use.DType {
	case "":
		return e.add("weights", float64(w.Bytes), "%s as stored, %s", params, strings.Join(w.TypeNames(), " "))
	case "fp32", "mixed":
		return e.add("weights", kept+4*float, "%s × 4 bytes", params)
	case "fp8", "int8":
		return e.add("weights", kept+linear+2*(float-linear), "%s, those of linear layers × 1 byte, others × 2", params)
	case "int4":
		return e.add("weights", kept+linear*4.5/8+2*(float-linear), "%s, those of linear layers × 4.5 bits, others × 16", params)
	}
	return e.add("weights", kept+2*float, "%s × 2 bytes", params)
}

func (e *estimate) runtime() float64 {
	context := float64(inferenceContext)
	if e.Use.Train != Inference {
		context = trainingContext
	}
	return e.add("runtime", context+workspaceBytes, "CUDA's context and cuBLAS's workspace")
}

func (e *estimate) inference() {
	s, use := e.s, e.Use
	weights := e.weights()
	if !s.known() {
		e.Notes = append(e.Notes, "without a config.json of a language model, only the weights are counted")
		e.Expected = weights + e.runtime()
		e.Low, e.High, e.How = e.Expected, e.Expected*(1+spread), "weights + runtime"
		return
	}
	row := 2 * s.Layers * s.KVHeads * s.HeadDim * e.width
	cache := e.add("kv cache", row*e.tokens, "2 × %.0f layers × %.0f heads × %.0f × %d tokens × %d × %.0f bytes", s.Layers, s.KVHeads, s.HeadDim, use.Context, use.Batch, e.width)
	low := cache
	if s.Window > 0 && s.Window < float64(use.Context) {
		low = row * s.Window * float64(use.Batch)
		e.Notes = append(e.Notes, fmt.Sprintf("layers with sliding attention may keep only %.0f tokens; the cache is counted in full", s.Window))
	}
	var activations float64
	if e.model.GGUF {
		tokens := min(e.tokens, chunkTokens)
		activations = e.add("activations", tokens*max(s.Vocab, e.wide())*4, "%.0f tokens × %.0f × 4 bytes: of a prompt at a time", tokens, max(s.Vocab, e.wide()))
	} else {
		each := e.wide() * e.width
		if e.model.Weights.Gated {
			each += normBytes * s.Hidden
		}
		activations = e.add("activations", e.tokens*each, "%d tokens × %d × %.0f bytes: the prompt in one go", use.Context, use.Batch, each)
	}
	runtime := e.runtime()
	e.Expected = weights + cache + activations + runtime
	e.Low = weights + low + runtime*(1-spread)
	e.High = e.Expected * (1 + spread)
	e.How = "weights + kv cache + activations + runtime; the lower end is for short prompts"
	if most := s.MaxContext; most > 0 && float64(use.Context) > most {
		e.Notes = append(e.Notes, fmt.Sprintf("the model was made for at most %.0f tokens", most))
	}
}

// wide is how many numbers of one token exist at once while a prompt is read: in
// the MLP, or in attention if the MLP is narrow.
func (e *estimate) wide() float64 {
	s := e.s
	mlp := 2 * s.Intermediate
	if e.model.Weights.Gated || e.model.GGUF {
		mlp = 3 * s.Intermediate
	}
	return 3*s.Hidden + max(mlp, 4*s.Heads*s.HeadDim+2*s.KVHeads*s.HeadDim)
}

// saved is how many bytes of one token a layer keeps for the backward pass.
func (e *estimate) saved() (bytes float64, how string) {
	s, b := e.s, e.width
	heads := 2*s.Heads*s.HeadDim + 2*s.KVHeads*s.HeadDim // q, k, v and the result of attention
	if b == 4 && e.Use.DType != "mixed" {                // no fast kernel shares keys between heads in fp32
		heads = 4 * s.Heads * s.HeadDim
	}
	norm, inputs, mlp := (4+b)*s.Hidden, 2*b*s.Hidden, 4*b*s.Intermediate
	if !e.model.Weights.Gated {
		norm, mlp = b*s.Hidden, 2*b*s.Intermediate
	}
	switch {
	case e.Use.DType == "mixed": // every linear layer casts its input
		norm, inputs = 8*s.Hidden, 5*b*s.Hidden
	case e.Use.Train == LoRA: // the norms are not trained, and keep less
		norm = 4 * s.Hidden
	}
	bytes = 2*norm + inputs + b*heads + mlp
	return bytes, fmt.Sprintf("%.0f bytes of each token in a layer", bytes)
}

func (e *estimate) training() {
	s, use, w := e.s, e.Use, e.model.Weights
	weights := e.weights()
	trained, width := float64(w.Float), e.width // of a trained weight
	kind := "parameters"
	if use.DType == "mixed" {
		width = 4
	}
	if use.Train == LoRA {
		trained, kind = float64(w.LoRA)*float64(use.Rank), fmt.Sprintf("parameters of adapters, rank %d", use.Rank)
		weights += e.add("adapters", trained*width, "%s %s × %.0f bytes", text.Grouped(int64(trained)), kind, width)
	}
	gradients := e.add("gradients", trained*width, "%s %s × %.0f bytes", text.Grouped(int64(trained)), kind, width)
	optimizer := e.add("optimizer", 2*trained*width, "AdamW: 2 × %s %s × %.0f bytes", text.Grouped(int64(trained)), kind, width)
	step := e.add("step", trained*width, "while AdamW steps: %s %s × %.0f bytes; fused=True takes none", text.Grouped(int64(trained)), kind, width)

	layer, how := e.saved()
	layer *= e.tokens
	kept := s.Layers * layer
	how = fmt.Sprintf("%.0f layers × %s", s.Layers, how)
	if use.Recompute {
		kept = s.Layers * e.tokens * s.Hidden * e.width
		how = fmt.Sprintf("%.0f layers × %.0f bytes of each token in a layer", s.Layers, s.Hidden*e.width)
	}
	if use.DType == "mixed" {
		casts := 2 * float64(w.Matrix+w.Head)
		kept += casts
		how += fmt.Sprintf(", and the weights in bf16: %.0f MiB", casts/mib)
	}
	activations := e.add("activations", kept, "%d tokens × %d × %s", use.Context, use.Batch, how)
	loss := e.add("loss", e.tokens*s.Vocab*(e.width+lossBytes), "%d tokens × %d × %.0f words × %.0f bytes: logits, their logarithms and gradients", use.Context, use.Batch, s.Vocab, e.width+lossBytes)
	if use.Recompute {
		loss = max(loss, layer) // of one layer at a time, after the loss
	}
	runtime := e.runtime()

	base := weights + optimizer + runtime
	forward := base + activations + loss
	stepping := base + gradients + step + stepSpread*(base+gradients+step-runtime) + e.tokens*s.Vocab*e.width // the logits are still there
	e.Expected = max(forward, stepping)
	e.How = "weights + optimizer + runtime + activations + loss, before the backward pass"
	if stepping > forward {
		e.How = "weights + optimizer + runtime + gradients + step, and 8 % lost between blocks, while AdamW steps"
	}
	e.Low = max(forward, stepping-step) * (1 - spread)
	e.High = e.Expected * (1 + 2*spread)
}
