// The part of a log that the page holds, as lines. Pure.

/** How much is kept; beyond it the oldest lines are dropped. */
export const mostLines = 500_000;

/** A longer line is cut: nobody reads it, and it would be drawn again and again. */
const longest = 100_000;

/** A line without what a terminal would have overwritten, which may go on. Pure. */
function shorter(line: string): string {
  if (line.length < 4096) return line;
  const parts = line.split("\r").filter((part) => part !== "");
  const last = (parts[parts.length - 1] ?? "").slice(0, longest);
  return line.endsWith("\r") ? last + "\r" : last;
}

export class LogLines {
  lines: string[] = [];
  open = false; // the last line has no end yet
  dropped = false;

  /** Adds text at the end. */
  append(text: string): void {
    if (text === "") return;
    const parts = text.split("\n");
    if (this.open) parts[0] = this.lines.pop() + (parts[0] ?? "");
    for (const part of parts) this.lines.push(shorter(part));
    this.open = !text.endsWith("\n");
    if (!this.open) this.lines.pop();
    if (this.lines.length > mostLines) {
      this.lines = this.lines.slice(this.lines.length - mostLines);
      this.dropped = true;
    }
  }

  /** Adds text before the first line, which ends where that line begins. */
  prepend(text: string): void {
    const parts = text.split("\n");
    const last = parts.pop() ?? "";
    if (this.lines.length > 0) this.lines[0] = shorter(last + (this.lines[0] ?? ""));
    else if (last) parts.push(last);
    this.lines = parts.map(shorter).concat(this.lines);
  }

  /** The next line from a place on that matches, going round; -1: none. */
  find(matches: (line: string) => boolean, from: number, step: 1 | -1): number {
    const n = this.lines.length;
    for (let i = 0; i < n; i++) {
      const at = (((from + step * i) % n) + n) % n;
      if (matches(this.lines[at] ?? "")) return at;
    }
    return -1;
  }
}
