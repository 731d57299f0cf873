// What the trials of a sweep came to: a table, and a plot of one result over one parameter.
import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { api, Refusal, type Trial, type TrialTable } from "../api";
import { clean } from "../format";
import { complain } from "../store";
import { columnsOf, mostTrials, outcomeText, own, scaleOf, sorted, type TrialColumn } from "../trials";

const plotHeight = 300;
const margin = { left: 84, right: 16, top: 12, bottom: 44 };

const open = (row: Trial) => "#/job/" + encodeURIComponent(row.id);

function Written({ text }: { text: string | undefined }) {
  return <bdi title={clean(text, 1000)}>{clean(text, 200)}</bdi>;
}

function Cell({ row, column }: { row: Trial; column: TrialColumn }) {
  if (column.key === "id") return <a href={open(row)}>{clean(row.id, 40)}</a>;
  if (column.key === "outcome") return <span class={"state s-" + row.state}>{clean(outcomeText(row), 40)}</span>;
  if (column.key.startsWith("param ")) return <Written text={own(row.params, column.key.slice("param ".length))} />;
  const value = column.value(row);
  return typeof value === "string" ? <Written text={value} /> : <>{value === null ? "-" : column.text(value)}</>;
}

function Plot({ rows, x, y }: { rows: Trial[]; x: TrialColumn; y: TrialColumn }) {
  const [width, setWidth] = useState(800);
  const box = useRef<HTMLDivElement>(null);
  useEffect(() => {
    const element = box.current;
    if (!element) return;
    const sized = new ResizeObserver(() => setWidth(Math.max(300, element.clientWidth)));
    sized.observe(element);
    return () => sized.disconnect();
  }, []);
  const drawn = useMemo(() => {
    const found = rows.flatMap((row) => {
      const [over, value] = [x.value(row), y.value(row)];
      return over !== null && typeof value === "number" ? [{ row, over, value }] : [];
    });
    if (found.length === 0) return <p class="quiet">No trial has a number for {y.title} yet.</p>;
    const [inX, inY] = [width - margin.left - margin.right, plotHeight - margin.top - margin.bottom];
    const across = scaleOf(found.map((p) => p.over), Math.max(2, Math.floor(inX / 90)), x.text);
    const up = scaleOf(found.map((p) => p.value), 6, y.text);
    const left = (at: number) => margin.left + at * inX;
    const top = (at: number) => margin.top + (1 - at) * inY;
    const what = `${y.title} over ${x.title}`;
    return (
      <svg width={width} height={plotHeight} role="img" aria-label={`${what}: ${found.length} trials`}>
        {up.ticks.map((t) => (
          <g key={t.at}>
            <line class="rule" x1={margin.left} x2={width - margin.right} y1={top(t.at)} y2={top(t.at)} />
            <text x={margin.left - 8} y={top(t.at) + 4} text-anchor="end">{t.text}</text>
          </g>
        ))}
        {across.ticks.map((t) => (
          <g key={t.at}>
            <line class="rule" x1={left(t.at)} x2={left(t.at)} y1={margin.top} y2={plotHeight - margin.bottom} />
            <text x={left(t.at)} y={plotHeight - margin.bottom + 16} text-anchor="middle">{t.text}</text>
          </g>
        ))}
        <text x={margin.left + inX / 2} y={plotHeight - 6} text-anchor="middle">{what + (across.kind === "log" ? " (logarithmic)" : "")}</text>
        {found.map(({ row, over, value }) => (
          <circle key={row.id} class="point" cx={left(across.at(over))} cy={top(up.at(value))} r={5} onClick={() => (location.hash = open(row))}>
            <title>{`${clean(row.id, 40)}: ${x.title} ${clean(String(over), 80)}, ${y.title} ${y.text(value)}`}</title>
          </circle>
        ))}
      </svg>
    );
  }, [rows, x, y, width]);
  return <div class="scroll" tabIndex={0} role="region" aria-label="Plot" ref={box}>{drawn}</div>;
}

