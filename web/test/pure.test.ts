import { describe, expect, test } from "vitest";
import { lastOverwrite, plain, spans } from "../src/ansi";
import type { Job, Sum, Trial, TrialTable, Why } from "../src/api";
import { apply } from "../src/apply";
import { align, lineNames, timeRange } from "../src/align";
import { between, clean, duration, memory, moment } from "../src/format";
import { LogLines, mostLines } from "../src/loglines";
import { newKey, sign } from "../src/session";
import { EventReader } from "../src/sse";
import { actions, cardRefusal, refusal } from "../src/actions";
import { bars, ticks } from "../src/bars";
import { Changes } from "../src/changes";
import { firstOfEach } from "../src/own";
import { countText, fold, leftText } from "../src/rows";
import { eventText, requestText, startText, verdictText, wouldText } from "../src/words";
import { columnsOf, outcomeText, scaleOf, short, sorted, valueOf } from "../src/trials";
import { visible } from "../src/window";

describe("foreign text", () => {
  test("what hides or reorders becomes visible", () => {
    expect(clean("a\u202egnp.exe")).toBe("a\\u202egnp.exe");
    expect(clean("\u001b[31mred\u0007")).toBe("\\u001b[31mred\\u0007");
    expect(clean("zero\u200bwidth\ufeff")).toBe("zero\\u200bwidth\\ufeff");
    expect(clean("<script>alert(1)</script> ü 漢")).toBe("<script>alert(1)</script> ü 漢");
    expect(clean("x".repeat(50), 10)).toBe("x".repeat(10) + "…");
    expect(clean(null)).toBe("");
  });
  test("colours of a log, and nothing else a terminal obeys", () => {
    expect(spans("\u001b[1;31mbad\u001b[0m ok")).toEqual([
      { text: "bad", names: "c-red bold" },
      { text: " ok", names: "" },
    ]);
    expect(spans("\u001b]0;title\u0007\u001b[2J\u001b[Hx")).toEqual([{ text: "x", names: "" }]);
    expect(spans("\u001b]8;;http://evil.example\u001b\\link\u001b]8;;\u001b\\")).toEqual([{ text: "link", names: "" }]);
    expect(spans("\u001b[38;5;31mx\u001b[38;2;1;2;31my")).toEqual([
      { text: "x", names: "" },
      { text: "y", names: "" },
    ]);
    expect(spans("\u001b")).toEqual([{ text: "\\u001b", names: "" }]);
  });
  test("a progress bar shows its last state", () => {
    expect(lastOverwrite("10%\r20%\r")).toBe("20%");
    expect(plain("\u001b[32m10%\u001b[0m\r\u001b[32m20%\u001b[0m")).toBe("20%");
  });
});

test("durations and sizes", () => {
  expect([5, 65, 3700, 90000].map(duration)).toEqual(["5s", "1m05s", "1h01m", "1d01h"]);
  expect([memory(null), memory(512), memory(18432)]).toEqual(["n/a", "512 MiB", "18.0 GiB"]);
  expect(between("2026-03-01T12:00:00Z", null, Date.parse("2026-03-01T12:01:00Z"))).toBe("1m00s");
});

test("events come whole, however the stream is cut", () => {
  const stream = ': berth\n\nid: 7\ndata: {"seq":7}\n\ndata: {"gpus":[]}\n\nevent: end\ndata: {}\n\n';
  for (let cut = 1; cut < stream.length; cut++) {
    const reader = new EventReader();
    const events = [...reader.take(stream.slice(0, cut)), ...reader.take(stream.slice(cut))];
    expect(events).toEqual([
      { id: "7", name: "message", data: '{"seq":7}' },
      { id: "7", name: "message", data: '{"gpus":[]}' },
      { id: "7", name: "end", data: "{}" },
    ]);
  }
});

