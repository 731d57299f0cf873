package main

import (
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"time"

	"berth/internal/api"
)

// slurm: handing jobs over to the Slurm that SLURM_CONF names, whose nodes are
// drained so that the jobs stay in its queue, compared to sbatch in a loop. What
// following them costs slurmctld is read from its process.
func (b *bench) slurm() {
	const plain, alike, unlike = 300, 10_000, 1000
	say("scontrol", "update", "nodename=ALL", "state=drain", "reason=bench")
	start := time.Now()
	for range plain {
		say("sbatch", "--parsable", "--output=/dev/null", "--wrap", "true")
	}
	bare := plain / time.Since(start).Seconds()
	say("scancel", "--user="+strconv.Itoa(os.Getuid()))
	b.row("sbatch in a loop", fmt.Sprintf("%.0f/s", bare), "", true)
	s := b.serve("slurm")
	handed := func(n int, specs ...api.Spec) float64 {
		start := time.Now()
		s.submit(specs...)
		for len(strings.Fields(say("squeue", "--array", "--noheader", "--states=pending", "--format=%i"))) < n {
			time.Sleep(200 * time.Millisecond)
		}
		return time.Since(start).Seconds()
	}
	specs := make([]api.Spec, unlike)
	for i := range specs {
		specs[i] = api.Spec{Command: api.Command{Shell: "true"}, To: "slurm", GPUs: "0", Timeout: api.Text(strconv.Itoa(i+1) + "m")}
	}
	took := handed(unlike, specs...)
	b.row(fmt.Sprintf("handing over %d jobs that differ (%.0f/s), against sbatch", unlike, unlike/took), fmt.Sprintf("%.2f x", unlike/took/bare), ">= 0.5 x", unlike/took/bare >= 0.5)
	specs = specs[:0]
	for i := range alike {
		specs = append(specs, api.Spec{Command: api.Command{Shell: "true " + strconv.Itoa(i)}, To: "slurm", GPUs: "0"})
	}
	took = handed(alike+unlike, specs...)
	b.row(fmt.Sprintf("handing over %d jobs that are alike (%.0f/s)", alike, alike/took), fmt.Sprintf("%.1f s", took), "< 60 s", took < 60)
	b.row("the same, against sbatch", fmt.Sprintf("%.1f x", alike/took/bare), "", true)
	const watched = 60 * time.Second
	time.Sleep(10 * time.Second) // what the submissions left to do
	before := controllerTime()
	time.Sleep(watched)
	share := 100 * (controllerTime() - before).Seconds() / watched.Seconds()
	b.row(fmt.Sprintf("following these %d jobs, of one CPU of slurmctld", alike+unlike), fmt.Sprintf("%.2f %%", share), "", true)
	s.stop()
	before = controllerTime()
	time.Sleep(watched)
	alone := 100 * (controllerTime() - before).Seconds() / watched.Seconds()
	b.row("the same without berth", fmt.Sprintf("%.2f %%", alone), "", true)
	b.row("following them, by itself", fmt.Sprintf("%.2f %%", share-alone), "< 1 %", share-alone < 1)
	say("scancel", "--user="+strconv.Itoa(os.Getuid()))
	say("scontrol", "update", "nodename=ALL", "state=resume")
}

// say runs one of Slurm's programs and returns what it printed.
func say(name string, args ...string) string {
	out, err := exec.Command(name, args...).Output()
	if err != nil {
		check(fmt.Errorf("%s %s: %w", name, strings.Join(args, " "), err))
	}
	return string(out)
}

// controllerTime is the CPU time that slurmctld has used.
func controllerTime() time.Duration {
	pid := strings.TrimSpace(say("sh", "-c", `cat "$(scontrol show config | sed -n 's/^SlurmctldPidFile *= *//p')"`))
	stat, err := os.ReadFile("/proc/" + pid + "/stat")
	check(err)
	fields := strings.Fields(string(stat[strings.LastIndexByte(string(stat), ')')+1:]))
	user, err := strconv.Atoi(fields[11])
	check(err)
	system, err := strconv.Atoi(fields[12])
	check(err)
	return time.Duration(user+system) * 10 * time.Millisecond
}
