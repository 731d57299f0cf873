"""A grid of parameters, a job for each: python grid.py"""

import itertools

from trial import train

from berth import BerthExecutor

grid = list(itertools.product([1e-2, 1e-3, 1e-4], [32, 64]))
with BerthExecutor(vram="2G", max_running=4, name="grid") as executor:
    results = sorted(executor.map(train, *zip(*grid)), key=lambda result: result["loss"])
for result in results:
    print(result)
print("best:", results[0]["lr"], results[0]["width"])
