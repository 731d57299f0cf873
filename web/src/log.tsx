// A job's log as it grows. Only the end is read at first; other parts come in
// ranges, and only the lines in sight are drawn.
import { useEffect, useRef, useState } from "preact/hooks";
import { lastOverwrite, plain, spans } from "./ansi";
import { api, pieces } from "./api";
import { LogLines, mostLines } from "./loglines";
import { complain } from "./store";
import { visible } from "./window";

const lineHeight = 18;
const boxHeight = 460; // as in style.css
const tail = 256 << 10;
const piece = 4 << 20;

/** Reads this many bytes from an offset, or fewer at the end, and then hangs up. */
async function range(id: string, attempt: number, from: number, most: number): Promise<Uint8Array> {
  const stop = new AbortController();
  const { body } = await api.log(id, attempt, from, false, stop.signal);
  const all = new Uint8Array(most);
  let got = 0;
  if (body)
    for await (const bytes of pieces(body)) {
      const part = bytes.subarray(0, most - got);
      all.set(part, got);
      got += part.length;
      if (got === most) break;
    }
  stop.abort();
  return all.subarray(0, got);
}

/** The last lines of a log. */
export async function readLines(id: string, attempt: number, most: number): Promise<string[]> {
  const bytes = await range(id, attempt, -8192, 8192);
  const found = new LogLines();
  found.append(new TextDecoder().decode(bytes));
  return found.lines.slice(-most);
}

