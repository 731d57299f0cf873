#!/bin/sh
# A worker on each GPU of the job, as torchrun would start them. Programs count
# the GPUs they see from 0, whichever of the machine's they are; a worker that
# is to see one of them gets that one alone.
#   tgpu submit --gpus 2 -- cmd="sh examples/tgpu/multi_gpu_job.sh"
set -eu
gpus=${CUDA_VISIBLE_DEVICES:-}
[ -n "$gpus" ] || { echo "no GPUs: submit with --gpus 2" >&2; exit 1; }
echo "GPUs of this job: $gpus"

rank=0
workers=""
for gpu in $(echo "$gpus" | tr , ' '); do
	CUDA_VISIBLE_DEVICES=$gpu RANK=$rank sh -c 'echo "rank $RANK works on GPU $CUDA_VISIBLE_DEVICES"; sleep "$1"' worker "${1:-2}" &
	workers="$workers $!"
	rank=$((rank + 1))
done

# The job has gone well when each of its workers has.
failed=0
for worker in $workers; do
	wait "$worker" || failed=1
done
exit "$failed"
