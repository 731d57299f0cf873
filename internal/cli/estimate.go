package cli

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"berth/internal/cli/render"
	"berth/internal/job"
	"berth/internal/job/jobfile"
	"berth/internal/job/modelsize"
	"berth/internal/machine/modelfiles"
	"berth/internal/text"
	"berth/internal/text/problem"
)

// estimateOptions are the flags of `berth estimate`.
type estimateOptions struct {
	use   modelsize.Use
	train string
	table string
	json  bool
}

func newEstimate() *cobra.Command {
	o := &estimateOptions{}
	cmd := &cobra.Command{
		Use:   "estimate PATH|NAME",
		Short: "Estimate the GPU memory that a model needs",
		Long: `Estimate how much GPU memory a local model needs, from its config.json and the
headers of its safetensors files, or from the header of a GGUF file. The weights
are not read, and no daemon is asked. PATH is the model's directory or a file in
it. A NAME that is no file is looked up in the table of models, llm_config.json.

Inference is one process of PyTorch that reads the prompt in one go and keeps a
cache of --context tokens for each of --batch sequences; for a GGUF file, one of
llama.cpp. Training is with AdamW: of all weights (--train full), or of adapters
on every linear layer (--train lora). The total is for one GPU, with CUDA's own
memory. berth help howto/estimate has the formulas' reasons.

--vram estimate:PATH declares the upper end of the interval when a job is
submitted, also in a jobs file. Settings follow the path, after commas:
estimate:PATH,context=8192,batch=4,dtype=bf16,train=lora,rank=8,checkpointing`,
		Example: `  berth estimate ~/models/Llama-3.1-8B
  berth estimate ~/models/Llama-3.1-8B --context 32768 --batch 8
  berth estimate model-Q4_K_M.gguf --context 8192 --json
  berth estimate . --train full --dtype bf16 --context 2048 --batch 4
  berth submit --vram estimate:.,train=lora,context=2048 -- python tune.py

Exit status: 0 printed; 1 refused; 2 bad usage, or an unreadable model.`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 1 || args[0] == "" {
				return problem.Newf(problem.Invalid, "berth estimate ~/models/Llama-3.1-8B", "expected one model, found %s", text.Count(len(args), "word"))
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			noColour, _ := cmd.Flags().GetBool("no-color") // registered below
			return o.run(render.NewScreen(cmd.OutOrStdout(), noColour, os.Getenv), args[0])
		},
	}
	flags := cmd.Flags()
	flags.SortFlags = false
	flags.Int64Var(&o.use.Context, "context", 0, "`tokens` of each sequence (default 4096, or what the model was made for if that is less)")
	flags.Int64Var(&o.use.Batch, "batch", 1, "`sequences` at a time")
	flags.StringVar(&o.use.DType, "dtype", "", "`type` of the weights: "+strings.Join(modelsize.DTypes(), ", ")+"; mixed trains fp32 weights with bf16 arithmetic (default as stored)")
	flags.StringVar(&o.train, "train", "", "`how` it is trained, instead of inference: full or lora")
	flags.Int64Var(&o.use.Rank, "rank", 16, "with --train lora, the `rank` of the adapters")
	flags.BoolVar(&o.use.Recompute, "checkpointing", false, "with --train, activations are recomputed (gradient checkpointing)")
	flags.StringVar(&o.table, "llm-config", modelfiles.SizesFile, "the table of models in which a NAME is looked up")
	flags.BoolVar(&o.json, "json", false, "print a JSON object")
	flags.Bool("no-color", false, "no colours (also: NO_COLOR)")
	return cmd
}

func (o *estimateOptions) run(s render.Screen, path string) error {
	m, err := modelfiles.Read(path)
	if errors.Is(err, fs.ErrNotExist) && !modelfiles.Exists(path) {
		return o.lookup(s, path, err)
	}
	if err != nil {
		return problem.Wrap(problem.Invalid, "berth help howto/estimate says which files a model has", err)
	}
	o.use.Train = modelsize.Train(o.train)
	e, err := m.Estimate(o.use)
	if err != nil {
		return problem.Wrap(problem.Invalid, "see berth estimate --help", err)
	}
	if o.json {
		return printJSON(s.Out, estimateJSON(path, m, e))
	}
	return o.draw(s, path, m, e)
}

