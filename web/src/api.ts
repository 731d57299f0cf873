// The page's only way to data: the daemon's API.
import { current, forget, keep, load, newKey, sign, type Session } from "./session";
import { EventReader, type ServerEvent } from "./sse";

export interface Job {
  id: string;
  name: string;
  user: string;
  state: string;
  outcome: string | null;
  reason: string | null;
  priority: number;
  command: string | null;
  gpus: number;
  share: number | null;
  vram_mib: number | null;
  gpu_ids: number[] | null;
  attempt: number;
  submitted_at: string | null;
  started_at: string | null;
  ended_at: string | null;
  exit_code: number | null;
  peak_vram_mib: Record<string, number> | null;
  avg_util: number | null;
  held: boolean;
  group: string | null;
  batch: string | null; // the jobs file that it is a line of
  sweep: string | null; // the name of the sweep it is a trial of
  parked_since: string | null;
  slurm: { id: string | null; node: string | null; gpu_ids: number[] | null } | null; // null: it runs on this machine
}

export interface JobPage {
  jobs: Job[];
  next?: string;
  total: number;
  counts: Record<string, number>;
  arrays?: Record<string, Omit<Sum, "user">>;
  batches?: Sum[];
}

/** The jobs of an array or a jobs file. */
export interface Sum {
  file?: string;
  array?: string;
  user: string;
  counts: Record<string, number>;
  reason?: string;
  done_at?: string;
}

export interface Happening {
  seq?: number;
  time: string;
  event: string;
  job?: Job;
  text?: string;
  gpus?: GPU[];
}

export interface Guess {
  low_s: number;
  mid_s: number;
  high_s: number;
  source: string;
  runs: number;
}

export interface Detail extends Job {
  dir?: string;
  position?: number;
  time_limit_s?: number;
  settings?: Record<string, string>;
  env?: Record<string, string>;
  verdict?: string;
  stopping?: string;
  events?: Happening[];
  expected_run?: Guess;
  tasks?: { counts: Record<string, number> };
}

export interface Why {
  id: string;
  text: string;
  position?: number;
  queued: number;
  state: string;
  notes?: string[];
  expected?: { low: string; mid?: string; high?: string; beyond?: boolean };
  kept?: { gpus?: number[]; at: string };
  expected_run?: Guess;
  gpus?: { gpu: number; what?: string; fits: boolean; runs?: { id: string; user: string; mid?: string }[] }[];
}

export interface GPU {
  index: number;
  name: string;
  total_mib: number;
  used_mib: number;
  foreign_mib: number;
  util: number | null;
  temperature_c: number | null;
  power_w: number | null;
  health: string;
  health_reason?: string;
  paused: boolean;
  stale: boolean;
  jobs: { id: string; name: string; user: string; used_mib: number | null }[] | null;
}

export interface Samples {
  declared_mib: number | null;
  tracks: { gpu: number; attempt?: number; points: { at: string; vram_mib: number | null; util: number | null; after_gap: boolean }[] }[];
  parked: { from: string; to: string | null }[];
}

export interface Status {
  version: string;
  shared: boolean;
  blocked?: string;
  warnings?: string[];
  you: { name: string; admin: boolean };
}

export interface StatsLine {
  key: string;
  jobs: number;
  finished: number;
  failed: number;
  cancelled: number;
  gpu_hours: number;
  wait_p50_s: number | null;
  wait_p95_s: number | null;
  avg_util: number | null;
}

export interface Stats {
  since: string;
  until: string;
  gpus: number;
  gpu_hours: number;
  utilisation: number | null;
  all: StatsLine;
  users: StatsLine[];
}

export interface Replay {
  since: string;
  jobs: number;
  users: number;
  gpus: number;
  vram_mib: number;
  policies: { name: string; about: string }[];
  figures: { name: string; title: string; values: { value: number; text: string; best: boolean }[]; bound?: string }[];
  notes: string[];
  known: { name: string; about: string }[];
}

/** The results of a sweep or an array. */
export interface TrialTable {
  name: string;
  params: string[];
  metrics: { name: string; from: string }[];
  trials: Trial[];
  unread?: number;
}

