package main

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// limits is which host resources this daemon can limit.
func (d *daemon) limits(ctx context.Context) (cpus, mem string) {
	var e enforced
	if need(d.get(ctx, "/v1/status", &e)); e.Enforced != nil {
		cpus, mem = e.Enforced.CPUs, e.Enforced.Mem
	}
	return cpus, mem
}

// hostMemory: a job takes twice its --mem.
func hostMemory(ctx context.Context, t *trial) {
	d := must(t.onCard(ctx))
	_, version := d.limits(ctx)
	t.requires(version != "", "the daemon cannot limit memory here")
	// tail keeps everything, because zeroes contain no newline.
	id := must(d.submit(ctx, []string{"head -c 1073741824 /dev/zero | tail >/dev/null"}, "--gpus", "0", "--mem", "512M", "--name", "glutton"))
	small := must(d.submit(ctx, []string{"head -c 104857600 /dev/zero | tail >/dev/null"}, "--gpus", "0", "--mem", "512M", "--name", "modest"))
	ends := must(d.ended(ctx, id))
	reason := ""
	if ends[0].Reason != nil {
		reason = *ends[0].Reason
	}
	t.expect(outcome(ends[0]) != "ok" && strings.Contains(reason, "memory"), "1 GiB under --mem 512M: %s", d.explain(ctx, ends[0]))
	t.seen("cgroup %s: 1 GiB under --mem 512M: %s, %s", version, outcome(ends[0]), reason)
	must(d.allWell(ctx, small))
}

// hostCPUs: four busy loops under --cpus 1.
func hostCPUs(ctx context.Context, t *trial) {
	d := must(t.onCard(ctx))
	version, _ := d.limits(ctx)
	t.requires(version != "", "the daemon cannot limit CPUs here")
	const seconds = 4
	line := fmt.Sprintf("for i in 1 2 3 4; do timeout %d sh -c 'while :; do :; done' & done; wait; times", seconds)
	id := must(d.submit(ctx, []string{line}, "--gpus", "0", "--cpus", "1", "--name", "busy"))
	must(d.allWell(ctx, id))
	used := must(timesOfChildren(d.log(ctx, id)))
	cpus := used.Seconds() / seconds
	t.expect(cpus <= 1.25, "four busy loops under --cpus 1 use %.2f CPUs", cpus)
	t.seen("cgroup %s: four busy loops under --cpus 1 use %.2f CPUs", version, cpus)
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
func pinning(ctx context.Context, t *trial) {
	d := must(t.onCard(ctx))
	id := known(d.submit(ctx, []string{`echo "gpu-test: told $BERTH_CPUS"; sed -n 's/^Cpus_allowed_list:/gpu-test: allowed/p' /proc/self/status`}, vram(1024), "--pin", "--name", "pinned"))
	must(d.allWell(ctx, id))
	told, _ := d.said(ctx, id, "told")
	allowed, _ := d.said(ctx, id, "allowed")
	t.requires(told != "", "this host does not report the CPUs near the GPU")
	want := must(cpuList(told))
	got := must(cpuList(allowed))
	for cpu := range got {
		t.expect(want[cpu], "the job may run on CPU %d, which is not in %s", cpu, told)
	}
	t.seen("BERTH_CPUS=%s, the job may run on %s", told, allowed)
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
