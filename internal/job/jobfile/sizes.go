package jobfile

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"

	"berth/internal/text"
)

// ModelNeed is what a model needs: whole GPUs or a share of one, and the
// memory on each if that is known.
type ModelNeed struct {
	GPUs    int
	Share   float64
	VRAMMiB int64
}

// Sizes is a table of language models and what each needs. Its zero value
// knows no model, and gives every job one whole GPU.
type Sizes struct {
	other  ModelNeed
	models map[string]ModelNeed
}

const (
	defaultKey = "default_requirement"
	modelsKey  = "models"

	allowedTable = "a table of models such as {\"" + defaultKey + "\": 1.0, \"" + modelsKey + "\": {\"NAME\": 0.5}}"
	allowedNeed  = "a number of GPUs above 0 such as 0.5, {\"share\": 0.5} or {\"gpus\": 2, \"vram\": \"18G\"}"
)

// ParseSizes reads a table such as
//
//	{"default_requirement": 1.0, "models": {"qwen2.5-3b-inst": 0.5}}
//
// The error is an *Errors. Unknown keys belong to another program and are
// ignored, unless they look like a typing error.
func ParseSizes(name string, text []byte) (Sizes, error) {
	r := sizesReader{name: name}
	roots, line, err := readJSON(text, "JSON")
	switch {
	case err != nil:
		r.errs.Add(name, line, err.Error())
	case len(roots) != 1:
		r.errs.Add(name, 1, fmt.Sprintf("expected "+allowedTable+", found %d values", len(roots)))
	case roots[0].kind != mapping:
		r.errs.Add(name, 1, fmt.Sprintf("expected "+allowedTable+", found %s", roots[0].what()))
	default:
		r.table(&roots[0])
	}
	if len(r.errs.Problems) > 0 {
		return Sizes{}, &r.errs
	}
	return r.sizes, nil
}

// Lookup is what the table says about a model.
func (s Sizes) Lookup(model string) (need ModelNeed, known bool) {
	need, known = s.models[model]
	return need, known
}

// Names are the models of the table.
func (s Sizes) Names() []string { return slices.Sorted(maps.Keys(s.models)) }

// of is what a job with these arguments needs, by the last --llm among them.
// known is set if the table has that model.
func (s Sizes) of(words []string) (need ModelNeed, known bool) {
	model, _ := FlagValue(words, "--llm")
	if need, known = s.models[model]; known {
		return need, true
	}
	if s.other == (ModelNeed{}) {
		return ModelNeed{GPUs: 1}, false
	}
	return s.other, false
}

type sizesReader struct {
	name  string
	sizes Sizes
	errs  Errors
}

func (r *sizesReader) table(root *value) {
	for i := range root.entries {
		e := &root.entries[i]
		switch near := text.Nearest(e.key, []string{defaultKey, modelsKey}); {
		case e.key == defaultKey:
			r.sizes.other = r.need(e.key, &e.value)
		case e.key == modelsKey:
			r.readModels(e)
		case near != "":
			r.errs.Add(r.name, e.line, fmt.Sprintf("unknown key %s (did you mean %s?); the keys are %s and %s", text.Found(e.key), near, defaultKey, modelsKey))
		}
	}
}

func (r *sizesReader) readModels(e *entry) {
	if e.value.kind != mapping {
		r.errs.Add(r.name, e.line, fmt.Sprintf("%s: expected {\"NAME\": 0.5}, found %s", e.key, e.value.what()))
		return
	}
	r.sizes.models = make(map[string]ModelNeed, len(e.value.entries))
	for i := range e.value.entries {
		model := &e.value.entries[i]
		r.sizes.models[model.key] = r.need(model.key, &model.value)
	}
}

// need reads what one model needs. Errors begin with the model's name.
func (r *sizesReader) need(model string, v *value) ModelNeed {
	need, err := readNeed(v)
	if err != nil {
		r.errs.Add(r.name, v.line, fmt.Sprintf("%s: %v", text.Found(model), err))
	}
	return need
}

func readNeed(v *value) (ModelNeed, error) {
	if v.kind == mapping {
		return readNeeds(v)
	}
	n, err := readCount(v, maxGPUs)
	if err != nil {
		return ModelNeed{}, fmt.Errorf("expected %s; found %s", allowedNeed, v.what())
	}
	return cardsFor(n), nil
}

// readNeeds reads the longer form.
func readNeeds(v *value) (ModelNeed, error) {
	var need ModelNeed
	known := []string{"share", "gpus", "vram"}
	for i := range v.entries {
		e := &v.entries[i]
		n, err := readCount(&e.value, maxGPUs)
		switch {
		case !slices.Contains(known, e.key):
			return need, fmt.Errorf("unknown key %s%s; the keys are share, gpus and vram", text.Found(e.key), meant(e.key, known))
		case e.key == "vram" && e.value.kind == scalar:
			need.VRAMMiB, err = text.ParseSize(e.value.text)
		case err == nil && e.key == "share" && n > 1, e.key == "vram":
			err = fmt.Errorf("expected %s; found %s", allowedNeed, e.value.what())
		case err == nil && need.GPUs > 0:
			err = fmt.Errorf("expected share or gpus, found both")
		case err == nil:
			cards := cardsFor(n)
			need.GPUs, need.Share = cards.GPUs, cards.Share
		}
		if err != nil {
			return need, fmt.Errorf("%s: %w", e.key, err)
		}
	}
	if need == (ModelNeed{}) {
		return need, fmt.Errorf("expected %s; found nothing", allowedNeed)
	}
	need.GPUs = max(need.GPUs, 1)
	return need, nil
}

// readCount takes a number, but not one in quotes: a table with both "1" and 1
// has not been checked by its author.
func readCount(v *value, most float64) (float64, error) {
	if v.kind == scalar && !v.quoted {
		if n, err := strconv.ParseFloat(v.text, 64); err == nil && n > 0 && n <= most {
			return n, nil
		}
	}
	return 0, fmt.Errorf("expected a number above 0 and up to %g, found %s", most, v.what())
}

// cardsFor turns a number into a share of one GPU, or whole GPUs above 1.
func cardsFor(n float64) ModelNeed {
	if n < 1 {
		return ModelNeed{GPUs: 1, Share: n}
	}
	return ModelNeed{GPUs: int(math.Ceil(n))}
}
