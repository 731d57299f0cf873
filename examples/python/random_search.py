"""Random search that prints each result when it is there: python random_search.py"""

import concurrent.futures
import random

from trial import train

from berth import BerthExecutor

chance = random.Random(1)
with BerthExecutor(vram="2G", name="random-search") as executor:
    trials = [executor.submit(train, 10 ** chance.uniform(-5, -1), chance.choice([16, 32, 64, 128]), seed) for seed in range(8)]
    best = None
    for future in concurrent.futures.as_completed(trials):
        result = future.result()
        if best is None or result["loss"] < best["loss"]:
            best = result
        print(future.job.id, result)
print("best:", best["lr"], best["loss"])
