// What people read of numbers, times and foreign text. Pure.

/** A duration as berth's tables write it: 45s, 12m05s, 3h20m, 2d04h. */
export function duration(seconds: number): string {
  const s = Math.max(0, Math.round(seconds));
  const two = (n: number) => String(n).padStart(2, "0");
  if (s < 60) return `${s}s`;
  if (s < 3600) return `${Math.floor(s / 60)}m${two(s % 60)}s`;
  if (s < 86400) return `${Math.floor(s / 3600)}h${two(Math.floor((s % 3600) / 60))}m`;
  return `${Math.floor(s / 86400)}d${two(Math.floor((s % 86400) / 3600))}h`;
}

/** The time between two moments; empty if one is missing. */
export function between(from: string | null | undefined, to: string | null | undefined, now: number): string {
  if (!from) return "";
  const end = to ? Date.parse(to) : now;
  return duration((end - Date.parse(from)) / 1000);
}

export function memory(mib: number | null | undefined): string {
  if (mib === null || mib === undefined) return "n/a";
  return mib < 1024 ? `${Math.round(mib)} MiB` : `${(mib / 1024).toFixed(1)} GiB`;
}

/** A moment: the time alone if it is today, with the weekday within five days of now, else with the date. */
export function moment(at: string | null | undefined, now: number): string {
  if (!at) return "";
  const date = new Date(at);
  const clock = date.toLocaleTimeString([], { hour: "2-digit", minute: "2-digit", hour12: false });
  if (date.toDateString() === new Date(now).toDateString()) return clock;
  if (Math.abs(date.getTime() - now) < 5 * 86_400_000) return `${date.toLocaleDateString("en", { weekday: "short" })} ${clock}`;
  const two = (n: number) => String(n).padStart(2, "0");
  return `${date.getFullYear()}-${two(date.getMonth() + 1)}-${two(date.getDate())} ${clock}`;
}

// Characters that hide, or that change the order of what is around them.
const unseen =
  /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u00ad\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb]/g;

/** Foreign text with everything made visible that could hide or reorder. */
export function clean(text: string | null | undefined, most = 4000): string {
  if (!text) return "";
  const cut = text.length > most ? text.slice(0, most) + "…" : text;
  return cut.replace(unseen, (c) => "\\u" + c.charCodeAt(0).toString(16).padStart(4, "0"));
}

export function percent(value: number | null | undefined): string {
  return value === null || value === undefined ? "n/a" : `${Math.round(value)} %`;
}

/** Where a job runs or ran: GPUs of this machine, or a node of a cluster and its GPUs. */
export function whereText(job: { gpu_ids: number[] | null; slurm: { node: string | null; gpu_ids: number[] | null } | null }): string {
  if (!job.slurm?.node) return job.gpu_ids?.length ? `GPU ${gpuList(job.gpu_ids)}` : "";
  const node = clean(job.slurm.node, 60);
  return job.slurm.gpu_ids?.length ? `${node}, GPU ${gpuList(job.slurm.gpu_ids)}` : node;
}

export function gpuList(ids: number[] | null): string {
  return ids && ids.length > 0 ? ids.join(",") : "";
}
