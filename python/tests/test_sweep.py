"""Sweeps from Python."""

from __future__ import annotations

import asyncio

from berth import AsyncClient, Invalid, Sweep

from .support import Served


class Sweeps(Served):
    def test_every_combination_is_a_row_of_the_table(self) -> None:
        sweep = self.client.sweep("echo loss={lr}; echo acc=$SEED; test {lr} != 0.2", {"lr": [0.1, 0.2], "seed": range(2)},
                                  env={"SEED": "{seed}"}, metrics=["loss"], vram="100M", max=3, name="s-{lr}-{seed}")
        self.assertEqual(sorted(sweep.wait(check=False)), [0, 0, 1, 1])
        self.assertEqual([(row["lr"], row["seed"], row["state"], row["loss"]) for row in sweep.table()],
                         [("0.1", "0", "finished", 0.1), ("0.1", "1", "finished", 0.1), ("0.2", "0", "failed", 0.2), ("0.2", "1", "failed", 0.2)])
        self.assertEqual([row["acc"] for row in sweep.table("acc")], [0, 1, 0, 1])
        self.assertEqual(len(sweep.retry()), 2)
        self.assertEqual([row["attempt"] for row in sweep.table() if sweep.wait(check=False)], [1, 1, 2, 2])
        self.assertEqual(len(sweep.add({"lr": ["it's"]})), 2)
        sweep.wait(check=False)
        self.assertEqual([row["lr"] for row in sweep.table()][4:], ["it's", "it's"])
        self.assertEqual([one["id"] for one in self.client.sweeps(all=True)], [sweep.id])
        self.assertIsInstance(self.client.array(sweep.id), Sweep)
        self.assertIn("<td>it&#x27;s</td>", sweep.table()._repr_html_())

    def test_a_sweep_of_a_snapshot_runs_the_code_of_the_submission(self) -> None:
        (self.dir / "tree").mkdir()
        (self.dir / "tree" / "code").write_text("echo acc=$1")
        sweep = self.client.sweep(["sh", "code", "{i}"], {"i": ["a b", 2]}, metrics=["acc=(.*)"], gpus=0, dir=self.dir / "tree", snapshot=True, hold=True)
        (self.dir / "tree" / "code").write_text("exit 1")
        sweep.release()
        sweep.wait()
        self.assertEqual([row["acc"] for row in sweep.table()], ["a b", 2])

    def test_no_result_is_lost_and_no_trial_runs_twice_if_the_daemon_is_killed(self) -> None:
        sweep = self.client.sweep(f"echo {{i}} >> {self.dir}/calls; echo loss={{i}}; test {{i}} -lt 100 || {self.gate()}", {"i": range(200)},
                                  metrics=["loss"], vram="200M", max=40)
        ended = sweep.as_completed(timeout=600)
        for _ in range(100):
            next(ended)
        self._reap(self.daemon)  # with -9
        self.serve()
        self.open()
        self.assertEqual(len(list(ended)), 100)
        self.assertEqual([(row["i"], row["outcome"], row["loss"]) for row in sweep.table()], [(str(i), "ok", i) for i in range(200)])
        self.assertEqual(sorted((self.dir / "calls").read_text().split(), key=int), [str(i) for i in range(200)])

    def test_trials_may_be_listed(self) -> None:
        trials = [{"lr": 1, "name": "a b"}, {"lr": 2, "name": "c{d"}]
        sweep = self.client.sweep(["printf", "%s|%s", "{lr}", "{name}"], trials, vram="100M")
        self.assertEqual(sweep.wait(), [0, 0])
        self.assertEqual([*sweep.logs()], ["1|a b", "2|c{d"])
        with self.assertRaisesRegex(Invalid, "expected the parameters lr, name"):
            self.client.sweep("echo {lr} {name}", [*trials, {"lr": 3}])
        with self.assertRaisesRegex(TypeError, "expected a list of values"):
            self.client.sweep("echo {lr}", {"lr": "1,2"})

    def test_with_asyncio_too(self) -> None:
        async def main() -> None:
            sweep = await AsyncClient().sweep("echo x={x}", {"x": [1, 2]}, vram="100M", metrics=["x"])
            self.assertEqual(await sweep.wait(), [0, 0])
            self.assertEqual([row["x"] for row in await sweep.table("-")], ["1", "2"])
        asyncio.run(main())
