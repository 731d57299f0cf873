package main

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// limits is which host resources this daemon can limit.
func (d *daemon) limits(ctx context.Context) (cpus, mem string, err error) {
	var e enforced
	if err := d.get(ctx, "/v1/status", &e); err != nil || e.Enforced == nil {
		return "", "", err
	}
	return e.Enforced.CPUs, e.Enforced.Mem, nil
}

// hostMemory: a job takes twice its --mem.
func hostMemory(ctx context.Context, t *trial) error {
	d, err := t.onCard(ctx)
	if err != nil {
		return err
	}
	_, version, err := d.limits(ctx)
	if err != nil {
		return err
	}
	if version == "" {
		return skipf("the daemon cannot limit memory here")
	}
	// tail keeps everything, because zeroes contain no newline.
	id, err := d.submit(ctx, []string{"head -c 1073741824 /dev/zero | tail >/dev/null"}, "--gpus", "0", "--mem", "512M", "--name", "glutton")
	if err != nil {
		return err
	}
	small, err := d.submit(ctx, []string{"head -c 104857600 /dev/zero | tail >/dev/null"}, "--gpus", "0", "--mem", "512M", "--name", "modest")
	if err != nil {
		return err
	}
	ends, err := d.ended(ctx, id)
	if err != nil {
		return err
	}
	reason := ""
	if ends[0].Reason != nil {
		reason = *ends[0].Reason
	}
	t.expect(outcome(ends[0]) != "ok" && strings.Contains(reason, "memory"), "1 GiB under --mem 512M: %s", d.explain(ctx, ends[0]))
	t.seen("cgroup %s: 1 GiB under --mem 512M: %s, %s", version, outcome(ends[0]), reason)
	_, err = d.allWell(ctx, small)
	return err
}

// hostCPUs: four busy loops under --cpus 1.
func hostCPUs(ctx context.Context, t *trial) error {
	d, err := t.onCard(ctx)
	if err != nil {
		return err
	}
	version, _, err := d.limits(ctx)
	if err != nil {
		return err
	}
	if version == "" {
		return skipf("the daemon cannot limit CPUs here")
	}
	const seconds = 4
	line := fmt.Sprintf("for i in 1 2 3 4; do timeout %d sh -c 'while :; do :; done' & done; wait; times", seconds)
	id, err := d.submit(ctx, []string{line}, "--gpus", "0", "--cpus", "1", "--name", "busy")
	if err != nil {
		return err
	}
	if _, err := d.allWell(ctx, id); err != nil {
		return err
	}
	used, err := timesOfChildren(d.log(ctx, id))
	if err != nil {
		return err
	}
	cpus := used.Seconds() / seconds
	t.expect(cpus <= 1.25, "four busy loops under --cpus 1 use %.2f CPUs", cpus)
	t.seen("cgroup %s: four busy loops under --cpus 1 use %.2f CPUs", version, cpus)
	return nil
}

// timesOfChildren reads the second line of the shell's times: the user and
// system time of its children.
func timesOfChildren(text string) (time.Duration, error) {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	sum := time.Duration(0)
	for word := range strings.FieldsSeq(lines[len(lines)-1]) {
		took, err := time.ParseDuration(word)
		if err != nil {
			return 0, fmt.Errorf("parse times: %q", text)
		}
		sum += took
	}
	return sum, nil
}

// pinning: a job runs on the CPUs in its environment, and no others.
func pinning(ctx context.Context, t *trial) error {
	d, err := t.onCard(ctx)
	if err != nil {
		return err
	}
	id, err := d.submit(ctx, []string{`echo "gpu-test: told $BERTH_CPUS"; sed -n 's/^Cpus_allowed_list:/gpu-test: allowed/p' /proc/self/status`}, vram(1024), "--pin", "--name", "pinned")
	if err != nil {
		return unknown(err)
	}
	if _, err := d.allWell(ctx, id); err != nil {
		return err
	}
	told, _ := d.said(ctx, id, "told")
	allowed, _ := d.said(ctx, id, "allowed")
	if told == "" {
		return skipf("this host does not report the CPUs near the GPU")
	}
	want, err := cpuList(told)
	if err != nil {
		return err
	}
	got, err := cpuList(allowed)
	if err != nil {
		return err
	}
	for cpu := range got {
		t.expect(want[cpu], "the job may run on CPU %d, which is not in %s", cpu, told)
	}
	t.seen("BERTH_CPUS=%s, the job may run on %s", told, allowed)
	return nil
}

// cpuList reads a list in the kernel's form, "0-3,8".
func cpuList(text string) (map[int]bool, error) {
	cpus := map[int]bool{}
	for part := range strings.SplitSeq(strings.TrimSpace(text), ",") {
		low, high, isRange := strings.Cut(part, "-")
		if !isRange {
			high = low
		}
		from, fromErr := strconv.Atoi(low)
		to, toErr := strconv.Atoi(high)
		if fromErr != nil || toErr != nil || to < from || to > 1<<16 {
			return nil, fmt.Errorf("expected a list of CPUs, found %q", text)
		}
		for cpu := from; cpu <= to; cpu++ {
			cpus[cpu] = true
		}
	}
	return cpus, nil
}
