/** Which actions make sense in a state. Pure. */
export function actions(job: { state: string; held: boolean; gpus: number }): string[] {
  switch (job.state) {
    case "queued":
      return [job.held ? "release" : "hold", "cancel"];
    case "running":
      return job.gpus > 0 ? ["park", "requeue", "cancel"] : ["requeue", "cancel"];
    case "parked":
      return ["unpark", "cancel"];
  }
  return ["requeue"];
}

interface Known {
  shared: boolean;
  you: { name: string; admin: boolean };
}

/** Why somebody may not act on a job; empty: they may. The daemon decides; this only explains. Pure. */
export function refusal(job: { user: string }, known: Known | null): string {
  if (!known?.shared || known.you.admin || known.you.name === job.user) return "";
  return "Only the job's user and administrators can act on it.";
}

/** Why somebody may not pause or drain a GPU; empty: they may. Pure. */
export function cardRefusal(known: Known | null): string {
  return !known?.shared || known.you.admin ? "" : "Only administrators can pause and drain GPUs.";
}
