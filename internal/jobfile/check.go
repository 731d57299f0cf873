package jobfile

import (
	"fmt"
	"slices"

	"berth/internal/job"
)

// checkSpec settles what the keys of one job say together. The number of GPUs
// follows exact ids unless it was given (gpusGiven), and what contradicts
// itself is refused: better no job than one on the wrong cards.
func checkSpec(spec *job.Spec, gpusGiven bool) error {
	if len(spec.IDs) > 0 {
		if err := checkIDs(spec, gpusGiven); err != nil {
			return err
		}
	}
	if spec.GPUs == 0 && (spec.VRAMMiB > 0 || spec.VRAMAuto) {
		return fmt.Errorf("found vram with gpus=0, allowed vram only with GPUs (host memory is mem)")
	}
	if err := checkCap(spec); err != nil {
		return err
	}
	if spec.GPUs > 0 && len(spec.Allow) > 0 && spec.GPUs > len(spec.Allow) {
		return fmt.Errorf("found gpus=%d with %d in allow, allowed at most as many as allow names", spec.GPUs, len(spec.Allow))
	}
	return nil
}

func checkIDs(spec *job.Spec, gpusGiven bool) error {
	if len(spec.Allow) > 0 {
		for _, id := range spec.IDs {
			if !slices.Contains(spec.Allow, id) {
				return fmt.Errorf("found id %d in ids but not in allow, allowed ids that allow names too", id)
			}
		}
	}
	if spec.Share > 0 {
		if len(spec.IDs) > 1 {
			return fmt.Errorf("found a share of one GPU with %d in ids, allowed one", len(spec.IDs))
		}
		return nil
	}
	if gpusGiven && spec.GPUs != len(spec.IDs) {
		return fmt.Errorf("found gpus=%d with %d in ids, allowed gpus=%d or no gpus at all", spec.GPUs, len(spec.IDs), len(spec.IDs))
	}
	spec.GPUs = len(spec.IDs)
	return nil
}

// checkCap refuses a limit on memory that does not say how much, or of what.
func checkCap(spec *job.Spec) error {
	if spec.Cap == "" || spec.Cap == "none" {
		return nil
	}
	if spec.GPUs == 0 && spec.Share == 0 {
		return fmt.Errorf("found cap=%s with gpus=0, allowed cap only with GPUs", spec.Cap)
	}
	if spec.Cap == "mps" && spec.VRAMMiB == 0 && spec.Share == 0 {
		return fmt.Errorf("found cap=mps without an amount, allowed with vram=SIZE or a share of a GPU: that is its limit")
	}
	return nil
}
