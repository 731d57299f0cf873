// What all views share, kept up to date by the daemon's events.
import { signal } from "@preact/signals";
import { apply } from "./apply";
import { ask } from "./ask";
import { Changes } from "./changes";
import { clean } from "./format";
import { api, onLoggedOut, Refusal, type GPU, type Happening, type Job, type Status, type Sum } from "./api";
import { wholeOf } from "./rows";

/** Null until it is known. */
export const loggedIn = signal<boolean | null>(null);
/** Counts sessions: whoever follows one starts again with the next. */
export const session = signal(0);
export const connected = signal(true);
export const status = signal<Status | null>(null);
export const gpus = signal<GPU[]>([]);
export const jobs = signal<Job[]>([]);
/** Of the arrays and jobs files among them. */
export const sums = signal<Sum[]>([]);
export const counts = signal<Record<string, number>>({});
export const message = signal<{ text: string; bad: boolean; lost?: boolean } | null>(null);
export const now = signal(Date.now());
/** Which jobs something happened to; changed says when to look there. */
export const changes = new Changes();
/** Counts events, the user's own jobs that ended, and connections. */
export const changed = signal({ n: 0, ended: 0, opened: 0 });

export function say(text: string, bad = false): void {
  message.value = { text, bad };
}

/** Tells the user what was refused, in the daemon's words. */
export function complain(problem: unknown): void {
  if (problem instanceof Refusal && problem.status === 401 && loggedIn.value === false && message.value) return; // it was said
  if (problem instanceof Refusal) say(problem.message + (problem.hint ? ". Hint: " + problem.hint : ""), true);
  else if (!(problem instanceof DOMException && problem.name === "AbortError")) message.value = { text: "the daemon cannot be reached", bad: true, lost: true };
}

onLoggedOut.call = () => {
  loggedIn.value = false;
};

/** Logs in; asks before it replaces somebody else's session. */
export async function enter(secret: string): Promise<void> {
  try {
    const entered = await api.login(secret, (was, now) =>
      ask(`You are logged in as ${clean(was)}. This login is for ${clean(now)}: what you do here would then be done as ${clean(now)}.`, `Log in as ${clean(now)}`),
    );
    if (entered) {
      message.value = null;
      status.value = null;
      session.value++;
    }
    loggedIn.value = true; // as one or the other
  } catch (problem) {
    loggedIn.value = await api.resume();
    complain(problem);
  }
}

let due: ReturnType<typeof setTimeout> | undefined;
let dueAt = Infinity;
let readAt = 0;

/** Reads the queue again, soon: a long one less often, unless it lacks one of the user's own jobs. */
export function refresh(own = false): void {
  const pause = jobs.value.length <= 1000 ? 800 : own ? 3000 : 15_000;
  const at = Math.max(Date.now(), readAt + pause);
  if (dueAt <= at) return;
  clearTimeout(due);
  dueAt = at;
  due = setTimeout(() => {
    dueAt = Infinity;
    void read();
  }, at - Date.now());
}

async function read(): Promise<void> {
  try {
    const page = await api.queue();
    jobs.value = page.jobs;
    counts.value = page.counts;
    sums.value = page.jobs.some(wholeOf) ? await api.sums() : [];
  } catch (problem) {
    complain(problem);
  }
  readAt = Date.now();
}

/** Follows the daemon for as long as somebody is logged in, restarts included. */
export async function follow(stop: AbortSignal): Promise<void> {
  let last = "";
  let wait = 500;
  while (!stop.aborted && loggedIn.value) {
    try {
      await api.events(
        last,
        (event) => {
          if (event.name !== "message") return; // the daemon is stopping: it ends the stream next
          last = event.id || last;
          const happened = JSON.parse(event.data) as Happening;
          if (happened.gpus) gpus.value = happened.gpus;
          if (!happened.job) return;
          const { id, user, ended_at } = happened.job;
          const own = user === status.value?.you.name;
          const missing = own && !ended_at && !jobs.value.some((j) => j.id === id);
          jobs.value = apply(jobs.value, happened);
          changes.note(id);
          const { n, ended, opened } = changed.value;
          changed.value = { n: n + 1, ended: ended + (own && ended_at ? 1 : 0), opened };
          refresh(missing);
        },
        () => {
          wait = 500;
          connected.value = true;
          changed.value = { ...changed.value, opened: changed.value.opened + 1 };
          if (message.value?.lost) message.value = null;
          void open();
        },
        stop,
      );
    } catch (problem) {
      if (stop.aborted) return;
      if (problem instanceof Refusal && problem.status === 400) last = ""; // the events it knew are gone
    }
    connected.value = false;
    await new Promise((done) => setTimeout(done, wait));
    wait = Math.min(wait * 2, 10_000);
  }
}

async function open(): Promise<void> {
  try {
    [status.value, gpus.value] = await Promise.all([api.status(), api.gpus()]);
    await read();
  } catch (problem) {
    complain(problem);
  }
}

setInterval(() => (now.value = Date.now()), 1000);
