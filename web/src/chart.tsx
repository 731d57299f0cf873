import { useEffect, useRef } from "preact/hooks";
import uPlot from "uplot";
import "uplot/dist/uPlot.min.css";
import { align } from "./align";
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
  const box = useRef<HTMLDivElement>(null);
  useEffect(() => {
    const element = box.current;
    if (!element) return;
    const look = getComputedStyle(document.documentElement);
    const colour = (name: string) => look.getPropertyValue(name).trim();
    const axis = { stroke: colour("--text"), grid: { stroke: colour("--border"), width: 1 } };
    const plot = new uPlot(
      {
        width: element.clientWidth || 600,
        height: 180,
        legend: { show: false },
        cursor: { drag: { x: true, y: false } },
        scales: { y: { range: (_, low, high) => [Math.min(0, low), most ?? Math.max(high * 1.1, 1)] } },
        axes: [{ ...axis, space: 90, values: (_, ticks) => ticks.map((t) => clock(t, (ticks[1] ?? 0) - (ticks[0] ?? 0))) }, { ...axis, ...(field === "vram_mib" ? { incrs: powers } : {}), size: 84, space: 28, values: (_, ticks) => ticks.map(written) }],
        series: [{}, ...samples.tracks.map((t, i) => ({ label: `GPU ${t.gpu}`, stroke: colour(strokes[i % strokes.length] ?? "--line1"), width: 2, points: { show: t.points.length < 3 } }))],
      },
      align(samples, field) as uPlot.AlignedData,
      element,
    );
    const sized = new ResizeObserver(() => plot.setSize({ width: element.clientWidth, height: 180 }));
    sized.observe(element);
    return () => {
      sized.disconnect();
      plot.destroy();
    };
  }, [samples, field]);
  const highest = Math.max(0, ...samples.tracks.flatMap((t) => t.points.map((p) => p[field] ?? 0)));
  return (
    <figure>
      <figcaption>
        {title}: at most {written(highest)}
        {field === "vram_mib" && samples.declared_mib ? `, declared ${written(samples.declared_mib)}` : ""}
      </figcaption>
      <div ref={box} class="chart" role="img" aria-label={`${title} over time, at most ${written(highest)}`} />
    </figure>
  );
}
