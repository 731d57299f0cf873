import type { Happening, Job } from "./api";

/** Puts what happened into the list at once; the order follows when the list is read again. Pure. */
export function apply(list: Job[], event: Happening): Job[] {
  const job = event.job;
  const i = job ? list.findIndex((other) => other.id === job.id) : -1;
  if (!job || i < 0) return list;
  if (job.ended_at) return list.toSpliced(i, 1);
  // Events carry no reasons; the one that is known counts until the state changes.
  const known = list[i];
  const reason = job.reason ?? (known?.state === job.state ? known.reason : null);
  return list.with(i, { ...job, reason });
}
