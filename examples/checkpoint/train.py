"""A training that gives way to other jobs, and comes back to the same result:

    berth submit --preemptible=requeue --checkpoint term --grace 30 -- python train.py --steps 20000

It saves when it gets TERM and every --save-every seconds, and goes on from there in its
next attempt. The last line is the same however often it was interrupted.
"""

import argparse
import os
import signal
import subprocess
import time
from pathlib import Path

os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # before CUDA starts, for equal results

import torch
from torch import nn

FEATURES, BATCH = 256, 1024


def main():
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--steps", type=int, default=20000)
    options.add_argument("--width", type=int, default=2048)
    options.add_argument("--save-every", type=float, default=60, metavar="SECONDS")
    asked = options.parse_args()

    # One TERM ends the current step, not a save.
    told = []
    signal.signal(signal.SIGTERM, lambda *_: told.append(True))

    torch.use_deterministic_algorithms(True)
    torch.manual_seed(0)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    model = nn.Sequential(
        nn.Linear(FEATURES, asked.width), nn.GELU(), nn.Dropout(0.1),
        nn.Linear(asked.width, asked.width), nn.GELU(), nn.Linear(asked.width, 1),
    ).to(device)
    teacher = torch.randn(FEATURES, 1, generator=torch.Generator().manual_seed(1)).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, asked.steps)

    directory = Path(os.environ.get("BERTH_CHECKPOINT_DIR", "checkpoints"))
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / "state.pt"

    def save(step, loss):
        state = {
            "step": step, "loss": loss, "model": model.state_dict(), "optimizer": optimizer.state_dict(), "schedule": schedule.state_dict(),
            "random": torch.get_rng_state(), "cuda": torch.cuda.get_rng_state() if device == "cuda" else None,
        }
        torch.save(state, path.with_suffix(".tmp"))
        os.replace(path.with_suffix(".tmp"), path)  # never half a file
        print(f"saved at step {step}", flush=True)
        if "BERTH_TOKEN" in os.environ:
            subprocess.run(["berth", "saved"], stdout=subprocess.DEVNULL, check=False)

    step, loss = 0, 0.0
    if path.exists():
        state = torch.load(path, map_location="cpu")
        step, loss = state["step"], state["loss"]
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        schedule.load_state_dict(state["schedule"])
        torch.set_rng_state(state["random"])
        if device == "cuda":
            torch.cuda.set_rng_state(state["cuda"])
        print(f"goes on from step {step}", flush=True)

    saved = time.monotonic()
    while step < asked.steps:
        data = torch.Generator(device).manual_seed(step)  # each step has its own, whoever computes it
        x = torch.randn(BATCH, FEATURES, generator=data, device=device)
        error = nn.functional.mse_loss(model(x), torch.sin(x @ teacher))
        optimizer.zero_grad()
        error.backward()
        optimizer.step()
        schedule.step()
        step += 1
        if told or time.monotonic() - saved >= asked.save_every or step == asked.steps:
            loss = error.item()
            save(step, loss)
            saved = time.monotonic()
        if told:
            return
    weights = sum(p.double().abs().sum() for p in model.parameters())
    print(f"step {step}: loss {loss:.9e}, weights {weights.item():.9e}", flush=True)


if __name__ == "__main__":
    main()