// lookup takes a name's needs from the table of models.
func (o *estimateOptions) lookup(s render.Screen, name string, missing error) error {
	need, err := modelfiles.Lookup(".", o.table, name, missing)
	if err != nil {
		return problem.Wrap(problem.Invalid, fmt.Sprintf("expected a model's directory or file, or a name in %s", o.table), err)
	}
	if o.json {
		told := modelNeedJSON{Model: name, Source: o.table, GPUs: need.GPUs}
		if need.Share > 0 {
			told.Share = &need.Share
		}
		if need.VRAMMiB > 0 {
			told.VRAMMiB = &need.VRAMMiB
		}
		return printJSON(s.Out, told)
	}
	gpus := text.Count(need.GPUs, "GPU")
	if need.Share > 0 {
		gpus = text.Share(need.Share) + " of a GPU"
	}
	if need.VRAMMiB > 0 {
		gpus += fmt.Sprintf(" with %d MiB each", need.VRAMMiB)
	}
	_, err = fmt.Fprintf(s.Out, "%s: %s, from %s\n", text.Line(name), gpus, o.table)
	return err
}

// modelNeedJSON is a model of the table.
type modelNeedJSON struct {
	Model   string   `json:"model"`
	Source  string   `json:"source"`
	GPUs    int      `json:"gpus"`
	Share   *float64 `json:"share"`
	VRAMMiB *int64   `json:"vram_mib"`
}

// modelJSON is an estimate (docs/reference/json.md).
type modelJSON struct {
	Model        string     `json:"model"`
	Architecture string     `json:"architecture"`
	Params       int64      `json:"params"`
	Types        []string   `json:"types"`
	Context      int64      `json:"context"`
	Batch        int64      `json:"batch"`
	DType        *string    `json:"dtype"`
	Train        *string    `json:"train"`
	Parts        []partJSON `json:"parts"`
	LowMiB       int64      `json:"low_mib"`
	ExpectedMiB  int64      `json:"expected_mib"`
	HighMiB      int64      `json:"high_mib"`
	Formula      string     `json:"formula"`
	Notes        []string   `json:"notes"`
}

type partJSON struct {
	Name    string `json:"name"`
	MiB     int64  `json:"mib"`
	Formula string `json:"formula"`
}

func inMiB(bytes float64) int64 { return int64(math.Ceil(bytes / (1 << 20))) }

func estimateJSON(path string, m modelsize.Model, e modelsize.Estimate) modelJSON {
	told := modelJSON{
		Model: path, Architecture: m.Shape.Architecture, Params: m.Weights.Params, Types: notNull(m.Weights.TypeNames()),
		Context: e.Use.Context, Batch: e.Use.Batch, LowMiB: inMiB(e.Low), ExpectedMiB: inMiB(e.Expected), HighMiB: inMiB(e.High),
		Formula: e.How, Notes: notNull(e.Notes),
	}
	if e.Use.DType != "" {
		told.DType = &e.Use.DType
	}
	if train := string(e.Use.Train); train != "" {
		told.Train = &train
	}
	for _, p := range e.Parts {
		told.Parts = append(told.Parts, partJSON{p.Name, inMiB(p.Bytes), p.How})
	}
	return told
}

func (o *estimateOptions) draw(s render.Screen, path string, m modelsize.Model, e modelsize.Estimate) error {
	use := "inference"
	if e.Use.Train != modelsize.Inference {
		use = "training (" + string(e.Use.Train) + ")"
	}
	name := m.Shape.Architecture
	name = cmp.Or(name, filepath.Base(path))
	fmt.Fprintf(s.Out, "%s, %.3g billion parameters: %s, context %d, batch %d\n\n", text.Line(name), float64(m.Weights.Params)/1e9, use, e.Use.Context, e.Use.Batch)
	t := &text.Table{Columns: []text.Column{{Title: "PART"}, {Title: "MIB", Right: true}, {Title: "HOW"}}}
	for _, p := range e.Parts {
		t.Row(p.Name, text.Grouped(inMiB(p.Bytes)), text.Line(p.How))
	}
	if err := s.Draw(t); err != nil {
		return err
	}
	fmt.Fprintf(s.Out, "\n%s to %s MiB, about %s: %s\n", text.Grouped(inMiB(e.Low)), text.Grouped(inMiB(e.High)), text.Grouped(inMiB(e.Expected)), e.How)
	for _, note := range e.Notes {
		fmt.Fprintf(s.Out, "note: %s\n", note)
	}
	_, err := fmt.Fprintf(s.Out, "to declare it: --vram %s\n", job.Quote(declaration(path, e.Use)))
	return err
}

// declaration is the value of --vram that means this estimate.
func declaration(path string, use modelsize.Use) string {
	value := fmt.Sprintf("%s%s,context=%d", jobfile.EstimatePrefix, path, use.Context)
	if use.Batch != 1 {
		value += fmt.Sprintf(",batch=%d", use.Batch)
	}
	if use.DType != "" {
		value += ",dtype=" + use.DType
	}
	if use.Train != modelsize.Inference {
		value += ",train=" + string(use.Train)
	}
	if use.Train == modelsize.LoRA {
		value += fmt.Sprintf(",rank=%d", use.Rank)
	}
	if use.Recompute {
		value += ",checkpointing"
	}
	return value
}
