"""Says which cards a job can see, after it did what it can to see more."""
import os
import subprocess

print("gpu-test: visible", os.environ.get("CUDA_VISIBLE_DEVICES", "(unset)"))
print("gpu-test: uuids", os.environ.get("BERTH_GPU_UUIDS", "(unset)"))
try:
    listed = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True, timeout=60)
    lines = [line for line in listed.stdout.splitlines() if line.startswith("GPU ")]
    print("gpu-test: listed", len(lines))
    for line in lines:
        print("gpu-test: card", line)
    if not lines:
        print("gpu-test: smi", (listed.stdout + listed.stderr).strip().replace("\n", " ")[:160])
except (OSError, subprocess.TimeoutExpired) as problem:
    print("gpu-test: listed", -1)
    print("gpu-test: smi", problem)

opened = []
for minor in range(16):
    path = "/dev/nvidia%d" % minor
    if os.path.exists(path):
        try:
            os.close(os.open(path, os.O_RDWR))
            opened.append(minor)
        except OSError:
            pass
print("gpu-test: opens", *opened)

# A job without cards tries to take one by itself.
if not os.environ.get("CUDA_VISIBLE_DEVICES"):
    os.environ["CUDA_VISIBLE_DEVICES"] = "0"
try:
    import torch
    print("gpu-test: torch", torch.cuda.is_available(), torch.cuda.device_count())
except ImportError:
    print("gpu-test: torch (none)")
try:
    import cudadriver
    card = cudadriver.Card()
    print("gpu-test: cuda yes")
except Exception as problem:
    print("gpu-test: cuda no", str(problem)[:120])
