package allocation

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"berth/internal/job"
	"berth/internal/slurm/handover"
)

// directory is that of one allocation.
type directory string

func (d directory) file(name string) string { return filepath.Join(string(d), name) }

// Its files, besides those of its berth run.
const (
	scriptName = "script"
	jobsName   = "jobs.txt"
	endName    = "0.end"     // the script ended, and no job of it runs any more
	toldName   = "0.told"    // when Slurm, or berth, told it to end
	ranName    = "ran"       // how much of jobs.txt its berth run had when it last ended
	aliveName  = "alive"     // changes every few seconds while it lives
	noMoreName = "no-more"   // no job will follow: it ends when it is done
	stopName   = "stop"      // it is to stop its jobs and end
	outName    = "slurm.out" // what the script and its berth run printed
)

// dirOf is where the allocations of a log directory are.
func dirOf(logDir string) string { return filepath.Join(logDir, "alloc") }

// Present reports whether the jobs of a log directory run in allocations.
func Present(logDir string) bool { return directory(dirOf(logDir)).has("ledger.jsonl") }

// create makes the directory of an allocation that is about to be asked for.
func (d directory) create(script string) error {
	if err := os.MkdirAll(string(d), 0o755); err != nil {
		return err
	}
	if err := os.WriteFile(d.file(jobsName), nil, 0o644); err != nil {
		return err
	}
	return os.WriteFile(d.file(scriptName), []byte(script), 0o755)
}

// sizeOf is how many bytes of jobs an allocation has.
func sizeOf(lines []string) (bytes int64) {
	for _, l := range lines {
		bytes += int64(len(l)) + 1
	}
	return bytes
}

// give replaces the jobs of the allocation: all that it ever got, in order. Its
// berth run numbers them in this order.
func (d directory) give(lines []string) error {
	fresh := d.file(".new-" + jobsName)
	if err := os.WriteFile(fresh, []byte(strings.Join(lines, "\n")+"\n"), 0o644); err != nil {
		return err
	}
	return os.Rename(fresh, d.file(jobsName))
}

// lines are the jobs that the allocation has.
func (d directory) lines() ([]string, error) {
	raw, err := os.ReadFile(d.file(jobsName))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil // it was about to be asked for
	}
	text := strings.TrimSuffix(string(raw), "\n")
	if text == "" {
		return nil, err
	}
	return strings.Split(text, "\n"), err
}

// mark makes an empty file that the script looks for.
func (d directory) mark(name string) error {
	return os.WriteFile(d.file(name), nil, 0o644)
}

// startMarker is a start marker with what the script found on its node.
type startMarker struct {
	handover.Begun
	GPUs   int   `json:"width"`
	GPUMiB int64 `json:"gpu_mib"`
	CPUs   int   `json:"cpus"`
}

// begun reads the start marker; nil: it has not begun.
func (d directory) begun() (*startMarker, error) {
	return handover.ReadBegunAs[startMarker](string(d), 0)
}

// take makes the start marker, so that the allocation can never begin. False: it
// has begun.
func (d directory) take() (bool, error) { return handover.Take(string(d), 0) }

func (d directory) has(name string) bool {
	_, err := os.Stat(d.file(name))
	return err == nil
}

// told is when the allocation was told to end; zero: it was not.
func (d directory) told() time.Time {
	raw, err := os.ReadFile(d.file(toldName))
	if err != nil {
		return time.Time{}
	}
	seconds, err := strconv.ParseInt(strings.TrimSpace(string(raw)), 10, 64)
	if err != nil { // it is being written
		return time.Now()
	}
	return time.Unix(seconds, 0)
}

// ran is how many bytes of jobs.txt the berth run had when it last ended; -1: it
// has not.
func (d directory) ran() int64 {
	raw, _ := os.ReadFile(d.file(ranName))
	if size, err := strconv.ParseInt(strings.TrimSpace(string(raw)), 10, 64); err == nil {
		return size
	}
	return -1
}

// alive is the sign of life as it was last written.
func (d directory) alive() string {
	raw, _ := os.ReadFile(d.file(aliveName))
	return string(raw)
}