describe("a log in pieces", () => {
  const text = "one\ntwo\n\nfour";
  test("has the same lines, however it is cut", () => {
    for (let cut = 0; cut <= text.length; cut++) {
      const log = new LogLines();
      log.append(text.slice(0, cut));
      log.append(text.slice(cut));
      expect(log.lines).toEqual(["one", "two", "", "four"]);
    }
  });
  test("grows at both ends", () => {
    for (let cut = 0; cut < text.length; cut++) {
      const log = new LogLines();
      log.append(text.slice(cut));
      log.prepend(text.slice(0, cut));
      expect(log.lines).toEqual(["one", "two", "", "four"]);
    }
  });
  test("is bounded, and the end stays", () => {
    const log = new LogLines();
    log.append("x\n".repeat(mostLines) + "last\n");
    expect(log.lines.length).toBe(mostLines);
    expect(log.lines.at(-1)).toBe("last");
    expect(log.dropped).toBe(true);
  });
  test("is searched round", () => {
    const log = new LogLines();
    log.append(text);
    expect(log.find((l) => l.includes("o"), 2, 1)).toBe(3);
    expect(log.find((l) => l.includes("one"), 2, 1)).toBe(0);
    expect(log.find((l) => l.includes("o"), 2, -1)).toBe(1);
    expect(log.find((l) => l === "none", 0, 1)).toBe(-1);
  });
});

test("a list of 10,000 draws only what is in sight", () => {
  for (const scrolled of [0, 1234, 299_000, 300_000, 999_999]) {
    const rows = visible(10_000, 30, scrolled, 600);
    expect(rows.last - rows.first).toBeLessThan(40);
    expect(rows.above + rows.below + (rows.last - rows.first) * 30).toBe(300_000);
  }
  expect(visible(0, 30, 0, 600)).toEqual({ first: 0, last: 0, above: 0, below: 0 });
});

test("samples of several GPUs share one axis of time", () => {
  const point = (s: number, vram: number | null) => ({ at: new Date(s * 1000).toISOString(), vram_mib: vram, util: null, after_gap: false });
  const data = align({ declared_mib: null, parked: [], tracks: [{ gpu: 0, points: [point(1, 10), point(3, null)] }, { gpu: 1, points: [point(2, 20)] }] }, "vram_mib");
  expect(data).toEqual([[1, 2, 3], [10, undefined, null], [undefined, 20, undefined]]);
});

test("no line goes through a parked or an unmeasured time", () => {
  const point = (s: number, vram: number, after_gap = false) => ({ at: new Date(s * 1000).toISOString(), vram_mib: vram, util: null, after_gap });
  const time = (s: number) => new Date(s * 1000).toISOString();
  const data = align({ declared_mib: null, parked: [{ from: time(2), to: time(8) }], tracks: [{ gpu: 0, points: [point(1, 10), point(2, 10), point(9, 12), point(19, 14, true)] }] }, "vram_mib");
  expect(data).toEqual([[1, 2, 2.001, 9, 14, 19], [10, 10, null, 12, null, 14]]);
});

test("the lines of a chart are named by what tells them apart", () => {
  const names = (...tracks: [number, number][]) => lineNames({ declared_mib: null, parked: [], tracks: tracks.map(([attempt, gpu]) => ({ attempt, gpu, points: [] })) });
  expect(names([1, 0])).toEqual([]);
  expect(names([1, 0], [2, 0])).toEqual(["attempt 1", "attempt 2"]);
  expect(names([1, 0], [1, 3])).toEqual(["GPU 0", "GPU 3"]);
  expect(names([1, 0], [2, 1])).toEqual(["attempt 1, GPU 0", "attempt 2, GPU 1"]);
});

test("a job of a second has an axis with different times", () => {
  expect(timeRange(100, 101)).toEqual([90.5, 110.5]);
  expect(timeRange(100, 160)).toEqual([100, 160]);
});

test("each state offers what can be done", () => {
  expect(actions({ state: "queued", held: false, gpus: 1 })).toEqual(["hold", "cancel"]);
  expect(actions({ state: "queued", held: true, gpus: 1 })).toEqual(["release", "cancel"]);
  expect(actions({ state: "running", held: false, gpus: 1 })).toContain("park");
  expect(actions({ state: "running", held: false, gpus: 0 })).not.toContain("park");
  expect(actions({ state: "parked", held: false, gpus: 1 })).toContain("unpark");
  expect(actions({ state: "failed", held: false, gpus: 1 })).toEqual(["requeue"]);
});

