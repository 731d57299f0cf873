#!/bin/sh
# One worker on each GPU of the job, like torchrun. A program numbers the GPUs it
# sees from 0, so each worker gets its GPU through CUDA_VISIBLE_DEVICES.
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

# The job succeeds if every worker does.
failed=0
for worker in $workers; do
	wait "$worker" || failed=1
done
exit "$failed"
