import { useEffect, useRef, useState } from "preact/hooks";
import { api, type Job } from "../api";
import { bars, ticks } from "../bars";
import { useExpected } from "../expected";
import { clean, duration, moment } from "../format";
import { changed, complain, gpus, jobs, now } from "../store";
import { startText } from "../words";

const laneHeight = 30;
const left = 60;
const mostPast = 2000;

export function Timeline() {
  const [hours, setHours] = useState(6);
  const [past, setPast] = useState<Job[]>([]);
  const [cut, setCut] = useState(false);
  const [width, setWidth] = useState(800);
  const box = useRef<HTMLDivElement>(null);
  const expected = useExpected();
  useEffect(() => {
    const element = box.current;
    if (!element) return;
    const sized = new ResizeObserver(() => setWidth(Math.max(320, element.clientWidth)));
    sized.observe(element);
    return () => sized.disconnect();
  }, []);
  const often = Math.floor(changed.value.n / 20); // what ended since is still in the list of running jobs for a moment
  const minute = Math.floor(now.value / 60_000);
  useEffect(() => {
    const since = new Date(Date.now() - hours * 3_600_000).toISOString();
    api.history({ since, limit: String(mostPast) }).then((page) => {
      setPast(page.jobs);
      setCut(page.next !== undefined);
    }, complain);
  }, [hours, often, minute]);
  const at = Math.floor(now.value / 5000) * 5000;
  const from = at - hours * 3_600_000;
  const to = at + hours * 1_800_000;
  const x = (t: number) => left + ((Math.min(Math.max(t, from), to) - from) / (to - from)) * (width - left - 8);
  const shown = bars(past, jobs.value, expected, at).filter((b) => b.to >= from && b.from <= to);
  const lanes = gpus.value.map((g) => g.index);
  if (shown.some((b) => b.lane === -1)) lanes.push(-1);
  const y = (lane: number) => 22 + lanes.indexOf(lane) * laneHeight;
  const bottom = 22 + lanes.length * laneHeight;
  const words = { past: "ran", running: "runs", expected: "is expected" };
  const iso = (t: number) => new Date(t).toISOString();
  return (
    <>
      <h1>Timeline</h1>
      <form class="row" onSubmit={(e) => e.preventDefault()}>
        <label>
          Last{" "}
          <select value={String(hours)} onChange={(e) => setHours(Number(e.currentTarget.value))}>
            <option value="1">hour</option>
            <option value="6">6 hours</option>
            <option value="24">day</option>
            <option value="168">week</option>
          </select>
        </label>
        <span><span class="key k-past" /> ended</span> <span><span class="key k-running" /> running</span> <span><span class="key k-expected" /> expected</span>
        {cut && <span class="quiet">Of the past, the last {mostPast} jobs are shown.</span>}
      </form>
      <div class="scroll" tabIndex={0} role="region" aria-label="Timeline" ref={box}>
        <svg width={width} height={bottom + 24} role="img" aria-label={`What ran on ${gpus.value.length} GPUs in the last ${duration(hours * 3600)}, what runs, and what is expected to run when`}>
          {ticks(from, to, Math.max(2, Math.floor(width / 110))).filter((t) => x(t) < width - 30).map((t) => (
            <g key={t}>
              <line class="rule" x1={x(t)} x2={x(t)} y1={20} y2={bottom} />
              <text x={x(t)} y={bottom + 16} text-anchor="middle">{moment(iso(t), at)}</text>
            </g>
          ))}
          {lanes.map((lane) => (
            <g key={lane}>
              <text x={8} y={y(lane) + 19}>{lane < 0 ? "any" : `GPU ${lane}`}</text>
              <line class="rule" x1={left} x2={width - 8} y1={y(lane) + laneHeight} y2={y(lane) + laneHeight} />
            </g>
          ))}
          {shown.filter((b) => lanes.includes(b.lane)).map((b, i) => {
            const wide = Math.max(2, x(b.to) - x(b.from));
            const letters = Math.floor((wide - 8) / 7);
            return (
              <g key={i} class="bar" onClick={() => (location.hash = "/job/" + encodeURIComponent(b.job))}>
                <title>{`job ${clean(b.job, 40)} ${clean(b.name, 80)} ${words[b.kind]} ${moment(iso(b.from), at)} to ${moment(iso(b.to), at)}`}</title>
                <rect class={"k-" + b.kind} x={x(b.from)} y={y(b.lane) + 4} width={wide} height={laneHeight - 8} rx={3} />
                {letters >= 3 && <text class={"t-" + b.kind} x={x(b.from) + 4} y={y(b.lane) + 19}>{`${clean(b.job, 40)} ${clean(b.name, 80)}`.slice(0, letters)}</text>}
              </g>
            );
          })}
          <line class="now" x1={x(at)} x2={x(at)} y1={16} y2={bottom} />
          <text class="now-text" x={x(at)} y={12} text-anchor="middle">now</text>
        </svg>
      </div>
      <h2>Expected starts</h2>
      {expected.length === 0 ? <p>{jobs.value.some((j) => j.state === "queued") ? "No expected start is known yet." : "No job is waiting."}</p> : (
        <ol class="plain lines">
          {expected.map((w) => (
            <li key={w.id}>
              <a href={"#/job/" + encodeURIComponent(w.id)}>job {clean(w.id, 40)}</a> <bdi>{clean(jobs.value.find((j) => j.id === w.id)?.name, 80)}</bdi>:{" "}
              {startText({ ...w, position: undefined }, at)} <span class="quiet">{clean(w.text, 300)}</span>
            </li>
          ))}
        </ol>
      )}
    </>
  );
}