test("the timeline has past, present and expected bars, one for each GPU", () => {
  const at = Date.parse("2026-03-01T12:00:00Z");
  const job = (id: string, state: string, more: Partial<Job>) => ({ id, name: id, state, gpu_ids: [0, 1], started_at: null, ended_at: null, ...more }) as Job;
  const past = job("1", "finished", { started_at: "2026-03-01T10:00:00Z", ended_at: "2026-03-01T11:00:00Z" });
  const running = job("2", "running", { started_at: "2026-03-01T11:30:00Z" });
  const waits: Why[] = [
    { id: "3", text: "", queued: 1, state: "queued", expected: { low: "2026-03-01T11:59:00Z", mid: "2026-03-01T12:30:00Z" }, kept: { gpus: [0], at: "" }, expected_run: { low_s: 1, mid_s: 600, high_s: 1000, source: "command", runs: 3 } },
    { id: "4", text: "", queued: 1, state: "queued" },
  ];
  const all = bars([past], [running], waits, at);
  expect(all.map((b) => `${b.job} ${b.kind} ${b.lane}`)).toEqual(["1 past 0", "1 past 1", "2 running 0", "2 running 1", "3 expected 0"]);
  expect(all[4]?.to).toBe(Date.parse("2026-03-01T12:40:00Z"));
});

test("an event changes its own row, and an end removes it", () => {
  const row = (id: string, state: string, more: Partial<Job> = {}) => ({ id, state, reason: null, ended_at: null, ...more }) as Job;
  const list = [row("1", "running"), row("2", "queued", { reason: "needs 2 GPUs" })];
  const event = (job: Job) => ({ time: "", event: "x", job });
  expect(apply(list, event(row("2", "queued")))[1]?.reason).toBe("needs 2 GPUs");
  expect(apply(list, event(row("2", "running")))[1]).toMatchObject({ state: "running", reason: null });
  expect(apply(list, event(row("1", "finished", { ended_at: "2026-03-01T12:00:00Z" }))).map((j) => j.id)).toEqual(["2"]);
  expect(apply(list, event(row("3", "queued")))).toBe(list);
  const borrowed = [row("4", "running", { reason: "borrowed" })];
  expect(apply(borrowed, event(row("4", "running")))[0]?.reason).toBe("borrowed");
  expect(apply(borrowed, event(row("4", "parked")))[0]?.reason).toBeNull();
});

describe("who may act", () => {
  const known = (admin: boolean, shared = true) => ({ shared, you: { name: "ann", admin } });
  test("the owner, administrators, and everybody on a private daemon", () => {
    expect(refusal({ user: "ann" }, known(false))).toBe("");
    expect(refusal({ user: "bob" }, known(false))).toContain("Only the job's user");
    expect(refusal({ user: "bob" }, known(true))).toBe("");
    expect(refusal({ user: "bob" }, known(false, false))).toBe("");
    expect([cardRefusal(known(false)), cardRefusal(known(true)), cardRefusal(known(false, false))]).toEqual(["Only administrators can pause and drain GPUs.", "", ""]);
  });
});

test("when a job starts, in a sentence", () => {
  const now = Date.parse("2026-03-01T12:00:00Z");
  const low = "2026-03-01T12:10:00Z";
  expect(startText({ queued: 3, position: 2 }, now)).toBe("It is number 2 of 3 in the queue.");
  expect(startText({ queued: 3 }, now)).toBe("");
  expect(startText({ queued: 3, expected: { low } }, now)).toBe(`Expected to start not before ${moment(low, now)}.`);
  expect(startText({ queued: 3, expected: { low, beyond: true } }, now)).toBe(`Expected to start after ${moment(low, now)}.`);
  const high = "2026-03-01T12:40:00Z";
  expect(startText({ queued: 3, expected: { low, mid: low, high: low } }, now)).toBe(`Expected to start at about ${moment(low, now)}.`);
  expect(startText({ queued: 3, expected: { low, mid: low, high } }, now)).toBe(`Expected to start at about ${moment(low, now)}, likely between ${moment(low, now)} and ${moment(high, now)}.`);
});

test("what happened, once", () => {
  expect(eventText({ event: "held", text: "held by nina" })).toBe("held by nina");
  expect(eventText({ event: "released", text: "unparked by nina" })).toBe("released: unparked by nina");
  expect(eventText({ event: "stopping", text: "aside" })).toBe("stopping: preempted");
  expect(eventText({ event: "set_aside" })).toBe("preempted");
  expect(verdictText("within")).toBe("as declared");
});

