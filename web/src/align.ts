import type { Samples } from "./api";

/** Samples as uPlot takes them: one column of times, one of values per track. Pure. */
export function align(samples: Samples, key: "vram_mib" | "util"): (number | null)[][] {
  const times = new Set<number>();
  for (const track of samples.tracks) for (const p of track.points) times.add(Date.parse(p.at) / 1000);
  const x = [...times].sort((a, b) => a - b);
  const at = new Map(x.map((t, i) => [t, i]));
  const columns: (number | null | undefined)[][] = samples.tracks.map((track) => {
    const y: (number | null | undefined)[] = x.map(() => undefined); // undefined: drawn through; null: a gap
    for (const p of track.points) y[at.get(Date.parse(p.at) / 1000) ?? 0] = p[key];
    return y;
  });
  return [x, ...(columns as (number | null)[][])];
}
