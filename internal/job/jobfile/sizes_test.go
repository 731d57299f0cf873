package jobfile

import (
	"errors"
	"strings"
	"testing"
)

// seeds: S21 S22 S23
func TestSizesFor(t *testing.T) {
	sizes, err := ParseSizes("llm_config.json", []byte(`{
    "default_requirement": 0.25,
    "models": {
        "qwen2.5-3b-inst": 0.5,
        "qwen2.5-7b-inst": 1.0,
        "double": 2, "half more": 1.5, "tiny": 1e-2,
        "shared": {"share": 0.3}, "whole": {"share": 1},
        "measured": {"gpus": 2, "vram": "18G"}, "bytes": {"vram": 4096}, "part": {"share": 0.5, "vram": "8G"}
    },
    "comment": "someone else's key"
}`))
	if err != nil {
		t.Fatal(err)
	}
	for _, row := range []struct {
		says, words string
		want        ModelNeed
		known       bool
	}{
		{"no model", "--epochs 3", ModelNeed{GPUs: 1, Share: 0.25}, false},
		{"an unknown one", "--llm gpt", ModelNeed{GPUs: 1, Share: 0.25}, false},
		{"a known one", "--llm qwen2.5-3b-inst --x", ModelNeed{GPUs: 1, Share: 0.5}, true},
		{"with =", "--x --llm=qwen2.5-3b-inst", ModelNeed{GPUs: 1, Share: 0.5}, true},
		{"the last counts", "--llm=qwen2.5-3b-inst --llm qwen2.5-7b-inst", ModelNeed{GPUs: 1}, true},
		{"also against the one before", "--llm qwen2.5-7b-inst --llm=gpt", ModelNeed{GPUs: 1, Share: 0.25}, false},
		{"a flag without its value says nothing", "--llm qwen2.5-7b-inst --llm", ModelNeed{GPUs: 1}, true},
		{"other flags are others", "--llm-path double --llms double", ModelNeed{GPUs: 1, Share: 0.25}, false},
		{"one is a whole card", "--llm qwen2.5-7b-inst", ModelNeed{GPUs: 1}, true},
		{"two are two", "--llm double", ModelNeed{GPUs: 2}, true},
		{"what is above one is rounded up", "--llm=half+more", ModelNeed{GPUs: 2}, true},
		{"a small number", "--llm tiny", ModelNeed{GPUs: 1, Share: 0.01}, true},
		{"the longer form, a share", "--llm shared", ModelNeed{GPUs: 1, Share: 0.3}, true},
		{"a share of all is a card", "--llm whole", ModelNeed{GPUs: 1}, true},
		{"cards and memory", "--llm measured", ModelNeed{GPUs: 2, VRAMMiB: 18 << 10}, true},
		{"memory alone is on one card", "--llm bytes", ModelNeed{GPUs: 1, VRAMMiB: 4096}, true},
		{"a share and memory", "--llm part", ModelNeed{GPUs: 1, Share: 0.5, VRAMMiB: 8 << 10}, true},
	} {
		words := strings.Fields(row.words)
		for i := range words {
			words[i] = strings.ReplaceAll(words[i], "+", " ")
		}
		if got, known := sizes.of(words); got != row.want || known != row.known {
			t.Errorf("%s: got %+v, known %t", row.says, got, known)
		}
	}
	if got, known := (Sizes{}).of([]string{"--llm", "qwen2.5-3b-inst"}); got != (ModelNeed{GPUs: 1}) || known {
		t.Errorf("no table: %+v, known %t", got, known)
	}
	if sizes, err := ParseSizes("s", []byte(`{"models": {}}`)); err != nil {
		t.Error(err)
	} else if got, _ := sizes.of(nil); got != (ModelNeed{GPUs: 1}) {
		t.Errorf("no default: %+v", got)
	}
}

