#!/usr/bin/env python3
"""A training loop small enough to read: it fits a line to points.

It needs only Python, so it runs on simulated GPUs, too. If PyTorch is
installed, it prints the device that a real program would use.

    tgpu submit --gpus 2 --priority 5 -- cmd="python3 examples/tgpu/train_demo.py --steps 200"
"""

import argparse
import os
import random
import sys
import time


def device() -> str:
    """The device that a program of this job would compute on."""
    try:
        import torch
    except ImportError:
        return "cpu (PyTorch is not installed)"
    return "cuda:0" if torch.cuda.is_available() else "cpu (PyTorch sees no GPU)"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--pause", type=float, default=0.0, help="seconds between steps")
    parser.add_argument("--lr", type=float, default=0.1)
    arguments = parser.parse_args()

    gpus = [g for g in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if g]
    print(f"{len(gpus)} GPUs: {','.join(gpus) or 'none'}; computing on {device()}", flush=True)

    chance = random.Random(7)
    points = [(x, 3.0 * x + 1.0) for x in (chance.uniform(-1, 1) for _ in range(64))]
    slope = intercept = 0.0
    for step in range(1, arguments.steps + 1):
        errors = [(slope * x + intercept - y, x) for x, y in points]
        slope -= arguments.lr * sum(2 * e * x for e, x in errors) / len(points)
        intercept -= arguments.lr * sum(2 * e for e, _ in errors) / len(points)
        if step % max(arguments.steps // 5, 1) == 0:
            loss = sum(e * e for e, _ in errors) / len(points)
            print(f"step {step} loss {loss:.6f}", flush=True)
        time.sleep(arguments.pause)
    print(f"y = {slope:.2f} x + {intercept:.2f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
