package slurm

import (
	"slices"
	"testing"
)

func TestMemory(t *testing.T) {
	for name, want := range map[string][]int{
		"a100": {40, 80}, "nvidia_a100-sxm4-80gb": {80}, "NVIDIA_A100_80GB_PCIe": {80}, "h100": {80}, "nvidia_h100_nvl": {94}, "h200": {141}, "1g.10gb": {10}, "a100_3g.20gb": {20},
		"rtx_a6000": {48}, "rtx6000": {24, 48}, "rtx_6000_ada": {48}, "quadro_rtx_8000": {48}, "geforce_rtx_2080_ti": {11}, "l40s": {48}, "l4": {24}, "tesla_t4": {16}, "v100": {16, 32}, "gh200": {96, 144},
		"": nil, "fpga": nil, "titan": nil,
	} {
		if got := memory(name); !slices.Equal(got, want) {
			t.Errorf("%s: %v, want %v", name, got, want)
		}
	}
}

func TestGPUsOfNodes(t *testing.T) {
	nodes := []Node{
		{GPUs: []NodeGPU{{Type: "a100", Count: 4, Used: 1}}, Shards: 16},
		{GPUs: []NodeGPU{{Type: "a100", Count: 4}, {Type: "odd", Count: 2}}},
		{GPUs: []NodeGPU{{Count: 2}}, Features: []string{"ib", "v100_32gb"}, Shards: 4},
		{GPUs: []NodeGPU{{Count: 1}}, Features: []string{"ib"}},
	}
	var settings []string
	for _, f := range GPUs(nodes) {
		settings = append(settings, f.Setting())
	}
	if want := []string{"a100=?", "odd=?", ":v100_32gb=32G", ""}; !slices.Equal(settings, want) {
		t.Errorf("%q", settings)
	}
	if f := GPUs(nodes)[0]; f.Count != 8 || f.Used != 1 {
		t.Errorf("%+v", f)
	}
	if n := ShardsPerGPU(nodes); n != 2 {
		t.Errorf("%d shards", n)
	}
	if n := ShardsPerGPU(nil); n != 0 {
		t.Errorf("%d shards", n)
	}
}

func TestSettings(t *testing.T) {
	got := Settings("Configuration data as of 2026-03-01T10:00:00\nAccountingStorageType   = accounting_storage/none\nClusterName             = lab\nSchedulerParameters     = a=1,b=2\nGresTypes = (null)\n\nSlurmctld(primary) at vm is UP\n")
	if got["clustername"] != "lab" || got["schedulerparameters"] != "a=1,b=2" || got["grestypes"] != "" || got["accountingstoragetype"] != "accounting_storage/none" {
		t.Errorf("%q", got)
	}
}

func TestParseKind(t *testing.T) {
	for text, want := range map[string]Kind{
		"a100=80G": {Type: "a100", MiB: 80 << 10}, "v100:volta=16G": {Type: "v100", MiB: 16 << 10, Feature: "volta"}, ":volta=16384": {MiB: 16 << 10, Feature: "volta"},
	} {
		if got, err := ParseKind(text); err != nil || got != want {
			t.Errorf("%s: %+v, %v", text, got, err)
		}
	}
	for _, text := range []string{"", "a100", "a100=", "a100=?", "=80G", ":=80G", "a100:=80G", "a b=80G", "-a=80G", "a,b=80G", "a:b:c=80G", "a=80X"} {
		if got, err := ParseKind(text); err == nil {
			t.Errorf("%s: %+v", text, got)
		}
	}
}
