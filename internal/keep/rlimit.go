package keep

import (
	"fmt"
	"slices"
	"syscall"
)

// late reports whether the stage itself would stumble over a small limit of
// that kind: memory, stack and descriptors are limited as the last thing.
func late(resource int) bool {
	const data, stack, nofile, as = 2, 3, 7, 9
	return slices.Contains([]int{data, stack, nofile, as}, resource)
}

// raiseLimits sets the limits, while that takes no more than root's rights, but
// for the late ones: those are only made possible. A host that does not let
// root raise a limit, as many containers, leaves it where it is.
func raiseLimits(limits []Rlimit) (remark string, err error) {
	for _, l := range limits {
		var now syscall.Rlimit
		if err := syscall.Getrlimit(l.Resource, &now); err != nil {
			return "", fmt.Errorf("ask for limit %d: %w", l.Resource, err)
		}
		if l.Hard > now.Max {
			now.Max = l.Hard
			if err := syscall.Setrlimit(l.Resource, &now); err != nil {
				remark = note(remark, fmt.Sprintf("limit %d not raised: %v", l.Resource, err))
			}
		}
		if late(l.Resource) {
			continue
		}
		if err := setLimit(l); err != nil {
			return "", err
		}
	}
	return remark, nil
}

// lowerLimits sets the late ones, to the letter or to what was to be had.
func lowerLimits(limits []Rlimit) error {
	for _, l := range limits {
		if !late(l.Resource) {
			continue
		}
		if err := setLimit(l); err != nil {
			return err
		}
	}
	return nil
}

func setLimit(l Rlimit) error {
	var now syscall.Rlimit
	if err := syscall.Getrlimit(l.Resource, &now); err != nil {
		return fmt.Errorf("ask for limit %d: %w", l.Resource, err)
	}
	want := syscall.Rlimit{Cur: min(l.Soft, now.Max), Max: min(l.Hard, now.Max)}
	if err := syscall.Setrlimit(l.Resource, &want); err != nil {
		return fmt.Errorf("set limit %d to %d:%d: %w", l.Resource, l.Soft, l.Hard, err)
	}
	return nil
}
