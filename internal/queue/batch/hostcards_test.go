package batch

import (
	"errors"
	"strings"
	"testing"

	"berth/internal/job"
	"berth/internal/machine/gpu"
	"berth/internal/text/problem"
)

func TestChooseCards(t *testing.T) {
	t.Parallel()
	sample := gpu.Sample{Devices: []gpu.Device{{Index: 0, UUID: "GPU-a"}, {Index: 1, UUID: "GPU-b"}, {Index: 3, UUID: "GPU-d"}}}
	parted := gpu.Sample{Devices: []gpu.Device{{Index: 0, UUID: "GPU-a"},
		{Index: 200, UUID: "MIG-b", Part: &gpu.Part{Of: 1}}, {Index: 201, UUID: "MIG-c", Part: &gpu.Part{Of: 1}}}}
	tests := []struct {
		name   string
		flag   []int
		env    []string
		sample gpu.Sample
		want   string
		code   int
		says   string
	}{
		{name: "all of them", sample: sample, want: "0,1,3"},
		{name: "those of --gpus, in that order", flag: []int{3, 0}, sample: sample, want: "3,0"},
		{name: "--gpus wins over what is inherited", flag: []int{1}, env: []string{"CUDA_VISIBLE_DEVICES=0"}, sample: sample, want: "1"},
		{name: "--gpus names one that is not there", flag: []int{2}, sample: sample, code: 2, says: "this machine has 0, 1, 3"},
		{name: "those that are inherited", env: []string{"CUDA_VISIBLE_DEVICES=3, 1"}, sample: sample, want: "3,1"},
		{name: "by their UUID too", env: []string{"CUDA_VISIBLE_DEVICES=GPU-b"}, sample: sample, want: "1"},
		{name: "the last of two variables counts", env: []string{"CUDA_VISIBLE_DEVICES=0", "CUDA_VISIBLE_DEVICES=1"}, sample: sample, want: "1"},
		{name: "an inherited one that is not there", env: []string{"CUDA_VISIBLE_DEVICES=7"}, sample: sample, code: 2, says: `names "7"`},
		{name: "none may be used", env: []string{"CUDA_VISIBLE_DEVICES="}, sample: sample, code: 1, says: "is empty"},
		{name: "none may be used, as CUDA is told that", env: []string{"CUDA_VISIBLE_DEVICES=-1"}, sample: sample, code: 1, says: "is -1, so no GPU may be used"},
		{name: "one is named twice", env: []string{"CUDA_VISIBLE_DEVICES=0,0"}, sample: sample, code: 2, says: "names GPU 0 twice: 0,0"},
		{name: "one is named twice, once by its UUID", env: []string{"CUDA_VISIBLE_DEVICES=1,GPU-b"}, sample: sample, code: 2, says: "names GPU 1 twice"},
		{name: "one of them is -1", env: []string{"CUDA_VISIBLE_DEVICES=0,-1"}, sample: sample, code: 2, says: `names "-1"`},
		{name: "a part by its UUID", env: []string{"CUDA_VISIBLE_DEVICES=MIG-c"}, sample: parted, want: "201"},
		{name: "--gpus names a card that is in parts", flag: []int{1}, sample: parted, code: 2, says: "GPU 1, which is partitioned; its parts are 200, 201"},
		{name: "an inherited one that is in parts", env: []string{"CUDA_VISIBLE_DEVICES=1"}, sample: parted, code: 2, says: `names "1", which is partitioned`},
		{name: "none can be read", sample: gpu.Sample{Faults: []gpu.Fault{{Text: "fell off the bus"}}}, code: 1, says: "no GPU of this machine can be read: fell off the bus"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			h := &gpuChoice{opt: &HostOptions{GPUs: test.flag}, env: test.env}
			err := h.choose(test.sample)
			if test.says == "" {
				if err != nil || (job.Grant{GPUs: h.cards}).List() != test.want {
					t.Errorf("cards %v, %v", h.cards, err)
				}
				return
			}
			p, ok := errors.AsType[*problem.Problem](err)
			if !ok || p.Kind.ExitStatus() != test.code || !strings.Contains(p.What, test.says) {
				t.Fatalf("it says %v", err)
			}
			if test.env != nil && p.Hint != "unset it, or choose GPUs with --gpus" {
				t.Errorf("the hint is %q", p.Hint)
			}
		})
	}
}
