// Which jobs something happened to. Pure. Several events may come before a view
// is drawn again, so the last one alone would not do.

const most = 20_000;

export class Changes {
  private readonly at = new Map<string, number>();
  private count = 0;

  /** Takes note of an event of a job, which is also one of its array. */
  note(id: string): void {
    if (this.at.size > most) this.at.clear();
    this.count++;
    for (const key of [id, id.split("_")[0] ?? id]) this.at.set(key, this.count);
  }

  /** A number that differs once something happened to the job. */
  of(id: string): number {
    return this.at.get(id) ?? 0;
  }
}
