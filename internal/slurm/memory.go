package slurm

import (
	"slices"
	"strconv"
	"strings"

	"berth/internal/text"
)

// models are the sizes in GiB that a model was sold with. A name comes before
// those that it contains.
var models = []struct {
	name string
	gib  []int
}{
	{"gb200", []int{186}}, {"b200", []int{180}}, {"gh200", []int{96, 144}}, {"h200", []int{141}}, {"h100nvl", []int{94}}, {"h100", []int{80}}, {"h800", []int{80}}, {"h20", []int{96}},
	{"a100", []int{40, 80}}, {"a800", []int{40, 80}}, {"rtxpro6000", []int{96}}, {"rtx6000ada", []int{48}}, {"6000ada", []int{48}}, {"a6000", []int{48}}, {"a5500", []int{24}}, {"a5000", []int{24}}, {"a4500", []int{20}}, {"a4000", []int{16}},
	{"l40", []int{48}}, {"a40", []int{48}}, {"a30", []int{24}}, {"a16", []int{16}}, {"a10", []int{24}}, {"l4", []int{24}}, {"t4", []int{16}}, {"v100", []int{16, 32}}, {"p100", []int{12, 16}}, {"p40", []int{24}}, {"k80", []int{12}},
	{"rtx8000", []int{48}}, {"rtx6000", []int{24, 48}}, {"titanrtx", []int{24}}, {"titanv", []int{12}}, {"titanx", []int{12}},
	{"5090", []int{32}}, {"4090", []int{24}}, {"3090", []int{24}}, {"2080ti", []int{11}}, {"2080", []int{8}}, {"1080ti", []int{11}}, {"1080", []int{8}},
}

// named finds a size in a name, such as nvidia_a100-sxm4-80gb or 1g.10gb.
var named = text.Pattern(`(?:^|[^0-9])([0-9]{1,3})gb`)

// memory is the GPU memory in GiB that a type's name suggests: one size if it is
// certain, several to choose from, or none.
func memory(name string) []int {
	if found := named().FindStringSubmatch(strings.ToLower(name)); found != nil {
		if gib, err := strconv.Atoi(found[1]); err == nil && gib > 0 {
			return []int{gib}
		}
	}
	for _, m := range models {
		if strings.Contains(plain(name), m.name) {
			return m.gib
		}
	}
	return nil
}

// Found is a model of GPU that nodes have.
type Found struct {
	Type    string
	Feature string // by which nodes with untyped GPUs are told apart
	Count   int
	Used    int
	GiB     []int // which it may have; empty: not known
}

// Setting is the model as slurm.gpus lists it, with a ? where the size has to be
// filled in. Empty: it can be told apart from others neither by type nor by feature.
func (f Found) Setting() string {
	size := "?"
	if len(f.GiB) == 1 {
		size = strconv.Itoa(f.GiB[0]) + "G"
	}
	switch {
	case f.Type != "":
		return f.Type + "=" + size
	case f.Feature != "":
		return ":" + f.Feature + "=" + size
	}
	return ""
}

// GPUs counts the GPUs of nodes by model.
func GPUs(nodes []Node) (all []Found) {
	for _, n := range nodes {
		for _, g := range n.GPUs {
			feature := ""
			if g.Type == "" {
				feature = n.model()
			}
			i := slices.IndexFunc(all, func(f Found) bool { return f.Type == g.Type && f.Feature == feature })
			if i < 0 {
				i, all = len(all), append(all, Found{Type: g.Type, Feature: feature, GiB: memory(g.Type + feature)})
			}
			all[i].Count += g.Count
			all[i].Used += g.Used
		}
	}
	return all
}

// model is the feature that names the GPUs of a node; empty if no feature does.
func (n Node) model() string {
	for _, feature := range n.Features {
		if memory(feature) != nil && word(feature) {
			return feature
		}
	}
	return ""
}

// ShardsPerGPU is how many shards each GPU has: the smallest number, if nodes
// differ; 0: no GPU has shards.
func ShardsPerGPU(nodes []Node) (least int) {
	for _, n := range nodes {
		gpus := 0
		for _, g := range n.GPUs {
			gpus += g.Count
		}
		if gpus > 0 && n.Shards > 0 && (least == 0 || n.Shards/gpus < least) {
			least = n.Shards / gpus
		}
	}
	return least
}

// SettingsCommand is the arguments of scontrol for the cluster's configuration.
func SettingsCommand() []string { return []string{"show", "config"} }

// Settings reads what scontrol printed, or slurm.conf: lines of "Key = value". The
// keys are in lower case.
func Settings(out string) map[string]string {
	settings := map[string]string{}
	for line := range strings.Lines(out) {
		if key, cell, found := strings.Cut(line, "="); found {
			settings[strings.ToLower(strings.TrimSpace(key))] = value(cell)
		}
	}
	return settings
}
