// Sentences that several views say. Pure.
import type { Detail, Happening, Submitted, Why } from "./api";
import { clean, duration, gpuList, memory, moment } from "./format";

/** When a waiting job is expected to start. */
export function startText(why: Pick<Why, "expected" | "position" | "queued">, now: number): string {
  const expected = why.expected;
  const place = why.position ? ` It is number ${why.position} of ${why.queued} in the queue.` : "";
  if (!expected) return place.trim();
  if (expected.beyond) return `Expected to start after ${moment(expected.low, now)}.${place}`;
  const [low, high] = [moment(expected.low, now), expected.high && moment(expected.high, now)];
  const range = high && high !== low ? `, likely between ${low} and ${high}` : "";
  return `Expected to start ${expected.mid ? `at about ${moment(expected.mid, now)}` : `not before ${low}`}${range}.${place}`;
}

// What the page calls things whose own words say little; any other is its own word.
const eventWords: Record<string, string> = { set_aside: "preempted", gpus_unreadable: "GPUs unreadable", gpus_readable: "GPUs readable", exceeds: "uses more than declared", adopted: "found again after berth restarted" };
const stopWords: Record<string, string> = { aside: "preempted", cancel: "cancelled", timeout: "time limit", interrupt: "berth stops", overuse: "too much memory" };
const verdictWords: Record<string, string> = { within: "as declared", "under-declared": "more than declared", "over-declared": "much less than declared" };

const plain = (words: Record<string, string>, key: string) => words[key] ?? clean(key).replaceAll("_", " ");

/** What happened to a job, as berth show says it. */
export function eventText(happened: Pick<Happening, "event" | "text">): string {
  const what = plain(eventWords, happened.event);
  const text = happened.event === "stopping" ? plain(stopWords, happened.text ?? "") : clean(happened.text);
  if (text === "") return what;
  return text.startsWith(what) ? text : `${what}: ${text}`;
}

/** Whether a job used as much memory as it declared. */
export const verdictText = (verdict: string | undefined): string => (verdict ? plain(verdictWords, verdict) : "");

/** What a job asks for. */
export function requestText(job: Pick<Detail, "gpus" | "share" | "vram_mib" | "time_limit_s">): string {
  const parts = [job.share ? `${Number(job.share.toPrecision(3))} of a GPU` : job.gpus === 0 ? "no GPU" : `${job.gpus} GPU${job.gpus === 1 ? "" : "s"}`];
  if (job.vram_mib) parts.push(memory(job.vram_mib) + (job.gpus > 1 ? " each" : ""));
  if (job.time_limit_s) parts.push(`time limit ${duration(job.time_limit_s)}`);
  return parts.join(", ");
}

/** What would happen to a job that is not submitted yet. */
export function wouldText(job: Submitted["jobs"][number]): string {
  const where = job.gpu_ids?.length ? ` on GPU ${gpuList(job.gpu_ids)}` : "";
  const reason = clean(job.reason);
  switch (job.state) {
    case "starts":
      return `It would start at once${where}.`;
    case "infeasible":
      return `It can never run: it ${reason}.`;
  }
  return `It would wait: ${reason}.`;
}
