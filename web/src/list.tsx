// A table of jobs of any length: only the rows in sight are drawn.
import type { ComponentChildren } from "preact";
import { signal } from "@preact/signals";
import { useEffect, useRef, useState } from "preact/hooks";
import type { Job } from "./api";
import { between, clean, gpuList, moment, whereText } from "./format";
import { countText, leftText, type Row } from "./rows";
import { now } from "./store";
import { visible } from "./window";

const rowHeight = 30;
const tallRow = 50; // in a narrow window, with the reason below the name
const small = matchMedia("(max-width: 900px)"); // as in style.css

/** Whether there is no room for all columns. */
function useNarrow(): boolean {
  const [narrow, setNarrow] = useState(small.matches);
  useEffect(() => {
    const turned = () => setNarrow(small.matches);
    small.addEventListener("change", turned);
    return () => small.removeEventListener("change", turned);
  }, []);
  return narrow;
}

export interface Column {
  title: string;
  wide?: boolean; // left out in a narrow window
  size?: string; // a class, as in style.css
  cell: (job: Row) => ComponentChildren;
}

/** The rows whose jobs are listed. */
export const opened = signal(new Set<string>());

function toggle(key: string): void {
  const next = new Set(opened.value);
  if (!next.delete(key)) next.add(key);
  opened.value = next;
}

/** The name of a job, or of a row that can be opened. */
function Name({ row }: { row: Row }) {
  const { fold } = row;
  const name = <bdi>{clean(row.name, 200)}</bdi>;
  if (!fold) return name;
  return <button class="fold" aria-expanded={fold.open} title={clean(fold.file, 1000)} onClick={() => toggle(fold.key)}>{name}</button>;
}

/** Why a job waits; of several, also when they are expected to be done. */
function reasonText(row: Row, most: number): string {
  return [row.fold ? leftText(row.fold.sum, now.value) : "", clean(row.reason, most)].filter(Boolean).join("; ");
}

export const columns = {
  id: { title: "Job", size: "w-id", cell: (j: Row) => j.id && <a href={"#/job/" + encodeURIComponent(j.id)}>{clean(j.id, 40)}</a> },
  name: { title: "Name", cell: (j: Row) => <><Name row={j} /><span class="below">{reasonText(j, 300) || clean(j.user, 60)}</span></> },
  user: { title: "User", wide: true, size: "w-mid", cell: (j: Row) => clean(j.user, 60) },
  state: { title: "State", size: "w-state", cell: (j: Row) => (j.fold ? <span class={"state counts s-" + j.state} title={countText(j.fold.sum)}>{countText(j.fold.sum)}</span> : <State job={j} />) },
  gpus: { title: "GPUs", wide: true, size: "w-mid", cell: (j: Row) => (j.fold ? "" : (j.slurm ? whereText(j) : gpuList(j.gpu_ids)) || (j.gpus ? `needs ${j.gpus}` : "none")) },
  time: { title: "Time", size: "w-short", cell: (j: Row) => (j.started_at ? between(j.started_at, j.ended_at, now.value) : j.ended_at ? "" : between(j.submitted_at, null, now.value)) },
  ended: { title: "Ended", wide: true, size: "w-mid", cell: (j: Row) => moment(j.ended_at, now.value) },
  reason: { title: "Reason", wide: true, size: "w-long", cell: (j: Row) => <span title={reasonText(j, 1000)}>{reasonText(j, 300)}</span> },
} satisfies Record<string, Column>;

export function State({ job }: { job: Job }) {
  const word = job.held && job.state === "queued" ? "held" : job.state;
  const more = job.outcome && job.outcome !== "ok" && job.outcome !== job.state ? ` (${clean(job.outcome, 40)})` : "";
  return <span class={"state s-" + word}>{word + more}</span>;
}

export function JobList({ jobs, show, label }: { jobs: Row[]; show: Column[]; label: string }) {
  const box = useRef<HTMLDivElement>(null);
  const [scrolled, setScrolled] = useState(0);
  const [view, setView] = useState(600);
  useEffect(() => {
    const element = box.current;
    if (!element) return;
    const sized = new ResizeObserver(() => setView(element.clientHeight));
    sized.observe(element);
    return () => sized.disconnect();
  }, []);
  const rows = visible(jobs.length, useNarrow() ? tallRow : rowHeight, scrolled, view);
  const kind = (c: Column) => [c.wide ? "wide" : "", c.size ?? ""].join(" ").trim() || undefined;
  return (
    <div class="scroll list" ref={box} tabIndex={0} role="region" aria-label={label} onScroll={(e) => setScrolled(e.currentTarget.scrollTop)}>
      <table class="fixed" aria-rowcount={jobs.length + 1}>
        <thead>
          <tr aria-rowindex={1}>{show.map((c) => <th key={c.title} scope="col" class={kind(c)}>{c.title}</th>)}</tr>
        </thead>
        <tbody>
          {rows.above > 0 && <tr class="space" aria-hidden="true" style={{ height: `${rows.above}px` }} />}
          {jobs.slice(rows.first, rows.last).map((job, i) => (
            <tr key={job.fold?.key ?? job.id} aria-rowindex={rows.first + i + 2}>
              {show.map((c) => <td key={c.title} class={c.wide ? "wide" : undefined}>{c.cell(job)}</td>)}
            </tr>
          ))}
          {rows.below > 0 && <tr class="space" aria-hidden="true" style={{ height: `${rows.below}px` }} />}
        </tbody>
      </table>
    </div>
  );
}