test("what a job asks for", () => {
  expect(requestText({ gpus: 1, share: 0.25, vram_mib: 6144 })).toBe("0.25 of a GPU, 6.0 GiB");
  expect(requestText({ gpus: 2, share: null, vram_mib: 512, time_limit_s: 3600 })).toBe("2 GPUs, 512 MiB each, time limit 1h00m");
  expect(requestText({ gpus: 0, share: null, vram_mib: null })).toBe("no GPU");
});

test("what would happen, in a sentence", () => {
  expect(wouldText({ id: "", name: "", state: "starts", gpu_ids: [0, 1] })).toBe("It would start at once on GPU 0,1.");
  expect(wouldText({ id: "", name: "", state: "waits", reason: "needs an idle GPU" })).toBe("It would wait: needs an idle GPU.");
  expect(wouldText({ id: "", name: "", state: "infeasible", reason: "asks for 9 GPUs; this machine has 4" })).toBe("It can never run: it asks for 9 GPUs; this machine has 4.");
});

test("own jobs: running first, the tasks of an array once", () => {
  const job = (id: string, state: string, batch: string | null = null) => ({ id, state, batch, held: false }) as Job;
  const own = [job("4_0", "queued"), job("3", "running"), job("4_1", "queued"), job("5", "queued"), job("6", "queued")];
  expect(firstOfEach(own, 2).map((j) => [j.id, j.more])).toEqual([["3", 0], ["4_0", 1], ["5", 0]]);
  expect(firstOfEach([job("7", "queued", "/a"), job("8", "queued", "/a"), job("9", "queued", "/b")], 2).map((j) => [j.id, j.more])).toEqual([["7", 1], ["9", 0]]);
});

describe("arrays and jobs files are one row", () => {
  const job = (id: string, state: string, batch: string | null = null, user = "ann") => ({ id, name: "job" + id, state, batch, user, reason: state === "queued" ? "why " + id : null }) as Job;
  const seen = (list: Job[], sums: Sum[] = [], open: string[] = []) =>
    fold(list, sums, new Set(open)).map((r) => (r.fold ? `${r.id}${r.name}(${countText(r.fold.sum)}) ${r.reason}` : r.id));
  const list = [job("1", "running", "/w/jobs.txt"), job("2", "running"), job("3_0", "queued"), job("4", "queued", "/w/jobs.txt"), job("3_1", "queued"), job("5", "queued", "/w/jobs.txt", "bob"), job("6", "queued", null, "bob")];
  test("at the place of their first job", () => {
    expect(seen(list)).toEqual(["jobs.txt(1 running, 1 queued) why 4", "2", "3job3(2 queued) why 3_0", "5", "6"]);
  });
  test("with those that have ended, which the queue does not list", () => {
    const sums: Sum[] = [{ file: "/w/jobs.txt", user: "ann", counts: { running: 9, finished: 3, failed: 1 }, reason: "because" }, { file: "/w/jobs.txt", user: "bob", counts: { queued: 1, finished: 1 } }];
    expect(seen(list, sums)).toEqual(["jobs.txt(1 running, 1 queued, 3 finished, 1 failed) because", "2", "3job3(2 queued) why 3_0", "jobs.txt(1 queued, 1 finished) why 5", "6"]);
  });
  test("and an open one has its jobs below it", () => {
    expect(seen(list, [], ["array 3"]).slice(1)).toEqual(["2", "3job3(2 queued) why 3_0", "3_0", "3_1", "5", "6"]);
  });
  test("unless a few lines are all there is", () => {
    const lines = (n: number) => [...Array(n).keys()].map((i) => job(String(i), "queued", "/w/jobs.txt"));
    expect(seen(lines(20))).toHaveLength(20);
    expect(seen(lines(21))).toEqual(["jobs.txt(21 queued) why 0"]);
  });
  test("with the time that is left", () => {
    const sum = { user: "ann", counts: { running: 1, queued: 2, finished: 1 }, done_at: "2026-03-01T14:10:00Z" };
    const at = Date.parse("2026-03-01T12:00:00Z");
    expect(leftText(sum, at)).toBe("25% done, about 2h10m left");
    expect(leftText({ ...sum, counts: { queued: 2 } }, at)).toBe("about 2h10m left");
    expect(leftText({ user: "ann", counts: { queued: 2 } }, at)).toBe("");
    expect(leftText(sum, at + 86_400_000)).toBe("");
  });
});

