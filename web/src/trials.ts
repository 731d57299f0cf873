// The table of a sweep: its columns, their order, and a plot of two of them. Pure.
import type { Trial, TrialTable } from "./api";
import { clean, duration, memory } from "./format";

/** The most trials that are drawn. */
export const mostTrials = 1000;

export type Value = number | string | null;

export interface TrialColumn {
  key: string;
  title: string;
  about?: string;
  value: (row: Trial) => Value; // null: none
  text: (value: number) => string; // how a number is written
}

/** The value of a parameter or a metric, whose name may be one that every object has. */
export const own = <T>(all: Record<string, T>, name: string): T | undefined => (Object.hasOwn(all, name) ? all[name] : undefined);

/** A parameter as a number, if it is one. */
export function valueOf(text: string | undefined): Value {
  if (text === undefined || text === "") return null;
  return /^[+-]?(\d+\.?\d*|\.\d+)(e[+-]?\d+)?$/i.test(text) && isFinite(Number(text)) ? Number(text) : text;
}

/** A number in a few letters: 0.25, 1e-3. */
export function short(value: number): string {
  const size = Math.abs(value);
  const rounded = Number(value.toPrecision(6));
  return size > 0 && (size <= 1e-3 || size >= 1e6) ? rounded.toExponential().replace("e+", "e") : String(rounded);
}

/** How a trial ended if not well, else its state. */
export const outcomeText = (row: Trial): string => (row.outcome && row.outcome !== "ok" ? row.outcome : row.state);

export interface Columns {
  all: TrialColumn[];
  over: TrialColumn[]; // the parameters
  plot: TrialColumn[]; // what a plot shows over a parameter
}

export function columnsOf(table: TrialTable): Columns {
  const id = { key: "id", title: "Trial", value: (r: Trial) => valueOf(r.id.split("_")[1] ?? r.id), text: String };
  const name = { key: "name", title: "Name", value: (r: Trial) => r.name, text: String };
  const params = table.params.map((p) => ({ key: "param " + p, title: clean(p, 60), value: (r: Trial) => valueOf(own(r.params, p)), text: short }));
  const metrics = table.metrics.map((m) => ({ key: "metric " + m.name, title: clean(m.name, 60), about: clean(m.from, 300), value: (r: Trial) => own(r.metrics, m.name) ?? null, text: String }));
  const outcome = { key: "outcome", title: "Outcome", value: outcomeText, text: String };
  const time = { key: "time", title: "Time", value: (r: Trial) => r.seconds, text: duration };
  const peak = { key: "peak", title: "Peak memory", value: (r: Trial) => r.peak_vram_mib, text: memory };
  const named = table.trials.some((r) => r.name !== "job" + r.id && r.name !== table.name);
  return { all: [id, ...(named ? [name] : []), ...params, outcome, time, peak, ...metrics], over: params, plot: [...metrics, time, peak] };
}

/** The trials in the order of a column: numbers, then text, then those without a value. */
export function sorted(rows: Trial[], column: TrialColumn | undefined, down: boolean): Trial[] {
  if (!column) return rows;
  const rank = (v: Value) => (v === null ? 2 : typeof v === "string" ? 1 : 0);
  const order = (a: Value, b: Value) => (a === null || b === null || a === b ? 0 : a < b ? -1 : 1);
  return rows
    .map((row) => ({ row, value: column.value(row) }))
    .sort((a, b) => rank(a.value) - rank(b.value) || order(a.value, b.value) * (down ? -1 : 1))
    .map(({ row }) => row);
}

export interface Scale {
  kind: "linear" | "log" | "words";
  at: (value: Value) => number; // 0 to 1
  ticks: { at: number; text: string }[];
}

/** An axis with room for some ticks: of words if not all values are numbers, of powers if most are far below the largest. */
export function scaleOf(values: Value[], most: number, text: (value: number) => string): Scale {
  const numbers = values.filter((v) => typeof v === "number");
  if (numbers.length < values.length) return words([...new Set(values.map((v) => String(v)))], most);
  const all = [...new Set(numbers)].sort((a, b) => a - b);
  const [low = 0, high = 0, middle = 0] = [all[0], all[all.length - 1], all[Math.floor((all.length - 1) / 2)]];
  const log = low > 0 && high >= 10 * low && middle * middle < (Math.sqrt(low * high) * (low + high)) / 2; // nearer to the geometric mean than to the other
  const f = log ? Math.log10 : (v: number) => v;
  const room = (f(high) - f(low)) * 0.04 || Math.abs(f(high)) * 0.1 || 1;
  const [from, to] = [f(low) - room, f(high) + room];
  const at = (v: number) => (f(v) - from) / (to - from);
  const marks = (log && powers(low, high, most)) || steps(from, to, most, log);
  return {
    kind: log ? "log" : "linear",
    at: (v) => at(Number(v)),
    ticks: marks.map((v) => ({ at: at(v), text: text(v) })).filter((t, i, list) => t.text !== list[i - 1]?.text),
  };
}

function words(all: string[], most: number): Scale {
  const place = new Map(all.map((word, i) => [word, (i + 0.5) / all.length]));
  const every = Math.ceil(all.length / most);
  const ticks = all.filter((_, i) => i % every === 0).map((word) => ({ at: place.get(word) ?? 0, text: clean(word, 14) }));
  return { kind: "words", at: (v) => place.get(String(v)) ?? 0, ticks };
}

// Powers of ten, with their doubles and halves where there are few; null: too few.
function powers(low: number, high: number, most: number): number[] | null {
  const made = (digits: number[]) => {
    const found: number[] = [];
    for (let e = Math.floor(Math.log10(low)); e <= Math.ceil(Math.log10(high)); e++) for (const d of digits) found.push(Number(`${d}e${e}`));
    return found.filter((v) => v >= low * 0.95 && v <= high * 1.05);
  };
  let marks = made([1, 2, 5]);
  if (marks.length > most) marks = made([1]);
  const every = Math.ceil(marks.length / most);
  marks = marks.filter((_, i) => i % every === 0);
  return marks.length < 2 ? null : marks;
}

function steps(from: number, to: number, most: number, log: boolean): number[] {
  const rough = (to - from) / most;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = power * ([1, 2, 5].find((m) => m * power >= rough) ?? 10);
  const marks: number[] = [];
  for (let i = Math.ceil(from / step); i * step <= to; i++) marks.push(Number((i * step).toPrecision(12)));
  return log ? marks.map((m) => 10 ** m) : marks;
}
