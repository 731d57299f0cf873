// Server-sent events from a stream of text. Pure. A browser's own EventSource
// cannot send the header that a session needs.

export interface ServerEvent {
  id: string; // of the last event that had one
  name: string;
  data: string;
}

/** Takes pieces of a stream and returns the events that are complete. */
export class EventReader {
  private rest = "";
  private lastID = "";

  take(piece: string): ServerEvent[] {
    const blocks = (this.rest + piece).replaceAll("\r\n", "\n").split("\n\n");
    this.rest = blocks.pop() ?? "";
    const events: ServerEvent[] = [];
    for (const block of blocks) {
      let name = "message";
      const data: string[] = [];
      for (const line of block.split("\n")) {
        const [, field, value] = /^([^:]+):? ?(.*)$/.exec(line) ?? [];
        if (field === "id") this.lastID = value ?? "";
        else if (field === "event") name = value ?? "";
        else if (field === "data") data.push(value ?? "");
      }
      if (data.length > 0) events.push({ id: this.lastID, name, data: data.join("\n") });
    }
    return events;
  }
}
