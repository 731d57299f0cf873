package gpu

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestTopology(t *testing.T) {
	for name, test := range map[string]struct {
		lines []string
		numa  map[int]int
		links map[int]map[int]int
	}{
		"no matrix": {[]string{"topo is not supported"}, map[int]int{}, map[int]map[int]int{}},
		"two pairs": {[]string{
			"\tGPU0\tGPU1\tGPU2\tCPU Affinity\tNUMA Affinity",
			"GPU0\t X \tNV4\tSYS\t0-11\t0",
			"GPU1\tNV4\t X \tSYS\t0-11\t0",
			"GPU2\tSYS\tSYS\t X \t12-23\t1",
		}, map[int]int{0: 0, 1: 0, 2: 1}, map[int]map[int]int{0: {1: 4}, 1: {0: 4}}},
		"more tabs than columns": {[]string{
			"\tGPU0\tmlx5_0\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID",
			"GPU0\t X \tNODE\t0-31,64-95\t\t3\t\tN/A",
			"mlx5_0\tNODE\t X ",
		}, map[int]int{0: 3}, map[int]map[int]int{}},
		"a node that is a range or not told": {[]string{
			"\tGPU0\tGPU1\tCPU Affinity\tNUMA Affinity",
			"GPU0\t X \tPHB\t0-7\t0-1",
			"GPU1\tPHB\t X \t0-7\tN/A",
		}, map[int]int{}, map[int]map[int]int{}},
		"cut short": {[]string{
			"\tGPU0\tGPU1\tCPU Affinity\tNUMA Affinity",
			"GPU0\t X ",
		}, map[int]int{}, map[int]map[int]int{}},
	} {
		t.Run(name, func(t *testing.T) {
			got := parseTopology([]byte(strings.Join(test.lines, "\n")))
			if diff := cmp.Diff(test.numa, got.numa); diff != "" {
				t.Error(diff)
			}
			if diff := cmp.Diff(test.links, got.links); diff != "" {
				t.Error(diff)
			}
		})
	}
}
