package jobfile

import (
	"fmt"
	"slices"

	"berth/internal/job"
)

// checkSpec checks the keys of one job against each other. Exact ids set the
// number of GPUs unless it was given (gpusGiven). Contradictions are refused:
// better no job than one on the wrong cards.
func checkSpec(spec *job.Spec, gpusGiven bool) error {
	if len(spec.IDs) > 0 {
		if err := checkIDs(spec, gpusGiven); err != nil {
			return err
		}
	}
	if spec.GPUs == 0 && (spec.VRAMMiB > 0 || spec.VRAMAuto) {
		return fmt.Errorf("a job with gpus=0 cannot have vram; the key for host memory is mem")
	}
	if err := checkCap(spec); err != nil {
		return err
	}
	if err := checkParking(spec); err != nil {
		return err
	}
	if spec.Checkpoint != 0 && !spec.Preemptible.Requeues() {
		found := "a job that cannot be preempted"
		if spec.Preemptible != "" {
			found = "preemptible=" + string(spec.Preemptible)
		}
		return fmt.Errorf("expected preemptible=requeue with checkpoint, found %s", found)
	}
	if spec.SavesTo != "" && spec.Checkpoint == 0 {
		return fmt.Errorf("expected checkpoint with checkpoint_file: how often it saves its work, or term; found none")
	}
	if spec.GPUs > 0 && len(spec.Allow) > 0 && spec.GPUs > len(spec.Allow) {
		return fmt.Errorf("gpus: expected at most %d, as many as allow lists; found %d", len(spec.Allow), spec.GPUs)
	}
	return nil
}

func checkIDs(spec *job.Spec, gpusGiven bool) error {
	if len(spec.Allow) > 0 {
		for _, id := range spec.IDs {
			if !slices.Contains(spec.Allow, id) {
				return fmt.Errorf("ids: expected only ids that allow lists too, found %d", id)
			}
		}
	}
	if spec.Share > 0 {
		if len(spec.IDs) > 1 {
			return fmt.Errorf("ids: expected one id with a share of a GPU, found %d", len(spec.IDs))
		}
		return nil
	}
	if gpusGiven && spec.GPUs != len(spec.IDs) {
		return fmt.Errorf("gpus: expected %d, as many as ids lists, or no gpus key; found %d", len(spec.IDs), spec.GPUs)
	}
	spec.GPUs = len(spec.IDs)
	return nil
}

// checkCap refuses a memory limit without an amount or without a GPU.
func checkCap(spec *job.Spec) error {
	if spec.Cap == "" || spec.Cap == "none" {
		return nil
	}
	if spec.GPUs == 0 && spec.Share == 0 {
		return fmt.Errorf("expected cap only with GPUs, found cap=%s with gpus=0", spec.Cap)
	}
	if spec.Cap == "mps" && spec.VRAMMiB == 0 && spec.Share == 0 {
		return fmt.Errorf("expected vram=SIZE or a share of a GPU with cap=mps, found neither")
	}
	return nil
}

// checkParking refuses a job that asks to be parked and never to be, and one
// without a GPU to leave.
func checkParking(spec *job.Spec) error {
	asks := ""
	switch {
	case spec.Preemptible.Parks():
		asks = "preemptible=" + string(spec.Preemptible)
	case spec.OnTimeout == job.TimeoutPark:
		asks = "on_timeout=park"
	}
	switch {
	case asks != "" && spec.NoPark:
		return fmt.Errorf("expected either %s or no_park, found both", asks)
	case spec.OnTimeout == job.TimeoutPark && spec.GPUs == 0:
		return fmt.Errorf("on_timeout: expected kill or requeue with gpus=0, found %q", spec.OnTimeout)
	case spec.OnTimeout == job.TimeoutPark && spec.Cap == "mps":
		return fmt.Errorf("on_timeout: expected kill or requeue with cap=mps, found %q", spec.OnTimeout)
	}
	return nil
}