export interface Trial {
  id: string;
  name: string;
  state: string;
  outcome: string | null;
  params: Record<string, string>;
  seconds: number | null;
  peak_vram_mib: number | null;
  metrics: Record<string, number | string | null>;
}

export interface Acted {
  jobs: { id: string; done: boolean; what: string }[];
}

export interface Submitted {
  jobs: { id: string; name: string; state?: string; reason?: string; gpu_ids?: number[]; notes?: string[] }[];
}

/** What the daemon refused, in its own words. */
export class Refusal extends Error {
  constructor(
    readonly status: number,
    what: string,
    readonly hint: string,
  ) {
    super(what);
  }
}

/** Is called when the daemon no longer knows the session. */
export const onLoggedOut = { call: () => {} };

// What the daemon wants signed. It says so in each reply, and anew after a
// restart.
let challenge = "";

// Sends a request as a session. A reply that asks for another signature is
// answered; twice, because the daemon may restart in between.
async function sendAs(by: Session | null, method: string, path: string, body: string, signal?: AbortSignal): Promise<Response> {
  const at = new URL(path, location.href);
  const headers: Record<string, string> = body ? { "Content-Type": "application/json" } : {};
  const init: RequestInit = { method, headers, credentials: "same-origin", cache: "no-store", redirect: "error" };
  if (body) init.body = body;
  if (signal) init.signal = signal;
  for (let tries = 0; ; tries++) {
    const used = challenge;
    if (by) headers["Berth-Session"] = used ? await sign(by, used, method, at.pathname + at.search, body) : "unsigned";
    const reply = await fetch(at, init);
    challenge = reply.headers.get("Berth-Challenge") ?? challenge;
    if (reply.status !== 401 || !by || challenge === used || tries === 2) return reply;
  }
}

async function refused(reply: Response): Promise<Refusal> {
  let what = `unexpected answer: HTTP ${reply.status}`;
  let hint = "";
  try {
    const problem = (await reply.json()) as { problem?: string; hint?: string };
    what = problem.problem ?? what;
    hint = problem.hint ?? "";
  } catch {
    // a proxy's page: the status says enough
  }
  return new Refusal(reply.status, what, hint);
}

async function send(method: string, path: string, body?: unknown, signal?: AbortSignal): Promise<Response> {
  const text = body === undefined ? "" : JSON.stringify(body);
  let by = current();
  let reply = await sendAs(by, method, path, text, signal);
  if (reply.status === 401) {
    const now = await load(); // another tab may have logged in again
    if (now && now.id !== by?.id) reply = await sendAs((by = now), method, path, text, signal);
  }
  if (reply.ok) return reply;
  if (reply.status === 401) {
    if (by) await forget(by);
    if (!current()) onLoggedOut.call();
  }
  throw await refused(reply);
}

async function ask<T>(method: string, path: string, body?: unknown, signal?: AbortSignal): Promise<T> {
  return (await (await send(method, path, body, signal)).json()) as T;
}

/** The pieces of a body as they come. Not every browser can iterate over one. */
export async function* pieces(body: ReadableStream<Uint8Array>): AsyncGenerator<Uint8Array> {
  const reader = body.getReader();
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    yield value;
  }
}

/** The most jobs that the daemon lists at once. */
export const mostListed = 10_000;

const at = (id: string, rest = "") => `/v1/jobs/${encodeURIComponent(id)}${rest}`;

