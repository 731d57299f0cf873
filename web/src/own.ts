// Which of a user's jobs are shown first. Pure.
import type { Job } from "./api";
import { wholeOf } from "./rows";

/** How many running, and how many waiting ones. */
export const mostOwn = 4;

/** The first jobs of a user, running ones first; those of an array or a jobs file in the same state count as one. */
export function firstOfEach(own: Job[], most: number): (Job & { more: number })[] {
  const found = new Map<string, Job & { more: number }>();
  for (const job of own) {
    const like = `${wholeOf(job) || job.id} ${job.state} ${job.held}`;
    const first = found.get(like);
    if (first) first.more++;
    else found.set(like, { ...job, more: 0 });
  }
  const all = [...found.values()];
  return [...all.filter((j) => j.state === "running").slice(0, most), ...all.filter((j) => j.state !== "running").slice(0, most)];
}
