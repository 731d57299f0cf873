#!/bin/sh
# The smallest job: it prints its GPU and waits a moment.
#   tgpu submit --gpus 1 -- cmd="sh examples/tgpu/sleep_job.sh 5"
set -eu
echo "job ${BERTH_JOB_ID:-?} on GPU ${CUDA_VISIBLE_DEVICES:-none}"
sleep "${1:-2}"
echo "done"