export function Log({ id, attempt, over }: { id: string; attempt: number; over: boolean }) {
  const kept = useRef(new LogLines());
  const start = useRef(0); // the offset of the first byte that is held
  const next = useRef(0); // the offset after the last one
  const box = useRef<HTMLDivElement>(null);
  const stick = useRef(true); // stay at the end
  const last = useRef({ top: 0, height: 0 }); // as it was scrolled before
  const ended = useRef(over);
  ended.current = over;
  const [fromStart, setFromStart] = useState(false); // read from the beginning, not the end
  const [more, setMore] = useState(false); // from the beginning: the end was not reached
  const [, redraw] = useState(0);
  const [scrolled, setScrolled] = useState(0);
  const [wanted, setWanted] = useState("");
  const [hit, setHit] = useState(-1);
  const draw = () => redraw((n) => n + 1);

  /** Adds the next part of a log that is read from the beginning. */
  const later = async () => {
    try {
      const bytes = await range(id, attempt, next.current, piece);
      next.current += bytes.length;
      kept.current.append(new TextDecoder().decode(bytes));
      setMore(bytes.length === piece);
      draw();
    } catch (problem) {
      complain(problem);
    }
  };

  useEffect(() => {
    const stop = new AbortController();
    kept.current = new LogLines();
    start.current = next.current = 0;
    stick.current = !fromStart;
    setHit(-1);
    if (fromStart) {
      if (box.current) box.current.scrollTop = 0;
      void later();
      return;
    }
    void (async () => {
      let at = -tail;
      let frame = 0;
      while (!stop.signal.aborted) {
        try {
          const { offset, body } = await api.log(id, attempt, at, true, stop.signal);
          if (at < 0) start.current = offset;
          at = offset;
          const decoder = new TextDecoder();
          if (body)
            for await (const bytes of pieces(body)) {
              at += bytes.length;
              kept.current.append(decoder.decode(bytes, { stream: true }));
              cancelAnimationFrame(frame);
              frame = requestAnimationFrame(draw);
            }
          draw();
          if (ended.current) return;
        } catch (problem) {
          if (stop.signal.aborted) return;
          if (ended.current) return complain(problem);
        }
        await new Promise((done) => setTimeout(done, 1500)); // not begun yet, or the daemon is restarting
      }
    })();
    return () => stop.abort();
  }, [id, attempt, fromStart]);

  useEffect(() => {
    if (stick.current && box.current) box.current.scrollTop = box.current.scrollHeight;
  });

  const lines = kept.current.lines;
  const view = Math.max(box.current?.clientHeight ?? 0, boxHeight);
  const rows = visible(lines.length, lineHeight, scrolled, view, 20);
  const matches = (line: string) => plain(line).toLowerCase().includes(wanted.toLowerCase());
  const search = (step: 1 | -1) => {
    if (!wanted) return;
    const from = hit < 0 ? (step > 0 ? 0 : lines.length - 1) : hit + step;
    const found = kept.current.find(matches, from, step);
    setHit(found < 0 ? -2 : found);
    if (found >= 0 && box.current) {
      stick.current = false;
      box.current.scrollTop = Math.max(0, found * lineHeight - view / 2);
    }
  };
  const earlier = async () => {
    const from = Math.max(0, start.current - piece);
    try {
      const text = new TextDecoder().decode(await range(id, attempt, from, start.current - from));
      const before = kept.current.lines.length;
      kept.current.prepend(text);
      start.current = from;
      stick.current = false;
      const at = box.current ? box.current.scrollTop + (kept.current.lines.length - before) * lineHeight : 0;
      setHit(-1);
      draw();
      requestAnimationFrame(() => box.current && (box.current.scrollTop = at)); // once the new height is there
    } catch (problem) {
      complain(problem);
    }
  };
  const full = lines.length >= mostLines;
  const said = hit >= 0 ? `line ${hit + 1} of ${lines.length}` : hit === -2 && wanted ? `not in the ${lines.length} lines that are loaded` : "";
  return (
    <section aria-labelledby="log-title">
      <h2 id="log-title">Log</h2>
      <form class="row" role="search" onSubmit={(e) => { e.preventDefault(); search(1); }}>
        <label>
          Search <input type="search" value={wanted} onInput={(e) => { setWanted(e.currentTarget.value); setHit(-1); }} />
        </label>
        <button>Next</button>
        <button type="button" onClick={() => search(-1)}>Previous</button>
        <span role="status">{said}</span>
      </form>
      <div class="row">
        {!fromStart && start.current > 0 && (
          <>
            <span class="quiet">{(start.current / 1048576).toFixed(1)} MiB come before this.</span>
            {!full && <button type="button" onClick={() => void earlier()}>Load earlier</button>}
            <button type="button" onClick={() => setFromStart(true)}>Go to the beginning</button>
          </>
        )}
        {fromStart && (
          <>
            <span class="quiet">The first {(next.current / 1048576).toFixed(1)} MiB.</span>
            {more && !full && <button type="button" onClick={() => void later()}>Load more</button>}
            <button type="button" onClick={() => setFromStart(false)}>Go to the end</button>
          </>
        )}
      </div>
      <div
        class="scroll log"
        ref={box}
        tabIndex={0}
        role="region"
        aria-label="Lines of the log"
        onScroll={(e) => {
          const at = e.currentTarget;
          // Somebody scrolled up, unless the log became shorter because it is read anew.
          const up = at.scrollTop < last.current.top && at.scrollHeight >= last.current.height;
          if (at.scrollTop + at.clientHeight >= at.scrollHeight - lineHeight) stick.current = !fromStart;
          else if (up) stick.current = false;
          last.current = { top: at.scrollTop, height: at.scrollHeight };
          setScrolled(at.scrollTop);
        }}
      >
        <div style={{ height: `${rows.above}px` }} />
        {lines.slice(rows.first, rows.last).map((line, i) => (
          <div key={rows.first + i} class={rows.first + i === hit ? "line hit" : "line"}>
            {spans(lastOverwrite(line)).map((span, n) => <span key={n} class={span.names || undefined}>{span.text}</span>)}
          </div>
        ))}
        <div style={{ height: `${rows.below}px` }} />
        {lines.length === 0 && <p>{over ? "The log is empty." : "Nothing has been written yet."}</p>}
      </div>
    </section>
  );
}