test("the axis has round times, and not too many", () => {
  const from = Date.parse("2026-03-01T11:47:00Z");
  for (const hours of [1, 9, 36, 252]) {
    const found = ticks(from, from + hours * 3_600_000, 8);
    expect(found.length).toBeGreaterThan(1);
    expect(found.length).toBeLessThanOrEqual(9);
    for (const t of found) expect(t % 60_000).toBe(0);
  }
});

test("a line that a progress bar overwrites a million times stays short", () => {
  const log = new LogLines();
  for (let i = 0; i < 2000; i++) log.append(`${i}%`.padEnd(100) + "\r");
  expect(log.lines.length).toBe(1);
  expect(log.lines[0]?.length).toBeLessThan(10_000);
  log.append("done\nnext\n");
  expect(log.lines.map(plain)).toEqual(["done", "next"]);
  log.append("x".repeat(300_000) + "\n");
  expect(log.lines[2]?.length).toBe(100_000);
});

test("a moment of another day says which", () => {
  const now = new Date(2026, 10, 17, 20, 0).getTime(); // a Tuesday
  const at = (day: number, hour: number) => moment(new Date(2026, 10, day, hour, 3).toISOString(), now);
  expect(at(17, 8)).toBe("08:03");
  expect(at(18, 8)).toBe("Wed 08:03");
  expect(at(16, 22)).toBe("Mon 22:03");
  expect(at(28, 8)).toBe("2026-11-28 08:03");
});

test("an event of a job is not lost behind that of another", () => {
  const changes = new Changes();
  changes.note("3");
  const before = changes.of("3");
  changes.note("3");
  changes.note("4_1");
  expect(changes.of("3")).not.toBe(before);
  expect(changes.of("4")).toBe(changes.of("4_1"));
  expect(changes.of("5")).toBe(0);
});

describe("sessions", () => {
  test("a request is signed with a key that cannot be read", async () => {
    const { key, shown } = await newKey();
    await expect(crypto.subtle.exportKey("pkcs8", key)).rejects.toThrow();
    const header = await sign({ id: "k8", user: "ann", key }, "abc", "POST", "/v1/jobs?x=%20", "{}");
    const parts = header.split(".");
    expect(parts.slice(0, 2)).toEqual(["k8", "abc"]);
    expect(parts[2]).toMatch(/^\d+$/);
    expect(parts[3]).toBe("RBNvo1WzZ4oRRq0W9-hknpT7T8If536DEMBg9hyq_4o"); // of {}
    const bytes = (text: string) => Uint8Array.from(atob(text.replaceAll("-", "+").replaceAll("_", "/")), (c) => c.charCodeAt(0));
    const known = await crypto.subtle.importKey("raw", bytes(shown), { name: "ECDSA", namedCurve: "P-256" }, false, ["verify"]);
    const signed = new TextEncoder().encode(["berth-session", "POST", "/v1/jobs?x=%20", ...parts.slice(0, 4)].join("\n"));
    expect(await crypto.subtle.verify({ name: "ECDSA", hash: "SHA-256" }, known, bytes(parts[4] ?? ""), signed)).toBe(true);
    expect(await sign({ id: "k8", user: "ann", key }, "abc", "POST", "/v1/jobs?x=%20", "{}")).not.toBe(header);
  });
});