// seeds: S21
func TestSizesTellWhatIsWrongByTheModelsName(t *testing.T) {
	for _, row := range []struct{ text, want string }{
		{`{"models": {"a": 0}}`, `s:1: "a": expected a number of GPUs above 0 such as 0.5, {"share": 0.5} or {"gpus": 2, "vram": "18G"}; found "0"`},
		{"{\"models\": {\n\"a\": 1,\n\"b\": -0.5}}", `s:3: "b": expected a number of GPUs above 0 such as 0.5, {"share": 0.5} or {"gpus": 2, "vram": "18G"}; found "-0.5"`},
		{`{"models": {"a": "0.5"}}`, `s:1: "a": expected a number of GPUs above 0 such as 0.5, {"share": 0.5} or {"gpus": 2, "vram": "18G"}; found "0.5"`},
		{`{"models": {"a": null}}`, `s:1: "a": expected a number of GPUs above 0 such as 0.5, {"share": 0.5} or {"gpus": 2, "vram": "18G"}; found null`},
		{`{"models": {"a": true}}`, `s:1: "a": expected a number of GPUs above 0 such as 0.5, {"share": 0.5} or {"gpus": 2, "vram": "18G"}; found "true"`},
		{`{"models": {"a": [1]}}`, `s:1: "a": expected a number of GPUs above 0 such as 0.5, {"share": 0.5} or {"gpus": 2, "vram": "18G"}; found a list`},
		{`{"models": {"a": 1e9}}`, `s:1: "a": expected a number of GPUs above 0 such as 0.5, {"share": 0.5} or {"gpus": 2, "vram": "18G"}; found "1e9"`},
		{`{"models": {"a": NaN}}`, `s:1: expected JSON, found invalid character`},
		{`{"models": {"a": {}}}`, `s:1: "a": expected a number of GPUs above 0 such as 0.5, {"share": 0.5} or {"gpus": 2, "vram": "18G"}; found nothing`},
		{`{"models": {"a": {"share": 2}}}`, `s:1: "a": share: expected a number of GPUs above 0 such as 0.5, {"share": 0.5} or {"gpus": 2, "vram": "18G"}; found "2"`},
		{`{"models": {"a": {"share": 0.5, "gpus": 1}}}`, `s:1: "a": gpus: expected share or gpus, found both`},
		{`{"models": {"a": {"gpus": "2"}}}`, `s:1: "a": gpus: expected a number above 0 and up to 1024, found "2"`},
		{`{"models": {"a": {"vram": "lots"}}}`, `s:1: "a": vram: expected a size above 0`},
		{`{"models": {"a": {"vram": [1]}}}`, `s:1: "a": vram: expected a number of GPUs above 0 such as 0.5, {"share": 0.5} or {"gpus": 2, "vram": "18G"}; found a list`},
		{`{"models": {"a": {"vrma": "1G"}}}`, `s:1: "a": unknown key "vrma" (did you mean vram?)`},
		{`{"default_requirement": 0, "models": {}}`, `s:1: "default_requirement": expected a number of GPUs above 0 such as 0.5, {"share": 0.5} or {"gpus": 2, "vram": "18G"}; found "0"`},
		{`{"default_requirements": 0.5}`, `s:1: unknown key "default_requirements" (did you mean default_requirement?)`},
		{`{"models": 1}`, `s:1: models: expected {"NAME": 0.5}, found "1"`},
		{`[1]`, `s:1: expected a table of models such as {"default_requirement": 1.0, "models": {"NAME": 0.5}}, found a list`},
		{``, `s:1: expected a table of models such as {"default_requirement": 1.0, "models": {"NAME": 0.5}}, found 0 values`},
		{`{`, `s:1: expected JSON, found the end of the file inside a value`},
	} {
		sizes, err := ParseSizes("s", []byte(row.text))
		var errs *Errors
		if !errors.As(err, &errs) || !strings.HasPrefix(err.Error(), row.want) {
			t.Errorf("%s\ngot  %v\nwant %s", row.text, err, row.want)
		}
		if sizes.models != nil {
			t.Errorf("%s: a table came back", row.text)
		}
	}
}
