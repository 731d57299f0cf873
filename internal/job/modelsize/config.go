package modelsize

import (
	"cmp"
	"encoding/json"
	"fmt"
	"math"
	"strings"

	"berth/internal/text"
)

// MaxConfig bounds config.json.
const MaxConfig = 4 << 20

// Shape is the network of a language model. A count that is unknown is 0.
type Shape struct {
	Architecture string
	DType        string // of the weights, as config.json says; "": unknown
	Layers       float64
	Hidden       float64
	Heads        float64
	KVHeads      float64
	HeadDim      float64
	Intermediate float64 // of one token: of all its experts, if it has several
	Vocab        float64
	MaxContext   float64
	Window       float64 // of sliding attention; 0: every token sees all before it
}

// known reports whether cache and activations can be worked out.
func (s Shape) known() bool {
	return s.Layers > 0 && s.Hidden > 0 && s.KVHeads > 0 && s.HeadDim > 0 && s.Intermediate > 0 && s.Vocab > 0
}

// Architectures call the same count by different names.
var (
	layersKeys       = []string{"num_hidden_layers", "n_layer", "n_layers", "num_layers"}
	hiddenKeys       = []string{"hidden_size", "n_embd", "d_model", "dim"}
	headsKeys        = []string{"num_attention_heads", "n_head", "n_heads"}
	kvHeadsKeys      = []string{"num_key_value_heads", "num_kv_heads", "multi_query_group_num", "n_kv_heads"}
	intermediateKeys = []string{"intermediate_size", "ffn_dim", "n_inner", "ffn_hidden_size"}
	contextKeys      = []string{"max_position_embeddings", "n_positions", "max_sequence_length", "n_ctx", "seq_length"}
)

// maxCount is beyond every count of a real model.
const maxCount = 1 << 32

// ParseConfig reads a config.json. A model of several parts, such as one that
// also sees images, has the shape of its language model.
func ParseConfig(content []byte) (Shape, error) {
	if len(content) > MaxConfig {
		return Shape{}, fmt.Errorf("expected at most %d MiB, found more", MaxConfig>>20)
	}
	var c config
	if err := json.Unmarshal(content, &c); err != nil {
		return Shape{}, fmt.Errorf("expected a JSON object: %w", err)
	}
	var s Shape
	var names []string
	if json.Unmarshal(c["architectures"], &names) == nil && len(names) > 0 {
		s.Architecture = names[0]
	}
	s.DType = c.word("torch_dtype", "dtype")
	for _, part := range []string{"text_config", "llm_config", "language_config"} {
		var inner config
		if json.Unmarshal(c[part], &inner) == nil && len(inner) > 0 {
			if c = inner; s.DType == "" {
				s.DType = c.word("torch_dtype", "dtype")
			}
			break
		}
	}
	var err error
	count := func(keys ...string) float64 {
		n, wrong := c.count(keys)
		if err == nil {
			err = wrong
		}
		return n
	}
	s.Layers, s.Hidden, s.Heads = count(layersKeys...), count(hiddenKeys...), count(headsKeys...)
	s.KVHeads, s.HeadDim = count(kvHeadsKeys...), count("head_dim")
	s.Intermediate, s.Vocab = count(intermediateKeys...), count("vocab_size")
	s.MaxContext = count(contextKeys...)
	if string(c["use_sliding_window"]) != "false" {
		s.Window = count("sliding_window")
	}
	if expert, each := count("moe_intermediate_size"), count("num_experts_per_tok"); each > 0 {
		expert = cmp.Or(expert, s.Intermediate)
		s.Intermediate = max(s.Intermediate, expert*each)
	}
	if string(c["multi_query"]) == "true" && s.KVHeads == 0 {
		s.KVHeads = 1
	}
	s.complete()
	return s, err
}

// complete works out the counts that a config may leave out.
func (s *Shape) complete() {
	s.KVHeads = cmp.Or(s.KVHeads, s.Heads)
	if s.HeadDim == 0 && s.Heads > 0 {
		s.HeadDim = math.Ceil(s.Hidden / s.Heads)
	}
	s.Intermediate = cmp.Or(s.Intermediate, 4*s.Hidden)
}

// config is one object of config.json.
type config map[string]json.RawMessage

// count reads the first of these keys that is there; null is as good as absent.
func (c config) count(keys []string) (float64, error) {
	for _, key := range keys {
		raw, found := c[key]
		if !found || string(raw) == "null" {
			continue
		}
		var n float64
		if err := json.Unmarshal(raw, &n); err != nil || n < 0 || n > maxCount || n != math.Trunc(n) {
			return 0, fmt.Errorf("%s: expected a whole number from 0 to %d, found %s", key, int64(maxCount), text.Found(string(raw)))
		}
		return n, nil
	}
	return 0, nil
}

func (c config) word(keys ...string) string {
	for _, key := range keys {
		var word string
		if json.Unmarshal(c[key], &word) == nil && word != "" {
			return strings.TrimPrefix(word, "torch.")
		}
	}
	return ""
}
