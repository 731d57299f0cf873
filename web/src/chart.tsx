import { useEffect, useRef } from "preact/hooks";
import uPlot from "uplot";
import "uplot/dist/uPlot.min.css";
import { align, lineNames, timeRange } from "./align";
import type { Samples } from "./api";
import { memory, percent } from "./format";

/** A tick of the time axis: seconds only where they matter. */
function clock(at: number, step: number): string {
  const date = new Date(at * 1000);
  if (step >= 86_400) return date.toLocaleDateString([], { month: "short", day: "numeric" });
  return date.toLocaleTimeString([], { hour: "2-digit", minute: "2-digit", second: step < 60 ? "2-digit" : undefined, hour12: false });
}

// Steps of the memory axis: none that is no whole number of MiB or GiB.
const powers = Array.from({ length: 24 }, (_, i) => 2 ** i);

const strokes = ["--line1", "--line2", "--line3", "--line4"];

export function Chart({ samples, field, title, most }: { samples: Samples; field: "vram_mib" | "util"; title: string; most?: number }) {
  const written = field === "vram_mib" ? memory : percent;
  const declared = (field === "vram_mib" && samples.declared_mib) || 0;
  const box = useRef<HTMLDivElement>(null);
  useEffect(() => {
    const element = box.current;
    if (!element) return;
    const look = getComputedStyle(document.documentElement);
    const colour = (name: string) => look.getPropertyValue(name).trim();
    const data = align(samples, field);
    if (declared) data.push((data[0] ?? []).map(() => declared));
    const shade = (u: uPlot) => {
      u.ctx.fillStyle = colour("--border");
      for (const stretch of samples.parked) {
        const [from, to] = [stretch.from, stretch.to ?? new Date().toISOString()].map((at) => u.valToPos(Date.parse(at) / 1000, "x", true)) as [number, number];
        u.ctx.fillRect(from, u.bbox.top, to - from, u.bbox.height);
      }
    };
    const axis = { stroke: colour("--text"), grid: { stroke: colour("--border"), width: 1 } };
    const plot = new uPlot(
      {
        width: element.clientWidth || 600,
        height: 180,
        legend: { show: false },
        cursor: { drag: { x: true, y: false } },
        hooks: { drawClear: [shade] },
        scales: { x: { range: (_, low, high) => timeRange(low, high) }, y: { range: (_, low, high) => [Math.min(0, low), most ?? Math.max(high * 1.1, 1)] } },
        axes: [{ ...axis, space: 90, values: (_, ticks) => ticks.map((t) => clock(t, (ticks[1] ?? 0) - (ticks[0] ?? 0))) }, { ...axis, ...(field === "vram_mib" ? { incrs: powers } : {}), size: 84, space: 28, values: (_, ticks) => ticks.map(written) }],
        series: [{}, ...samples.tracks.map((t, i) => ({ label: `GPU ${t.gpu}`, stroke: colour(strokes[i % strokes.length] ?? "--line1"), width: 2, points: { show: t.points.length < 3 } })), ...(declared ? [{ label: "declared", stroke: colour("--quiet"), dash: [6, 4], points: { show: false } }] : [])],
      },
      data as uPlot.AlignedData,
      element,
    );
    const sized = new ResizeObserver(() => plot.setSize({ width: element.clientWidth, height: 180 }));
    sized.observe(element);
    return () => {
      sized.disconnect();
      plot.destroy();
    };
  }, [samples, field]);
  const keys = lineNames(samples).map((name, i) => [`line${(i % strokes.length) + 1}`, name]);
  if (declared) keys.push(["dashed", "declared"]);
  if (samples.parked.length > 0) keys.push(["shaded", "parked"]);
  const highest = Math.max(0, ...samples.tracks.flatMap((t) => t.points.map((p) => p[field] ?? 0)));
  return (
    <figure>
      <figcaption>
        {title}: at most {written(highest)}
        {declared ? `, declared ${written(declared)}` : ""}
      </figcaption>
      {keys.length > 0 && <ul class="keys">{keys.map(([look, name]) => <li key={name} class={look}>{name}</li>)}</ul>}
      <div ref={box} class="chart" role="img" aria-label={`${title} over time, at most ${written(highest)}`} />
    </figure>
  );
}
