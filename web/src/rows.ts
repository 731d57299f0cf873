// Arrays and jobs files as one row each. Pure.
import type { Job, Sum } from "./api";
import { duration } from "./format";

/** A row of a list: a job, or the first of several with their sum. */
export interface Row extends Job {
  fold?: { key: string; open: boolean; file: string; sum: Sum };
}

/** The array or jobs file that a job is part of; empty: none. */
export function wholeOf(job: Job): string {
  if (job.id.includes("_")) return "array " + job.id.split("_")[0];
  return job.batch ? `file ${job.user} ${job.batch}` : "";
}

const few = 20; // lines of a file that are listed one by one if there is nothing else

/** Makes a row of each array and jobs file; those that are open are followed by their jobs. */
export function fold(list: Job[], sums: Sum[], open: Set<string>): Row[] {
  const wholes = new Map<string, Job[]>();
  for (const job of list) {
    const key = wholeOf(job);
    const jobs = wholes.get(key);
    if (jobs) jobs.push(job);
    else wholes.set(key, [job]);
  }
  const [only, lines] = [...wholes][0] ?? ["", []];
  if (wholes.size === 1 && only.startsWith("file ") && lines.length <= few) return list;
  const known = new Map(sums.map((s) => [s.array ? "array " + s.array : `file ${s.user} ${s.file}`, s]));
  const rows: Row[] = [];
  for (const job of list) {
    const key = wholeOf(job);
    const jobs = wholes.get(key) ?? [];
    if (!key || (jobs.length === 1 && !known.has(key))) rows.push(job);
    else if (jobs[0] === job) rows.push(rowOf(key, job, jobs, known.get(key), open.has(key)), ...(open.has(key) ? jobs : []));
  }
  return rows;
}

function rowOf(key: string, first: Job, jobs: Job[], known: Sum | undefined, open: boolean): Row {
  const counts: Record<string, number> = {};
  for (const job of jobs) counts[job.state] = (counts[job.state] ?? 0) + 1;
  for (const state of ["finished", "failed", "cancelled"]) {
    const n = known?.counts[state]; // the list may have only some of them, or none
    if (n) counts[state] = Math.max(n, counts[state] ?? 0);
  }
  const array = first.id.includes("_") ? (first.id.split("_")[0] ?? "") : "";
  const file = array ? "" : (first.batch ?? "");
  const name = file ? (file.split("/").pop() ?? file) : first.sweep ?? (first.name === "job" + first.id ? "job" + array : first.name);
  const reason = known?.reason ?? jobs.find((j) => j.state === "queued")?.reason ?? null;
  return { ...first, id: array, name, reason, gpu_ids: null, held: false, outcome: null, fold: { key, open, file, sum: { user: first.user, ...known, counts } } };
}

const order = ["running", "queued", "parked", "finished", "failed", "cancelled"];

/** How many jobs of a row there are in each state. */
export const countText = (sum: Sum): string => order.filter((s) => sum.counts[s]).map((s) => `${sum.counts[s]} ${s}`).join(", ");

/** How far a row is and when it is expected to be done; empty: that is not known. */
export function leftText(sum: Sum, now: number): string {
  const left = sum.done_at ? (Date.parse(sum.done_at) - now) / 1000 : 0;
  if (left <= 0) return "";
  const all = Object.values(sum.counts).reduce((a, b) => a + b, 0);
  const ended = (sum.counts.finished ?? 0) + (sum.counts.failed ?? 0) + (sum.counts.cancelled ?? 0);
  return (ended ? `${Math.floor((100 * ended) / all)}% done, ` : "") + `about ${duration(left)} left`;
}