export const api = {
  /** Finds the session that this browser has; false: none. */
  resume: async () => (await load()) !== null,

  /**
   * Logs in with a one-time login or a token. If somebody else is logged in, replaces them
   * only if mayReplace says so; false: it did not.
   */
  login: async (secret: string, mayReplace: (was: string, now: string) => Promise<boolean>): Promise<boolean> => {
    if (!globalThis.crypto?.subtle) throw new Refusal(0, "this browser signs nothing at this address", "open the page over HTTPS, or at 127.0.0.1");
    const { key, shown } = await newKey();
    const reply = await sendAs(null, "POST", "/v1/session", JSON.stringify({ secret, key: shown }));
    if (!reply.ok) throw await refused(reply);
    const opened = (await reply.json()) as { id: string; user: string };
    const next: Session = { id: opened.id, user: opened.user, key };
    const was = await load();
    const stays =
      was !== null && was.user !== next.user && (await sendAs(was, "GET", "/v1/status", "")).status !== 401 && !(await mayReplace(was.user, next.user));
    const unused = stays ? next : await keep(next);
    if (unused) await sendAs(unused, "DELETE", "/v1/session", "").catch(() => null); // if it has not ended already
    return !stays;
  },
  logout: async () => {
    const by = current();
    await send("DELETE", "/v1/session");
    if (by) await forget(by);
  },
  status: () => ask<Status>("GET", "/v1/status"),
  gpus: () => ask<GPU[]>("GET", "/v1/gpus"),
  queue: () => ask<JobPage>("GET", "/v1/jobs?queue=true&reasons=true&limit=" + mostListed),
  /** The arrays and jobs files with unfinished jobs. */
  sums: () => ask<Sum[]>("GET", "/v1/batches?user=*"),
  history: (query: Record<string, string>) =>
    ask<JobPage>("GET", "/v1/jobs?" + new URLSearchParams({ over: "true", newest: "true", arrays: "true", batches: "true", limit: "500", ...query }).toString()),
  job: (id: string) => ask<Detail>("GET", at(id)),
  why: (id: string) => ask<Why>("GET", at(id, "/why")),
  samples: (id: string) => ask<Samples>("GET", at(id, "/samples")),
  /** The trials of a sweep or an array; without metrics, with those of the sweep. */
  trials: (id: string, metrics: string[]) => ask<TrialTable>("GET", "/v1/trials?" + new URLSearchParams([["id", id], ...metrics.map((m) => ["metric", m])]).toString()),
  stats: (since: string) => ask<Stats>("GET", "/v1/stats?since=" + encodeURIComponent(since)),
  replay: (policies: string[], since: string, stop: AbortSignal) =>
    ask<Replay>("GET", "/v1/replay?" + new URLSearchParams([["since", since], ...policies.map((p) => ["policy", p])]).toString(), undefined, stop),
  /** The last job of a user that ended. */
  last: async (user: string) =>
    (await ask<JobPage>("GET", "/v1/jobs?" + new URLSearchParams({ over: "true", newest: "true", since: "1971-01-01T00:00:00Z", user, limit: "1" }).toString())).jobs[0] ?? null,
  act: (action: string, id: string, until?: string) => ask<Acted>("POST", "/v1/jobs/act", { action, select: { ids: [id] }, until }),
  priority: (id: string, priority: number) => ask<Detail>("PATCH", at(id), { set: { priority: String(priority) } }),
  pause: (index: number, paused: boolean) => ask<GPU>("POST", `/v1/gpus/${index}/${paused ? "pause" : "resume"}`),
  drain: (index: number, park: boolean) => ask<Acted & { gpu: GPU }>("POST", `/v1/gpus/${index}/drain`, { park }),
  submit: (spec: Record<string, string>, dryRun: boolean) => ask<Submitted>("POST", "/v1/jobs", { jobs: [spec], dry_run: dryRun }),

  /** Reads the log of an attempt from an offset; negative: that many bytes before the end. */
  log: async (id: string, attempt: number, offset: number, follow: boolean, signal: AbortSignal) => {
    const reply = await send("GET", at(id, `/log?attempt=${attempt}&offset=${offset}${follow ? "&follow=true" : ""}`), undefined, signal);
    return { offset: Number(reply.headers.get("Berth-Log-Offset") ?? "0"), body: reply.body };
  },

  /** Follows events until the stream ends. */
  events: async (since: string, take: (event: ServerEvent) => void, opened: () => void, signal: AbortSignal) => {
    const reply = await send("GET", `/v1/events?gpus=true&since=${since === "" ? "-1" : encodeURIComponent(since)}`, undefined, signal);
    opened();
    if (!reply.body) return;
    const reader = new EventReader();
    const decoder = new TextDecoder();
    for await (const piece of pieces(reply.body)) {
      for (const event of reader.take(decoder.decode(piece, { stream: true }))) take(event);
    }
  },
};