describe("the trials of a sweep", () => {
  const row = (n: number, params: Record<string, string>, more: Partial<Trial> = {}): Trial => ({ id: `7_${n}`, name: `job7_${n}`, state: "finished", outcome: "ok", params, seconds: n, peak_vram_mib: null, metrics: {}, ...more });
  const rows = [
    row(0, { lr: "1e-3" }, { metrics: { acc: 0.5 } }),
    row(10, { lr: "1e-4" }, { metrics: { acc: "nan" } }),
    row(2, { lr: "auto" }, { metrics: { acc: null }, state: "failed", outcome: "oom" }),
    row(3, { lr: "0.01", width: "8" }, { metrics: { acc: 0.9 } }),
  ];
  const table: TrialTable = { name: "sweep", params: ["lr", "width", "constructor"], metrics: [{ name: "acc", from: "max:acc" }, { name: "toString", from: "toString" }], trials: rows };
  const columns = columnsOf(table);
  const order = (key: string, down: boolean) => sorted(rows, columns.all.find((c) => c.key === key), down).map((r) => r.id.slice(2)).join();

  test("a column each, and a name only where it says something", () => {
    expect(columns.all.map((c) => c.title)).toEqual(["Trial", "lr", "width", "constructor", "Outcome", "Time", "Peak memory", "acc", "toString"]);
    expect(columns.plot.map((c) => c.title)).toEqual(["acc", "toString", "Time", "Peak memory"]);
    const named = rows.map((r, i) => ({ ...r, name: `lr${i}` }));
    expect(columnsOf({ ...table, trials: named }).all[1]?.title).toBe("Name");
  });
  test("numbers are ordered as numbers, words follow, and what is missing is last", () => {
    expect(order("id", false)).toBe("0,2,3,10");
    expect(order("param lr", false)).toBe("10,0,3,2");
    expect(order("param lr", true)).toBe("3,0,10,2");
    expect(order("metric acc", false)).toBe("0,3,10,2");
    expect(order("metric acc", true)).toBe("3,0,10,2");
    expect(order("param width", true)).toBe("3,0,10,2");
    expect(order("outcome", true)).toBe("2,0,10,3");
    expect(order("metric toString", false)).toBe("0,10,2,3");
    expect(order("", false)).toBe("0,10,2,3");
    expect(outcomeText(rows[2] as Trial)).toBe("oom");
  });
  test("what is a number", () => {
    expect(["1", "-0.5", "1e-3", ".5", "5.", "+2E3"].map(valueOf)).toEqual([1, -0.5, 0.001, 0.5, 5, 2000]);
    expect(["0x10", "1e999", "3 a", "nan", " 1", "1e"].map(valueOf)).toEqual(["0x10", "1e999", "3 a", "nan", " 1", "1e"]);
    expect([valueOf(""), valueOf(undefined)]).toEqual([null, null]);
    expect([0, 0.25, 0.0001, 0.1 + 0.2, 3e7].map(short)).toEqual(["0", "0.25", "1e-4", "0.3", "3e7"]);
  });
  test("an axis is linear, logarithmic or of words", () => {
    const kind = (values: (number | string)[]) => scaleOf(values, 8, short).kind;
    expect(kind([0, 1, 2, 3, 4])).toBe("linear");
    expect(kind(Array.from({ length: 1000 }, (_, i) => i + 1))).toBe("linear");
    expect(kind([1e-3, 1e-4, 1e-5])).toBe("log");
    expect(kind([1e-3, 1e-4])).toBe("log");
    expect(kind([1, 2, 4, 8, 16, 32, 64, 128])).toBe("log");
    expect(kind([-1, 10, 1000])).toBe("linear");
    expect(kind(["adam", "sgd"])).toBe("words");
    expect(kind([1, "auto"])).toBe("words");
  });
  test("values and ticks lie within an axis", () => {
    for (const values of [[0.5], [0], [0, 1, 2, 3, 4], [1e-3, 1e-4, 1e-5], [1e-9, 1, 1e9], [0.5, 0.50001], [-3, 7e12], ["a", "b", 1], []]) {
      const scale = scaleOf(values, 8, short);
      const places = [...values.map((v) => scale.at(v)), ...scale.ticks.map((t) => t.at)];
      for (const at of places) expect(at >= 0 && at <= 1, `${values}: ${places}`).toBe(true);
      expect(scale.ticks.length, String(values)).toBeLessThanOrEqual(10);
      expect(scale.ticks.length, String(values)).toBeGreaterThan(values.length ? 0 : -1);
    }
    expect(scaleOf([1e-3, 1e-4, 1e-5], 4, short).ticks.map((t) => t.text)).toEqual(["1e-5", "1e-4", "1e-3"]);
    expect(scaleOf([0, 4], 5, short).ticks.map((t) => t.text)).toEqual(["0", "1", "2", "3", "4"]);
    expect(scaleOf(["a", "b"], 5, short).ticks).toEqual([{ at: 0.25, text: "a" }, { at: 0.75, text: "b" }]);
  });
});
