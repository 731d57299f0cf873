package keep

import (
	"fmt"
	"slices"
	"syscall"
)

// late reports whether a small limit of that kind would break the stage
// itself: memory, stack and descriptors are limited last.
func late(resource int) bool {
	const data, stack, nofile, as = 2, 3, 7, 9
	return slices.Contains([]int{data, stack, nofile, as}, resource)
}

// raiseLimits sets the limits while the process is still root, except the late
// ones, whose hard limit is only raised. A host that does not let root raise a
// limit, like many containers, leaves it unchanged.
func raiseLimits(limits []Rlimit) (remark string, err error) {
	for _, l := range limits {
		var now syscall.Rlimit
		if err := syscall.Getrlimit(l.Resource, &now); err != nil {
			return "", fmt.Errorf("get limit %d: %w", l.Resource, err)
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

// lowerLimits sets the late ones, exactly or to the highest possible value.
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
		return fmt.Errorf("get limit %d: %w", l.Resource, err)
	}
	want := syscall.Rlimit{Cur: min(l.Soft, now.Max), Max: min(l.Hard, now.Max)}
	if err := syscall.Setrlimit(l.Resource, &want); err != nil {
		return fmt.Errorf("set limit %d to %d:%d: %w", l.Resource, l.Soft, l.Hard, err)
	}
	return nil
}
