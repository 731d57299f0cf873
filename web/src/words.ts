// Sentences that several views say. Pure.
import type { Submitted, Why } from "./api";
import { clean, gpuList, moment } from "./format";

/** When a waiting job is expected to start. */
export function startText(why: Pick<Why, "expected" | "position" | "queued">, now: number): string {
  const expected = why.expected;
  const place = why.position ? ` It is number ${why.position} of ${why.queued} in the queue.` : "";
  if (!expected) return `No estimate of its start.${place}`;
  if (expected.beyond) return `Expected to start after ${moment(expected.low, now)}.${place}`;
  const [low, high] = [moment(expected.low, now), expected.high && moment(expected.high, now)];
  const range = high && high !== low ? `, likely between ${low} and ${high}` : "";
  return `Expected to start ${expected.mid ? `at about ${moment(expected.mid, now)}` : `not before ${low}`}${range}.${place}`;
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
