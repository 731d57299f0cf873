package slurm

import (
	"cmp"
	"strings"

	"berth/internal/text"
)

// Cluster is what berth knows about a Slurm cluster, from its config.
type Cluster struct {
	Options []string // default options for sbatch, as Words returns them
	Kinds   []Kind   // the GPUs it has; empty: not known
	Shards  int      // how many shards one GPU has; 0: none
}

// Kind is one model of GPU in the cluster.
type Kind struct {
	Type    string // gres type, such as a100; empty: its gres has no type
	MiB     int64  // memory of one GPU
	Feature string // node feature that selects it with --constraint; may be empty
}

// ExpectedKind describes what ParseKind takes.
const ExpectedKind = "TYPE=SIZE, TYPE:FEATURE=SIZE or :FEATURE=SIZE, such as a100=80G"

// ParseKind reads a model of GPU: its gres type, the node feature of its nodes, or
// both, and the memory of one GPU.
func ParseKind(s string) (Kind, error) {
	names, size, found := strings.Cut(s, "=")
	mib, err := text.ParseSize(size)
	kind, feature, hasFeature := strings.Cut(names, ":")
	good := found && err == nil && (kind != "" || hasFeature) && (kind == "" || word(kind)) && (!hasFeature || word(feature))
	if !good {
		return Kind{}, text.Mismatch(s, ExpectedKind)
	}
	return Kind{Type: kind, MiB: mib, Feature: feature}, nil
}

// name is how a kind is called in messages.
func (k Kind) name() string {
	return cmp.Or(k.Type, k.Feature)
}

// matches reports whether a job that asks for this type accepts the kind. As on
// one machine, part of the name is enough, in any case.
func (k Kind) matches(wanted string) bool {
	wanted = plain(wanted)
	return strings.Contains(plain(k.Type), wanted) || strings.Contains(plain(k.Feature), wanted)
}

// plain removes what differs between NVIDIA's names and gres types: "A100-SXM4"
// and "a100_sxm4" are the same model.
func plain(name string) string {
	return strings.ToLower(strings.NewReplacer(" ", "", "-", "", "_", "").Replace(name))
}