/** The trials of a sweep or an array; news differs whenever one of them changed. */
export function Trials({ id, news, logs }: { id: string; news: string; logs: boolean }) {
  const [table, setTable] = useState<TrialTable | null>(null);
  const [asked, setAsked] = useState<string[]>([]);
  const [pattern, setPattern] = useState("");
  const [busy, setBusy] = useState(false);
  const [refused, setRefused] = useState("");
  const [sort, setSort] = useState({ key: "", down: false });
  const [plotted, setPlotted] = useState({ x: "", y: "" });
  const read = useRef({ n: 0, news: "", next: 0 });
  const load = async (metrics: string[], by: "user" | "page") => {
    const began = Date.now();
    const n = ++read.current.n;
    read.current.news = news;
    setBusy(true);
    try {
      const found = await api.trials(id, metrics);
      if (n !== read.current.n) return; // a later one knows more
      setTable(found);
      setAsked(metrics);
      setRefused("");
      if (by === "user") setPattern("");
    } catch (problem) {
      if (by === "page" && problem instanceof Refusal) setRefused(problem.message);
      else complain(problem);
    }
    if (n !== read.current.n) return;
    // Logs are long: on its own, the page has them read a tenth of the time at most.
    read.current.next = Date.now() + Math.max(2000, 9 * (Date.now() - began));
    setBusy(false);
  };
  useEffect(() => {
    if (busy || read.current.news === news) return;
    const soon = setTimeout(() => void load(asked, "page"), Math.max(0, read.current.next - Date.now()));
    return () => clearTimeout(soon);
  }, [id, news, busy]);
  const show = () => {
    const shown = table?.metrics.map((m) => m.from) ?? [];
    void load(pattern === "" ? [] : [...new Set([...shown, pattern])], "user");
  };
  const columns = useMemo(() => table && columnsOf(table), [table]);
  const rows = useMemo(() => {
    const ordered = sorted(table?.trials ?? [], columns?.all.find((c) => c.key === sort.key), sort.down).slice(0, mostTrials);
    const drawn = new Set(ordered);
    return { ordered, drawn: (table?.trials ?? []).filter((r) => drawn.has(r)) };
  }, [table, sort]);
  const body = useMemo(
    () => <tbody>{rows.ordered.map((row) => <tr key={row.id}>{columns?.all.map((c) => <td key={c.key}><Cell row={row} column={c} /></td>)}</tr>)}</tbody>,
    [rows],
  );
  if (!table || !columns) return <p role="status">{clean(refused) || "Reading the trials…"}</p>;
  const x = columns.over.find((c) => c.key === plotted.x) ?? columns.over[0];
  const y = columns.plot.find((c) => c.key === plotted.y) ?? columns.plot[0];
  const options = (list: TrialColumn[]) => list.map((c) => <option key={c.key} value={c.key}>{c.title}</option>);
  const count = table.trials.length;
  return (
    <section aria-labelledby="trials-title">
      <h2 id="trials-title">Trials</h2>
      <form class="row" onSubmit={(e) => { e.preventDefault(); show(); }}>
        {logs && (
          <label title="A name such as val_acc, or a regular expression with one group; max: or min: in front picks the best value. Empty: the metrics of the sweep">
            Metric <input value={pattern} placeholder="max:val_acc" onInput={(e) => setPattern(e.currentTarget.value)} />
          </label>
        )}
        {logs && <button>Pick from the logs</button>}
        <span role="status">
          {busy ? "Reading the logs…" : count > mostTrials ? `The first ${mostTrials} of ${count} trials are shown, in the table and the plot` : `${count} trials`}
          {!!table.unread && `; ${table.unread} logs were not read in full`}
        </span>
      </form>
      {!logs && <p class="quiet">Only its user and administrators can see metrics from its logs.</p>}
      <div class="scroll trials" tabIndex={0} role="region" aria-label="Trials and their results">
        <table>
          <thead>
            <tr>
              {columns.all.map((c) => (
                <th key={c.key} scope="col" title={c.about} aria-sort={sort.key !== c.key ? undefined : sort.down ? "descending" : "ascending"}>
                  <button class="sort" onClick={() => setSort({ key: c.key, down: sort.key === c.key && !sort.down })}>{c.title}</button>
                </th>
              ))}
            </tr>
          </thead>
          {body}
        </table>
      </div>
      {x && y && (
        <>
          <form class="row" onSubmit={(e) => e.preventDefault()}>
            <label>Plot <select value={y.key} onChange={(e) => setPlotted({ x: x.key, y: e.currentTarget.value })}>{options(columns.plot)}</select></label>
            <label>over <select value={x.key} onChange={(e) => setPlotted({ x: e.currentTarget.value, y: y.key })}>{options(columns.over)}</select></label>
          </form>
          <Plot rows={rows.drawn} x={x} y={y} />
        </>
      )}
    </section>
  );
}
