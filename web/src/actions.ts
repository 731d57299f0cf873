/** Which actions make sense in a state. Pure. */
export function actions(job: { state: string; held: boolean }): string[] {
  switch (job.state) {
    case "queued":
      return [job.held ? "release" : "hold", "cancel"];
    case "running":
      return ["park", "requeue", "cancel"];
    case "parked":
      return ["unpark", "cancel"];
  }
  return ["requeue"];
}