// script is what Slurm runs. It begins only with the start marker, runs berth as
// often as there are new jobs, and leaves the end marker if berth ended by itself:
// then no job is left running.
func script(o *Options, d directory) string {
	replace := strings.NewReplacer(
		"@DIR@", job.Quote(string(d)), "@CWD@", job.Quote(o.Dir), "@BERTH@", job.Quote(o.Installed),
		"@FLAGS@", job.QuoteArgv(o.Inner), "@IDLE@", strconv.Itoa(int(max(o.Idle, time.Second)/time.Second)))
	return replace.Replace(scriptText)
}

const scriptText = `#!/bin/sh
# Written by berth: runs jobs in an allocation.
dir=@DIR@
berth=@BERTH@
me=${SLURM_JOB_ID:-0}
cd "$dir" || exit 1
if [ ! -x "$berth" ]; then
	echo "berth: node ${SLURMD_NODENAME:-$(uname -n)} has no program $berth"
	echo "hint: put berth into a directory that all nodes share"
	exit 127
fi
if [ ! -d @CWD@ ]; then
	echo "berth: node ${SLURMD_NODENAME:-$(uname -n)} has no directory" @CWD@
	exit 1
fi
# The state of the berth run is on the node: locks and databases do not work on a
# network file system.
state=$(mktemp -d "${TMPDIR:-/tmp}/berth-$me-XXXXXX") || exit 1
mib=$(timeout 20 nvidia-smi --query-gpu=memory.total --format=csv,noheader,nounits 2>/dev/null | head -n 1 | tr -dc 0-9)
printf '{"slurm":"%s","node":"%s","at":"%s","pid":%d,"width":%d,"gpu_mib":%d,"cpus":%d}\n' "$me" "${SLURMD_NODENAME:-$(uname -n)}" \
	"$(date -u +%Y-%m-%dT%H:%M:%SZ)" "$$" "${SLURM_GPUS_ON_NODE:-0}" "${mib:-0}" "${SLURM_CPUS_ON_NODE:-1}" >".begin-$me" || exit 1
# Only one can make the start marker: not a second start, nor one that berth took back.
if ! ln ".begin-$me" 0.begun 2>/dev/null; then
	echo "berth: this allocation has begun before, or is not wanted any more"
	rmdir "$state"
	exit 0
fi
child= told= main=$$
tell() {
	[ -n "$told" ] || date +%s >"$dir/0.told"
	told=1
	[ -z "$child" ] || kill -TERM "$child" 2>/dev/null
}
trap tell TERM
(
	trap '' TERM
	count=0
	while kill -0 "$main" 2>/dev/null; do
		count=$((count + 1))
		echo "$count" >"$dir/alive"
		[ ! -e "$dir/stop" ] || [ -e "$dir/0.told" ] || kill -TERM "$main"
		sleep 2
	done
) &
beat=$!
cd @CWD@ || exit 1
had=0 idle=0 again=0 status=0 unsure=
while [ -z "$told" ]; do
	size=$(wc -c <"$dir/jobs.txt")
	if [ "$size" -ne "$had" ]; then
		"$berth" run "$dir/jobs.txt" --log-dir "$dir" --in-allocation "$state" --to local --format lines @FLAGS@ </dev/null &
		child=$!
		# A signal ends wait before berth has ended.
		while :; do
			wait "$child"
			status=$?
			[ "$status" -ne 127 ] && kill -0 "$child" 2>/dev/null || break
		done
		if [ -n "$told" ]; then
			wait "$child" # for its own status, if the signal came at its end
			last=$?
			[ "$last" -eq 127 ] || status=$last
		fi
		child= idle=0 unsure=
		if [ "$status" -gt 128 ] && [ "$status" -ne 130 ]; then
			unsure=1 # it may have been killed: the next one takes over its jobs
			again=$((again + 1))
			[ "$again" -gt 3 ] || continue
			[ -n "$told" ] || unsure= # a job's own status
		fi
		had=$size again=0
		echo "$size" >"$dir/.ran" && mv "$dir/.ran" "$dir/ran"
	elif [ -e "$dir/no-more" ]; then
		break
	else
		idle=$((idle + 1))
		[ "$idle" -le @IDLE@ ] || break
		sleep 1 &
		wait $!
	fi
done
if [ -z "$unsure" ]; then
	rm -rf "$state"
	date +%s >"$dir/.end" && mv "$dir/.end" "$dir/0.end"
fi
kill -9 "$beat" 2>/dev/null
exit 0
`
