"""What the examples run: a stand-in for training that needs no GPU program."""

import math
import sys
import time


def train(lr, width=64, seed=0, steps=20, pause=0.0):
    """The loss after some steps; the best rate is 1e-3."""
    loss = 0.0
    for step in range(1, steps + 1):
        loss = abs(math.log10(lr) + 3) + 10 / width + 1 / step + 0.01 * (seed % 3)
        print(f"step={step} loss={loss:.4f}", flush=True)
        time.sleep(pause)
    return {"lr": lr, "width": width, "seed": seed, "loss": round(loss, 4)}


if __name__ == "__main__":
    train(float(sys.argv[1]), pause=float(sys.argv[2]) if len(sys.argv) > 2 else 0.0)
