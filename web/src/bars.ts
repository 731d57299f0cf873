import type { Job, Why } from "./api";

export interface Bar {
  job: string;
  name: string;
  lane: number; // a GPU; -1: not known yet
  from: number;
  to: number;
  kind: "past" | "running" | "expected";
}

/** What ran, runs and is expected to run, as bars. Pure. */
export function bars(past: Job[], live: Job[], expected: Why[], at: number): Bar[] {
  const all: Bar[] = [];
  const add = (j: { id: string; name: string }, lanes: number[], from: number, to: number, kind: Bar["kind"]) => {
    for (const lane of lanes) all.push({ job: j.id, name: j.name, lane, from, to: Math.max(to, from), kind });
  };
  for (const j of past) if (j.started_at && j.ended_at) add(j, j.gpu_ids ?? [], Date.parse(j.started_at), Date.parse(j.ended_at), "past");
  for (const j of live) if (j.started_at && j.state === "running") add(j, j.gpu_ids ?? [], Date.parse(j.started_at), at, "running");
  for (const w of expected) {
    const start = w.expected?.mid ?? w.expected?.low;
    if (!start) continue;
    const name = live.find((j) => j.id === w.id)?.name ?? "";
    const from = Math.max(Date.parse(start), at);
    add({ id: w.id, name }, w.kept?.gpus ?? [-1], from, from + (w.expected_run?.mid_s ?? 3600) * 1000, "expected");
  }
  return all;
}

const steps = [1, 2, 5, 10, 15, 30, 60, 120, 180, 360, 720, 1440, 2880, 10080].map((minutes) => minutes * 60_000);

/** Round times of the day, at most so many, for the axis. Pure. */
export function ticks(from: number, to: number, most: number): number[] {
  const step = steps.find((s) => (to - from) / s <= most) ?? steps[steps.length - 1]!;
  const zone = new Date(from).getTimezoneOffset() * 60_000;
  const found: number[] = [];
  for (let t = Math.ceil((from - zone) / step) * step + zone; t <= to; t += step) found.push(t);
  return found;
}
