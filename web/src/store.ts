// What all views share, kept up to date by the daemon's events.
import { signal } from "@preact/signals";
import { apply } from "./apply";
import { api, onLoggedOut, Refusal, session, type GPU, type Happening, type Job, type Status } from "./api";

export const loggedIn = signal(session.get() !== "");
export const connected = signal(true);
export const status = signal<Status | null>(null);
export const gpus = signal<GPU[]>([]);
export const jobs = signal<Job[]>([]);
export const counts = signal<Record<string, number>>({});
export const message = signal<{ text: string; bad: boolean; lost?: boolean } | null>(null);
export const now = signal(Date.now());
/** Changes whenever something happened to a job, by id; ended counts the user's own jobs that ended. */
export const changed = signal({ id: "", n: 0, ended: 0 });

export function say(text: string, bad = false): void {
  message.value = { text, bad };
}

/** Tells the user what was refused, in the daemon's words. */
export function complain(problem: unknown): void {
  if (problem instanceof Refusal) say(problem.message + (problem.hint ? ". " + problem.hint : ""), true);
  else if (!(problem instanceof DOMException && problem.name === "AbortError")) message.value = { text: "the daemon cannot be reached", bad: true, lost: true };
}

onLoggedOut.call = () => {
  session.clear();
  loggedIn.value = false;
};

let due: ReturnType<typeof setTimeout> | undefined;
let readAt = 0;

/** Reads the queue again, soon: a long one less often. */
export function refresh(): void {
  if (due !== undefined) return;
  const pause = jobs.value.length > 1000 ? 8000 : 800;
  due = setTimeout(
    () => {
      due = undefined;
      void read();
    },
    Math.max(0, readAt + pause - Date.now()),
  );
}

async function read(): Promise<void> {
  try {
    const page = await api.queue();
    jobs.value = page.jobs;
    counts.value = page.counts;
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
          jobs.value = apply(jobs.value, happened);
          const ended = happened.job.ended_at && happened.job.user === status.value?.you.name ? 1 : 0;
          changed.value = { id: happened.job.id, n: changed.value.n + 1, ended: changed.value.ended + ended };
          refresh();
        },
        () => {
          wait = 500;
          connected.value = true;
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
