"""Ask-and-tell with early stopping: python ask_tell.py

Jobs print their loss as they go. One that is clearly worse than the best so far
is cancelled, and the next proposal, near the best, takes its place.
"""

import asyncio
import random
import re
import sys
from pathlib import Path

from berth import AsyncClient

TRIAL = Path(__file__).parent / "trial.py"
chance = random.Random(3)
best = (float("inf"), 1e-1)  # loss, rate
outcomes = {"ended": 0, "stopped": 0}


def ask():
    loss, lr = best
    return 10 ** chance.uniform(-5, -1) if loss > 1 else lr * 10 ** chance.uniform(-0.5, 0.5)


async def trial(client, lr):
    global best
    job = await client.submit([sys.executable, str(TRIAL), str(lr), "0.05"], vram="2G", name=f"lr{lr:.1e}")
    losses = []
    async for line in job.logs(follow=True):
        losses.append(float(re.search("loss=([0-9.]+)", line)[1]))
        if len(losses) == 5 and losses[-1] > best[0] + 1:
            await job.cancel()
    status = await job.wait(check=False)
    outcomes["ended" if status == 0 else "stopped"] += 1
    print(job.id, f"lr={lr:.2e} loss={losses[-1]:.3f}", "ended" if status == 0 else "stopped early")
    if status == 0:
        best = min(best, (losses[-1], lr))


async def main():
    client = AsyncClient()
    await trial(client, 1e-2)
    proposals = [1e-5] + [None] * 7  # the first is bad on purpose

    async def worker():
        while proposals:
            await trial(client, proposals.pop(0) or ask())

    await asyncio.gather(worker(), worker())
    print(f"best: {best[1]:.2e} {best[0]:.3f}, {outcomes['ended']} ended, {outcomes['stopped']} stopped early")


asyncio.run(main())
