package queue

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"berth/internal/machine/gpu"
)

func visibleCards(n int) []gpu.Device {
	cards := make([]gpu.Device, n)
	for i := range cards {
		cards[i] = gpu.Unknown(i, fmt.Sprintf("GPU-%d%d-x", i, i), "card")
	}
	return cards
}

// TestWhichCardsSlurmGave, as the driver's numbers and the node's.
func TestWhichCardsSlurmGave(t *testing.T) {
	parted := visibleCards(2)
	parted[1].UUID, parted[1].Index, parted[1].DriverIndex, parted[1].Part = "MIG-a", 100, 100, &gpu.Part{Of: 0}
	tests := []struct {
		name    string
		visible []gpu.Device
		env     string
		want    string // driver's number:the node's
	}{
		{"all cards can be seen", visibleCards(4), "CUDA_VISIBLE_DEVICES=2,3 SLURM_JOB_GPUS=2,3", "2:2 3:3"},
		{"only the job's can be seen", visibleCards(2), "CUDA_VISIBLE_DEVICES=0,1 SLURM_JOB_GPUS=2,3", "0:2 1:3"},
		{"only the job's one can be seen", visibleCards(1), "CUDA_VISIBLE_DEVICES=0 SLURM_JOB_GPUS=3", "0:3"},
		{"Slurm names the node's numbers although others are hidden", visibleCards(2), "CUDA_VISIBLE_DEVICES=2,3 SLURM_JOB_GPUS=2,3", "0:2 1:3"},
		{"no SLURM_JOB_GPUS", visibleCards(4), "CUDA_VISIBLE_DEVICES=3", "3:3"},
		{"no CUDA_VISIBLE_DEVICES", visibleCards(4), "SLURM_JOB_GPUS=1-2", "1:1 2:2"},
		{"no CUDA_VISIBLE_DEVICES, others are hidden", visibleCards(2), "SLURM_JOB_GPUS=1-2", "0:1 1:2"},
		{"another variable", visibleCards(4), "GPU_DEVICE_ORDINAL=1", "1:1"},
		{"UUIDs", visibleCards(4), "CUDA_VISIBLE_DEVICES=GPU-22-x,GPU-11", "2:2 1:1"},
		{"a MIG part", parted, "CUDA_VISIBLE_DEVICES=MIG-a SLURM_JOB_GPUS=5", "100:100"},
		{"another order", visibleCards(4), "CUDA_VISIBLE_DEVICES=3,1", "3:3 1:1"},
		{"one that does not exist", visibleCards(4), "CUDA_VISIBLE_DEVICES=7", ""},
		{"one twice", visibleCards(4), "CUDA_VISIBLE_DEVICES=1,1", ""},
		{"none", visibleCards(4), "CUDA_VISIBLE_DEVICES=", ""},
		{"none, as older Slurms say it", visibleCards(4), "CUDA_VISIBLE_DEVICES=NoDevFiles", ""},
		{"nothing is said", visibleCards(4), "", ""},
		{"there are none", nil, "CUDA_VISIBLE_DEVICES=0 SLURM_JOB_GPUS=0", ""},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			lookup := func(name string) (string, bool) {
				for _, pair := range strings.Fields(test.env) {
					if value, ok := strings.CutPrefix(pair, name+"="); ok {
						return value, true
					}
				}
				return "", false
			}
			var got []string
			for _, d := range Given(lookup, test.visible) {
				got = append(got, fmt.Sprintf("%d:%d", d.DriverIndex, d.Index))
			}
			if strings.Join(got, " ") != test.want {
				t.Errorf("got %v, want %s", got, test.want)
			}
		})
	}
}

func TestNumbersOfAList(t *testing.T) {
	for list, want := range map[string][]int{"0": {0}, "0,2-4": {0, 2, 3, 4}, "": nil, "a": nil, "3-1": nil, "1,1": nil, "0-99999": nil, "-1": nil} {
		if got := numbers(list); !slices.Equal(got, want) {
			t.Errorf("%q: %v", list, got)
		}
	}
}
