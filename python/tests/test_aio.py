"""The client for asyncio."""

from __future__ import annotations

import asyncio
import inspect
import threading
import unittest
from typing import Any, cast

from berth import Array, AsyncArray, AsyncBatch, AsyncClient, AsyncHandle, AsyncSweep, Batch, Client, Handle, JobFailed, NotFound, Sweep

from .support import Served, until


class Asynchronous(Served):
    def test_it_does_what_the_blocking_client_does(self) -> None:
        async def main() -> None:
            client = AsyncClient()
            job = await client.submit("echo one; exit 3", vram="1G", name="mine")
            with self.assertRaises(JobFailed):
                await job.wait("1m")
            self.assertEqual((await job.wait(check=False), await job.state(), str(job), job.name), (3, "failed", "1", "mine"))
            self.assertEqual([line async for line in job.logs(follow=True)], ["one"])
            array = await client.submit("exit $BERTH_ARRAY_INDEX", array="0-2", vram="1G")
            self.assertEqual(await array.wait(check=False), [0, 1, 2])
            self.assertEqual(await client.wait(array), [0, 1, 2])
            batch = await client.submit_all([{"command": "true", "vram": "1G"}, {"command": self.gate(), "vram": "1G"}])
            self.assertEqual(await batch.wait(any=True), [0, None])
            ended = batch.as_completed()
            self.assertEqual((await ended.__anext__()).id, (await batch.tasks())[0].id)
            with self.assertRaises(TimeoutError):
                await batch.wait(0.05)
            self.open()
            self.assertEqual([one.id async for one in ended], [(await batch.tasks())[1].id])
            self.assertEqual(len(await batch.table()), 2)
            with self.assertRaises(NotFound):
                await client.cancel(99999)
        asyncio.run(main())

    def test_many_waits_and_logs_take_few_threads(self) -> None:
        async def main() -> None:
            client = AsyncClient()
            batch = await client.submit_all([{"command": f"echo {i}; {self.gate()}", "vram": "100M"} for i in range(12)])
            tasks = await batch.tasks()
            waits = [asyncio.ensure_future(task.wait()) for task in tasks for _ in range(20)]
            follow = tasks[0].logs(follow=True)
            self.assertEqual(await follow.__anext__(), "0")
            await asyncio.sleep(0)
            self.assertLess(threading.active_count(), 40)  # the pool for requests, the events, one log
            self.assertFalse(any(wait.done() for wait in waits))
            self.open()
            self.assertEqual(set(await asyncio.gather(*waits)), {0})
            with self.assertRaises(StopAsyncIteration):
                await follow.__anext__()
        asyncio.run(main())

    def test_a_stream_that_is_left_ends_its_thread(self) -> None:
        async def main() -> None:
            client = AsyncClient()
            events = client.events()
            first = asyncio.ensure_future(cast(Any, events.__anext__()))
            job = await client.submit(f"echo 1; {self.gate()}", vram="1G")
            self.assertIn("event", await first)
            await cast(Any, events).aclose()
            logs = job.logs(follow=True)
            await logs.__anext__()
            await cast(Any, logs).aclose()
        asyncio.run(main())
        until(lambda: not [one for one in threading.enumerate() if one.name == "berth stream"])


class Names(unittest.TestCase):
    def test_both_clients_have_the_same_names(self) -> None:
        for blocking, waiting in ((Client, AsyncClient), (Handle, AsyncHandle), (Batch, AsyncBatch), (Array, AsyncArray), (Sweep, AsyncSweep)):
            alone = {"log_bytes", "progress"}  # asyncio reads lines, and a bar that blocks makes no sense there
            self.assertEqual(public(blocking) - alone, public(waiting), waiting)

    def test_a_delegated_method_keeps_its_arguments(self) -> None:
        self.assertEqual(inspect.signature(AsyncClient.park), inspect.signature(Client.park))


def public(kind: type) -> "set[str]":
    return {name for name in dir(kind) if not name.startswith("_")}
