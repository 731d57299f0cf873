import { useEffect, useState } from "preact/hooks";
import { api, type Job } from "../api";
import { bars } from "../bars";
import { useExpected } from "../expected";
import { clean, duration, moment } from "../format";
import { complain, gpus, jobs, now } from "../store";

const laneHeight = 28;

export function Timeline() {
  const [hours, setHours] = useState(6);
  const [past, setPast] = useState<Job[]>([]);
  const expected = useExpected();
  const [width, setWidth] = useState(Math.max(320, Math.min(1200, innerWidth - 40)));
  useEffect(() => {
    const sized = () => setWidth(Math.max(320, Math.min(1200, innerWidth - 40)));
    addEventListener("resize", sized);
    return () => removeEventListener("resize", sized);
  }, []);
  useEffect(() => {
    const since = new Date(Date.now() - hours * 3_600_000).toISOString();
    api.history({ since, limit: "2000" }).then((page) => setPast(page.jobs), complain);
  }, [hours]);
  const at = Math.floor(now.value / 5000) * 5000;
  const from = at - hours * 3_600_000;
  const to = at + hours * 1_200_000;
  const left = 70;
  const x = (t: number) => left + ((Math.min(Math.max(t, from), to) - from) / (to - from)) * (width - left);
  const shown = bars(past, jobs.value, expected, at).filter((b) => b.to >= from && b.from <= to);
  const lanes = gpus.value.map((g) => g.index);
  if (shown.some((b) => b.lane === -1)) lanes.push(-1);
  const y = (lane: number) => 20 + lanes.indexOf(lane) * laneHeight;
  const words = { past: "ran", running: "runs", expected: "is expected" };
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
      </form>
      <div class="scroll" tabIndex={0} role="region" aria-label="Timeline">
        <svg width={width} height={lanes.length * laneHeight + 40} role="img" aria-label={`What ran on ${gpus.value.length} GPUs in the last ${duration(hours * 3600)}, and what is expected`}>
          {lanes.map((lane) => (
            <g key={lane}>
              <text x={0} y={y(lane) + 18}>{lane < 0 ? "any" : `GPU ${lane}`}</text>
              <line class="rule" x1={left} x2={width} y1={y(lane) + laneHeight - 2} y2={y(lane) + laneHeight - 2} />
            </g>
          ))}
          {shown.filter((b) => lanes.includes(b.lane)).map((b, i) => (
            <rect key={i} class={"bar k-" + b.kind} x={x(b.from)} y={y(b.lane) + 3} width={Math.max(2, x(b.to) - x(b.from))} height={laneHeight - 8} rx={2}>
              <title>{`job ${clean(b.job, 40)} ${clean(b.name, 80)} ${words[b.kind]} ${moment(new Date(b.from).toISOString(), at)} to ${moment(new Date(b.to).toISOString(), at)}`}</title>
            </rect>
          ))}
          <line class="now" x1={x(at)} x2={x(at)} y1={14} y2={lanes.length * laneHeight + 20} />
          <text x={x(at)} y={12} text-anchor="middle">now</text>
          <text x={left} y={lanes.length * laneHeight + 36}>{moment(new Date(from).toISOString(), at)}</text>
          <text x={width} y={lanes.length * laneHeight + 36} text-anchor="end">{moment(new Date(to).toISOString(), at)}</text>
        </svg>
      </div>
      <h2>Expected starts</h2>
      {expected.length === 0 ? <p>No job is waiting.</p> : (
        <ol class="plain">
          {expected.map((w) => (
            <li key={w.id}>
              <a href={"#/job/" + encodeURIComponent(w.id)}>job {clean(w.id, 40)}</a>{" "}
              {w.expected ? `about ${moment(w.expected.mid ?? w.expected.low, at)}` : "no estimate"}: {clean(w.text, 300)}
            </li>
          ))}
        </ol>
      )}
    </>
  );
}
